//! The verdict on each container.
//!
//! First it computes what the kubelet's limits would remove, then it takes the protected objects out. No
//! other object replaces a protected one, so the removals are always a part of what the kubelet would remove
//! under the same limits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use strum::VariantArray;

use super::age::at_least;
use super::index::{Newest, RowSet, SnapshotIndex};
use super::knowledge::Knowledge;
use super::quiet::{Quiet, if_quiet};
use super::{AgeFrom, ContainerPolicy, Limit, PodKnowledge, Policy, Protect, Verdict};
use crate::model::{
    Container, ContainerState, KeepReason, PodRef, PodSandbox, PodSandboxId, RemoveReason, Snapshot,
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

impl ContainerRule {
    /// Returns the rules before the limits, and those that look at the limits.
    fn parts() -> (&'static [Self], &'static [Self]) {
        Self::VARIANTS.split_at(Self::KeepFirst as usize)
    }
}

/// Judges every container; the answer has one verdict for each, in the snapshot's order.
pub(super) fn judge(policy: &Policy, knowledge: &Knowledge<'_>, newest: &Newest) -> Vec<Verdict> {
    let (judge, first) = ContainerJudge::new(policy, knowledge, newest);
    let first = first.into_iter().enumerate();
    let (_, rest) = ContainerRule::parts();
    first
        .map(|(place, verdict)| {
            verdict
                .or_else(|| rest.iter().find_map(|rule| judge.ask(*rule, place)))
                .unwrap_or(Verdict::Keep(KeepReason::WithinLimits))
        })
        .collect()
}

/// All that the rules look at.
pub(super) struct ContainerJudge<'a> {
    policy: &'a Policy,
    knowledge: &'a Knowledge<'a>,
    newest: &'a Newest,
    quiet: Quiet,
    shields: Shields<'a>,
    limits: Surplus,
}

impl<'a> ContainerJudge<'a> {
    /// Prepares the rules; also returns what those before the limits say of each container.
    pub(super) fn new(
        policy: &'a Policy,
        knowledge: &'a Knowledge<'a>,
        newest: &'a Newest,
    ) -> (Self, Vec<Option<Verdict>>) {
        let index = &knowledge.index;
        let snapshot = index.snapshot;
        let mut judge = Self {
            policy,
            knowledge,
            newest,
            quiet: Quiet::of(knowledge, policy),
            shields: Shields::new(snapshot, &policy.protect),
            limits: Surplus::none(index),
        };
        let mut first = Vec::with_capacity(snapshot.containers.len());
        let mut counted = RowSet::none(snapshot.containers.len());
        let (before, _) = ContainerRule::parts();
        for (place, container) in snapshot.containers.iter().enumerate() {
            let verdict = before.iter().find_map(|rule| judge.ask(*rule, place));
            // A protected one counts for the limits like any other. The kubelet removes objects without a pod and
            // those of deleted pods first, so they never count.
            let counts = match verdict {
                None => true,
                Some(Verdict::Keep(KeepReason::Protected)) => {
                    judge.is_considered(container)
                        && judge.pod_state(place) != PodKnowledge::Deleted
                }
                Some(Verdict::Keep(_) | Verdict::Remove(_)) => false,
            };
            if counts {
                counted.add(place);
            }
            first.push(verdict);
        }
        judge.limits = Surplus::of(index, &counted, &policy.containers, newest);
        (judge, first)
    }

    /// Returns what one rule says of the container at this place; `None`: nothing, the next one is asked.
    pub(super) fn ask(&self, rule: ContainerRule, place: usize) -> Option<Verdict> {
        use ContainerRule as Rule;
        let container = self.snapshot().containers.get(place)?;
        let rules = &self.policy.containers;
        let keep = |reason, holds: bool| holds.then_some(Verdict::Keep(reason));
        match rule {
            Rule::Running => keep(
                KeepReason::Running,
                container.state == ContainerState::Running,
            ),
            Rule::CreatedGrace => {
                let since_creation = self.snapshot().age(container.created_at);
                let starts = container.state == ContainerState::Created
                    && !at_least(since_creation, rules.created_grace);
                keep(KeepReason::Starting, starts)
            }
            Rule::Unmanaged => keep(KeepReason::Unmanaged, container.pod.is_none()),
            Rule::Protect => keep(KeepReason::Protected, self.shields.protect(container)),
            Rule::IncludeUnknown => keep(KeepReason::StateUnknown, self.may_run(container)),
            Rule::MinAge => keep(KeepReason::TooYoung, !self.is_old(container)),
            Rule::PodDeleted => self.by_deletion(place),
            Rule::KeepFirst => {
                let needed = !self.pod_state(place).is_finished() && !self.newest.has(place);
                keep(
                    KeepReason::WithinLimits,
                    needed && self.limits.kept_first.has(place),
                )
            }
            Rule::MaxPerContainer => {
                let surplus = self.limits.superseded.has(place) && !self.newest.has(place);
                surplus.then_some(Verdict::Remove(RemoveReason::Superseded))
            }
            Rule::MaxDead => self.by_cap(place),
            Rule::Settle => {
                let absent = self.pod_state(place) == PodKnowledge::Absent;
                keep(KeepReason::TooYoung, absent && self.newest.has(place))
            }
            Rule::Newest => keep(KeepReason::Newest, self.newest.has(place)),
            Rule::WithinLimits => keep(KeepReason::WithinLimits, true),
        }
    }

    /// Returns how many dead containers count for `max_dead`.
    pub(super) fn counted(&self) -> usize {
        self.limits.counted
    }

    fn snapshot(&self) -> &'a Snapshot {
        self.knowledge.index.snapshot
    }

    fn pod_state(&self, place: usize) -> PodKnowledge {
        let index = &self.knowledge.index;
        self.knowledge.at(index.pod_of_container(place))
    }

    /// Says whether a container that does not run, and does not start, is dead and old enough.
    fn is_considered(&self, container: &Container) -> bool {
        !self.may_run(container) && self.is_old(container)
    }

    fn may_run(&self, container: &Container) -> bool {
        container.state == ContainerState::Unknown && !self.policy.containers.include_unknown
    }

    fn is_old(&self, container: &Container) -> bool {
        let then = counts_from(self.policy.containers.age_from, container);
        // Its exit time is unknown: it may have exited just now.
        then.is_some_and(|then| at_least(self.snapshot().age(then), self.policy.containers.min_age))
    }

    /// Says whether the pod of the container at this place is quiet, or needs not to be.
    fn is_quiet(&self, place: usize) -> bool {
        let pod = self.knowledge.index.pod_of_container(place);
        !self.newest.has(place) || self.quiet.allows(pod)
    }

    fn by_deletion(&self, place: usize) -> Option<Verdict> {
        (self.pod_state(place) == PodKnowledge::Deleted)
            .then(|| if_quiet(self.is_quiet(place), RemoveReason::PodDeleted))
    }

    fn by_cap(&self, place: usize) -> Option<Verdict> {
        let group = self.knowledge.index.group_of(place);
        // After a clock step one that is newest by its attempt can lie beyond `max_per_container`. It would
        // be within it, and count, after the cap has removed later ones: so it is removed with them. With limit 0
        // it counts already.
        let uncounted = self.limits.superseded.has(place)
            && self.policy.containers.max_per_container != Limit::AtMost(0);
        let goes_along = uncounted && self.limits.capped.has(group);
        let over = self.limits.over_cap.has(place) || goes_along;
        let needed = self.newest.has(place) && !self.pod_state(place).is_finished();
        (over && !needed).then(|| if_quiet(self.is_quiet(place), RemoveReason::OverCap))
    }
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
    fn none(index: &SnapshotIndex<'_>) -> Self {
        let count = index.snapshot.containers.len();
        Self {
            superseded: RowSet::none(count),
            over_cap: RowSet::none(count),
            capped: RowSet::none(index.groups().count()),
            kept_first: RowSet::none(count),
            counted: 0,
        }
    }

    /// `counts` are the positions of the containers that count for the limits.
    fn of(
        index: &SnapshotIndex<'_>,
        counts: &RowSet,
        rules: &ContainerPolicy,
        newest: &Newest,
    ) -> Self {
        let snapshot = index.snapshot;
        let mut limits = Self::none(index);
        // A container beyond the limit of its name stays beyond it, and one that is not the newest stays so,
        // however many more records there are: this also holds on an incomplete look.
        let mut left = by_group(index, |it| counts.has(it));
        if rules.keep_first {
            for group in left.chunk_by(|a, b| index.group_of(*a) == index.group_of(*b)) {
                if let Some(oldest) = group.last() {
                    limits.kept_first.add(*oldest);
                }
            }
        }
        let superseded = &mut limits.superseded;
        trim(index, &mut left, rules.max_per_container, superseded);
        if rules.max_per_container == Limit::AtMost(0) {
            // The kubelet would remove all. The newest ones that we keep still count for the cap, which may
            // then remove them.
            left = by_group(index, |it| limits.superseded.has(it) && newest.has(it));
        }
        limits.counted = left.len();
        match rules.max_dead {
            Limit::AtMost(max_dead) if snapshot.seen.is_all() => {
                limits.cap(index, left, max_dead);
            }
            // Unseen records cannot be counted, nor assigned to deleted pods.
            Limit::AtMost(_) | Limit::None => {}
        }
        limits
    }

    /// The kubelet's node-wide limit: first an equal share for each name (rounded down, at least one), then
    /// the oldest of all.
    fn cap(&mut self, index: &SnapshotIndex<'_>, mut counted: Vec<usize>, max_dead: usize) {
        if counted.len() <= max_dead {
            return;
        }
        let mut groups: Vec<usize> = counted.iter().map(|&it| index.group_of(it)).collect();
        groups.dedup();
        let share = (max_dead / groups.len().max(1)).max(1);
        trim(
            index,
            &mut counted,
            Limit::AtMost(share),
            &mut self.over_cap,
        );
        let surplus = counted.len().saturating_sub(max_dead);
        counted.sort_by_key(|it| index.containers.at(*it).by_creation);
        for &place in counted.iter().take(surplus) {
            self.over_cap.add(place);
        }
        for place in self.over_cap.iter() {
            self.capped.add(index.group_of(place));
        }
    }
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
