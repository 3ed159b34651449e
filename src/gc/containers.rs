//! The verdict on each container.
//!
//! First it computes what the kubelet's limits would remove, then it takes the protected objects out. No
//! other object replaces a protected one, so the removals are always a part of what the kubelet would remove
//! under the same limits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::index::{RowSet, SnapshotIndex};
use super::knowledge::Knowledge;
use super::quiet::if_quiet;
use super::{
    AgeFrom, ContainerPolicy, Limit, PodKnowledge, Protect, Verdict, at_least, first_said, keep,
};
use crate::model::{
    Container, ContainerState, KeepReason, PodRef, PodSandbox, PodSandboxId, RemoveReason,
    Snapshot, Target,
};

/// The rules, in the order in which they are asked: the first that says something is the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum ContainerRule {
    /// Keeps what runs.
    Running,
    /// Keeps what may start.
    CreatedGrace,
    /// Keeps what another tool made.
    Unmanaged,
    /// Keeps what `policy.protect` names.
    Protect,
    /// Keeps what may run.
    IncludeUnknown,
    /// Keeps what is young, or may be.
    MinAge,
    /// Removes everything of a deleted pod, its newest once they are quiet.
    PodDeleted,
    /// Keeps the first of a crash loop, on request, until its pod is finished.
    KeepFirst,
    /// Removes what newer records supersede.
    MaxPerContainer,
    /// Removes what the node has too many of.
    MaxDead,
    /// Keeps the newest of a pod that is absent for a short time.
    Settle,
    /// Keeps the newest.
    Newest,
    /// Keeps what no limit asks for.
    WithinLimits,
}

/// Judges every container; the answer has one verdict for each, in the snapshot's order.
pub(super) fn judge(knowledge: &Knowledge<'_>) -> Vec<Verdict> {
    let judge = ContainerJudge::new(knowledge);
    let off = knowledge.policy.off(Target::Containers);
    let places = 0..knowledge.index.snapshot.containers.len();
    places
        .map(|place| {
            let verdict = first_said(|rule| judge.ask(rule, place), KeepReason::WithinLimits);
            verdict.unless(off)
        })
        .collect()
}

/// All that the rules look at.
pub(super) struct ContainerJudge<'a> {
    knowledge: &'a Knowledge<'a>,
    shields: Shields<'a>,
    limits: Surplus,
}

impl<'a> ContainerJudge<'a> {
    pub(super) fn new(knowledge: &'a Knowledge<'a>) -> Self {
        Self {
            knowledge,
            shields: Shields::new(knowledge.index.snapshot, &knowledge.policy.protect),
            limits: Surplus::of(knowledge),
        }
    }

    /// Returns what one rule says of the container at this place; `None`: nothing, the next one is asked.
    pub(super) fn ask(&self, rule: ContainerRule, place: usize) -> Option<Verdict> {
        use ContainerRule as Rule;
        let index = &self.knowledge.index;
        let (snapshot, rules) = (index.snapshot, &self.knowledge.policy.containers);
        let container = snapshot.containers.get(place)?;
        let state = || self.knowledge.at(index.pod_of_container(place));
        let is_newest = || index.newest_containers.has(place);
        match rule {
            Rule::Running => keep(
                KeepReason::Running,
                container.state == ContainerState::Running,
            ),
            Rule::CreatedGrace => keep(KeepReason::Starting, may_start(snapshot, rules, container)),
            Rule::Unmanaged => keep(KeepReason::Unmanaged, container.pod.is_none()),
            Rule::Protect => keep(KeepReason::Protected, self.shields.protect(container)),
            Rule::IncludeUnknown => keep(KeepReason::StateUnknown, may_run(rules, container)),
            Rule::MinAge => keep(KeepReason::TooYoung, !is_old(snapshot, rules, container)),
            Rule::PodDeleted => (state() == PodKnowledge::Deleted)
                .then(|| if_quiet(self.is_quiet(place), RemoveReason::PodDeleted)),
            Rule::KeepFirst => {
                let needed = !state().is_finished() && !is_newest();
                keep(
                    KeepReason::WithinLimits,
                    needed && self.limits.kept_first.has(place),
                )
            }
            Rule::MaxPerContainer => {
                let surplus = self.limits.superseded.has(place) && !is_newest();
                surplus.then_some(Verdict::Remove(RemoveReason::Superseded))
            }
            Rule::MaxDead => {
                let needed = is_newest() && !state().is_finished();
                (self.is_over_cap(place) && !needed)
                    .then(|| if_quiet(self.is_quiet(place), RemoveReason::OverCap))
            }
            Rule::Settle => {
                let absent = state() == PodKnowledge::Absent;
                keep(KeepReason::TooYoung, absent && is_newest())
            }
            Rule::Newest => keep(KeepReason::Newest, is_newest()),
            Rule::WithinLimits => keep(KeepReason::WithinLimits, true),
        }
    }

    /// Returns how many dead containers count for `max_dead`.
    pub(super) fn counted(&self) -> usize {
        self.limits.counted
    }

    /// Says whether the pod of the container at this place is quiet, or needs not to be.
    fn is_quiet(&self, place: usize) -> bool {
        let index = &self.knowledge.index;
        let pod = index.pod_of_container(place);
        !index.newest_containers.has(place) || self.knowledge.is_quiet(pod)
    }

    fn is_over_cap(&self, place: usize) -> bool {
        // After a clock step one that is newest by its attempt can lie beyond `max_per_container`. It would
        // be within it, and count, after the cap has removed later ones: so it is removed with them. With limit 0
        // it counts already.
        let uncounted = self.limits.superseded.has(place)
            && self.knowledge.policy.containers.max_per_container != Limit::AtMost(0);
        let group = self.knowledge.index.group_of(place);
        self.limits.over_cap.has(place) || uncounted && self.limits.capped.has(group)
    }
}

fn may_start(snapshot: &Snapshot, rules: &ContainerPolicy, container: &Container) -> bool {
    let since_creation = snapshot.age(container.created_at);
    container.state == ContainerState::Created && !at_least(since_creation, rules.created_grace)
}

fn may_run(rules: &ContainerPolicy, container: &Container) -> bool {
    container.state == ContainerState::Unknown && !rules.include_unknown
}

fn is_old(snapshot: &Snapshot, rules: &ContainerPolicy, container: &Container) -> bool {
    let then = counts_from(rules.age_from, container);
    // Its exit time is unknown: it may have exited just now.
    then.is_some_and(|then| at_least(snapshot.age(then), rules.min_age))
}

/// Returns when the age of a dead container began; `None` if that is not known.
pub(super) fn counts_from(age_from: AgeFrom, container: &Container) -> Option<Timestamp> {
    match (container.state, age_from) {
        // Nothing is older than its creation: after a clock step an exit can lie before it.
        (ContainerState::Exited, AgeFrom::Finished) => {
            let finished_at = container.finished_at?;
            Some(finished_at.max(container.created_at))
        }
        (ContainerState::Exited, AgeFrom::Created) => Some(container.created_at),
        // They have no exit.
        (ContainerState::Created | ContainerState::Unknown | ContainerState::Running, _) => {
            Some(container.created_at)
        }
    }
}

/// What keeps a container regardless of the limits.
struct Shields<'a> {
    protect: &'a Protect,
    sandboxes: BTreeMap<&'a PodSandboxId, &'a PodSandbox>,
}

impl<'a> Shields<'a> {
    fn new(snapshot: &'a Snapshot, protect: &'a Protect) -> Self {
        // Sandboxes are needed only for their labels.
        let sandboxes = snapshot.sandboxes.iter();
        let sandboxes = sandboxes
            .filter(|_| !protect.labels.is_empty())
            .map(|sandbox| (&sandbox.id, sandbox));
        Self {
            protect,
            sandboxes: sandboxes.collect(),
        }
    }

    fn protect(&self, container: &Container) -> bool {
        let pod = container.pod.as_ref();
        pod.is_some_and(|pod| protects_pod(self.protect, pod)) || self.protects_labels(container)
    }

    /// The kubelet puts a pod's labels only on its sandbox. Without the sandbox's record they are unknown, so
    /// if labels protect, the container stays.
    fn protects_labels(&self, container: &Container) -> bool {
        if self.protect.labels.is_empty() {
            return false;
        }
        self.protect.has_label(&container.labels)
            || self.protect.has_label_of_container(&container.name)
            || self
                .sandboxes
                .get(&container.sandbox_id)
                .is_none_or(|sandbox| self.protect.has_label(&sandbox.labels))
    }
}

/// Says whether the pod's namespace, or a label that names the pod, is protected; an unknown namespace counts
/// as protected if any namespace is.
pub(super) fn protects_pod(protect: &Protect, pod: &PodRef) -> bool {
    let by_namespace = !protect.namespaces.is_empty()
        && (pod.namespace.is_empty() || protect.namespaces.contains(pod.namespace.as_str()));
    by_namespace || protect.has_label_of_pod(pod)
}

/// What the kubelet's two limits would remove.
struct Surplus {
    superseded: RowSet,
    over_cap: RowSet,
    /// The groups of which the cap removes something.
    capped: RowSet,
    /// The oldest of each group, if the policy keeps them. They count like any other, and nothing goes in their
    /// place.
    kept_first: RowSet,
    /// Number of containers that count for the cap.
    counted: usize,
}

impl Surplus {
    fn of(knowledge: &Knowledge<'_>) -> Self {
        let (index, rules) = (&knowledge.index, &knowledge.policy.containers);
        let snapshot = index.snapshot;
        let count = snapshot.containers.len();
        let counts = RowSet::of(count, |place| counts(knowledge, place));
        // A container beyond the limit of its name stays beyond it, and one that is not the newest stays so,
        // however many more records there are: this also holds on an incomplete look.
        let mut left = by_group(index, |it| counts.has(it));
        let mut kept_first = RowSet::none(count);
        if rules.keep_first {
            for group in left.chunk_by(|a, b| index.group_of(*a) == index.group_of(*b)) {
                if let Some(oldest) = group.last() {
                    kept_first.add(*oldest);
                }
            }
        }
        let mut superseded = RowSet::none(count);
        trim(index, &mut left, rules.max_per_container, &mut superseded);
        if rules.max_per_container == Limit::AtMost(0) {
            // The kubelet would remove all. The newest ones that we keep still count for the cap, which may
            // then remove them.
            let newest = &index.newest_containers;
            left = by_group(index, |it| superseded.has(it) && newest.has(it));
        }
        let counted = left.len();
        let over_cap = match rules.max_dead {
            Limit::AtMost(max_dead) if snapshot.seen.is_all() => over_cap(index, left, max_dead),
            // Unseen records cannot be counted, nor assigned to deleted pods.
            Limit::AtMost(_) | Limit::None => RowSet::none(count),
        };
        let mut capped = RowSet::none(index.groups().count());
        for place in over_cap.iter() {
            capped.add(index.group_of(place));
        }
        Self {
            superseded,
            over_cap,
            capped,
            kept_first,
            counted,
        }
    }
}

/// Says whether the container at this place counts for the limits: it is dead and old enough. A protected one counts
/// like any other. The kubelet removes objects without a pod and those of deleted pods first, so they never count.
fn counts(knowledge: &Knowledge<'_>, place: usize) -> bool {
    let (index, rules) = (&knowledge.index, &knowledge.policy.containers);
    let snapshot = index.snapshot;
    let is_dead = |it: &Container| {
        it.state != ContainerState::Running
            && !may_start(snapshot, rules, it)
            && !may_run(rules, it)
            && is_old(snapshot, rules, it)
    };
    let container = snapshot.containers.get(place);
    container.is_some_and(|it| it.pod.is_some() && is_dead(it))
        && knowledge.at(index.pod_of_container(place)) != PodKnowledge::Deleted
}

/// The kubelet's node-wide limit: first an equal share for each name (rounded down, at least one), then
/// the oldest of all.
fn over_cap(index: &SnapshotIndex<'_>, mut counted: Vec<usize>, max_dead: usize) -> RowSet {
    let mut taken = RowSet::none(index.snapshot.containers.len());
    if counted.len() > max_dead {
        let mut groups: Vec<usize> = counted.iter().map(|&it| index.group_of(it)).collect();
        groups.dedup();
        let share = (max_dead / groups.len().max(1)).max(1);
        trim(index, &mut counted, Limit::AtMost(share), &mut taken);
        index.containers.take_oldest(counted, max_dead, &mut taken);
    }
    taken
}

/// Sorts positions group by group, newest first in each.
fn by_group(index: &SnapshotIndex<'_>, counts: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut all: Vec<usize> = Vec::new();
    for places in index.groups() {
        let before = all.len();
        all.extend(places.filter(|it| counts(*it)));
        let group = all.get_mut(before..).unwrap_or_default();
        group.sort_by_key(|it| Reverse(index.containers.at(*it).by_creation));
    }
    all
}

/// Removes from each group what is beyond the limit; the positions are sorted by group.
fn trim(index: &SnapshotIndex<'_>, places: &mut Vec<usize>, limit: Limit, taken: &mut RowSet) {
    let Limit::AtMost(limit) = limit else { return };
    let (mut group, mut kept) = (None, 0);
    places.retain(|&place| {
        if group != Some(index.group_of(place)) {
            (group, kept) = (Some(index.group_of(place)), 0);
        }
        kept += 1;
        if kept > limit {
            taken.add(place);
        }
        kept <= limit
    });
}
