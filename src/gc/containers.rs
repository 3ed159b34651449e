//! The verdict on each container.
//!
//! First the kubelet's own sets are worked out (what its limits would take), then what is protected
//! is put back. Nothing is ever taken in a protected one's place, so what goes is always a part of
//! what the kubelet would take under the same limits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::knowledge::Knowledge;
use super::quiet::Quiet;
use super::{
    AgeFrom, ContainerPolicy, KeepReason, Limit, PodKnowledge, Policy, Protect, RemoveReason,
    Verdict,
};
use crate::model::{
    Container, ContainerId, ContainerState, PodRef, PodSandbox, PodSandboxId, PodUid, Snapshot,
};

/// Judges every container; the answer has one verdict for each, in the snapshot's order.
pub(super) fn judge(
    snapshot: &Snapshot,
    policy: &Policy,
    knowledge: &Knowledge<'_>,
) -> Vec<Verdict> {
    let newest = Newest::of(&snapshot.containers).indexes();
    let shielded = Shields::new(snapshot, &policy.protect);
    let quiet = Quiet::of(snapshot, policy);
    let mut first: Vec<Option<Verdict>> = Vec::with_capacity(snapshot.containers.len());
    let mut counted: BTreeMap<GroupKey<'_>, Vec<usize>> = BTreeMap::new();
    for (index, container) in snapshot.containers.iter().enumerate() {
        let state = knowledge_of(knowledge, container.pod.as_deref());
        let gate = considered(snapshot, policy, container);
        let shield = shielded.over(container);
        first.push(match (gate, shield) {
            (Err(keep @ (KeepReason::Running | KeepReason::Starting)), _) => {
                Some(Verdict::Keep(keep))
            }
            (Err(keep), shield) => Some(Verdict::Keep(shield.unwrap_or(keep))),
            (Ok(()), shield) if state == PodKnowledge::Deleted => Some(match shield {
                Some(keep) => Verdict::Keep(keep),
                None if newest.contains(&index) && !quiet.allows_of(container, state) => {
                    Verdict::Keep(KeepReason::TooYoung)
                }
                None => Verdict::Remove(RemoveReason::PodDeleted),
            }),
            // The kubelet takes what has no pod first of all, so that it never counts for the limits.
            (Ok(()), Some(keep @ KeepReason::Unmanaged)) => Some(Verdict::Keep(keep)),
            (Ok(()), shield) => {
                counted.entry(group_key(container)).or_default().push(index);
                shield.map(Verdict::Keep)
            }
        });
    }
    let limits = Limits::of(snapshot, counted, &policy.containers, &newest);
    first
        .into_iter()
        .enumerate()
        .map(|(index, verdict)| {
            verdict.unwrap_or_else(|| limits.verdict(index, snapshot, knowledge, &newest, &quiet))
        })
        .collect()
}

/// A pod's container by name.
type GroupKey<'a> = (Option<&'a PodUid>, &'a str);

fn group_key(container: &Container) -> GroupKey<'_> {
    (
        container.pod.as_ref().map(|pod| &pod.uid),
        container.name.as_str(),
    )
}

fn knowledge_of(knowledge: &Knowledge<'_>, pod: Option<&PodRef>) -> PodKnowledge {
    pod.map_or(PodKnowledge::Unknown, |pod| knowledge.get(&pod.uid))
}

/// Says whether a container is dead and old enough to be considered and counted; if not, why.
fn considered(
    snapshot: &Snapshot,
    policy: &Policy,
    container: &Container,
) -> Result<(), KeepReason> {
    let rules = &policy.containers;
    let since_creation = snapshot.age(container.created_at);
    let age = match container.state {
        ContainerState::Running => return Err(KeepReason::Running),
        ContainerState::Created if !at_least(since_creation, rules.created_grace) => {
            return Err(KeepReason::Starting);
        }
        ContainerState::Unknown if !rules.include_unknown => return Err(KeepReason::StateUnknown),
        // Neither has an exit to count from.
        ContainerState::Created | ContainerState::Unknown => Some(since_creation),
        ContainerState::Exited => match rules.age_from {
            AgeFrom::Created => Some(since_creation),
            // Nothing is older than its creation: after a clock step an exit can lie before it.
            AgeFrom::Finished => container
                .finished_at
                .map(|at| snapshot.age(at).min(since_creation)),
        },
    };
    match age {
        Some(age) if at_least(age, rules.min_age) => Ok(()),
        // When it exited is not known: it may have been just now.
        Some(_) | None => Err(KeepReason::TooYoung),
    }
}

/// Exactly the minimum is old enough, as for the kubelet; an age in the future never is.
pub(super) fn at_least(age: SignedDuration, minimum: Duration) -> bool {
    !age.is_negative() && SignedDuration::try_from(minimum).is_ok_and(|minimum| age >= minimum)
}

/// The records that the kubelet may need to know that a container has run: for each (pod UID, name),
/// whatever the state, the highest attempt and the latest creation.
pub(super) struct Newest<'a> {
    by_attempt: BTreeMap<GroupKey<'a>, (u32, Timestamp, &'a ContainerId, usize)>,
    by_creation: BTreeMap<GroupKey<'a>, (Timestamp, u32, &'a ContainerId, usize)>,
}

impl<'a> Newest<'a> {
    pub(super) fn of(containers: &'a [Container]) -> Self {
        let (mut by_attempt, mut by_creation) = (BTreeMap::new(), BTreeMap::new());
        for (index, container) in containers.iter().enumerate() {
            let key = group_key(container);
            let (attempt, created_at, id) =
                (container.attempt, container.created_at, &container.id);
            let this = (attempt, created_at, id, index);
            let best = by_attempt.entry(key).or_insert(this);
            *best = this.max(*best);
            let this = (created_at, attempt, id, index);
            let best = by_creation.entry(key).or_insert(this);
            *best = this.max(*best);
        }
        Self {
            by_attempt,
            by_creation,
        }
    }

    /// Returns the newest of the container's name: one record, or two.
    pub(super) fn beside(&self, container: &Container) -> BTreeSet<&'a str> {
        let key = group_key(container);
        let by_attempt = self.by_attempt.get(&key).map(|best| best.2.as_str());
        let by_creation = self.by_creation.get(&key).map(|best| best.2.as_str());
        by_attempt.into_iter().chain(by_creation).collect()
    }

    fn indexes(&self) -> BTreeSet<usize> {
        let by_attempt = self.by_attempt.values().map(|best| best.3);
        let by_creation = self.by_creation.values().map(|best| best.3);
        by_attempt.chain(by_creation).collect()
    }
}

/// What keeps a container whatever the limits ask.
struct Shields<'a> {
    protect: &'a Protect,
    sandboxes: BTreeMap<&'a PodSandboxId, &'a PodSandbox>,
}

impl<'a> Shields<'a> {
    fn new(snapshot: &'a Snapshot, protect: &'a Protect) -> Self {
        let sandboxes = snapshot
            .sandboxes
            .iter()
            .map(|sandbox| (&sandbox.id, sandbox))
            .collect();
        Self { protect, sandboxes }
    }

    fn over(&self, container: &Container) -> Option<KeepReason> {
        let Some(pod) = &container.pod else {
            return Some(KeepReason::Unmanaged);
        };
        if protects_pod(self.protect, pod) || self.protects_labels(container) {
            return Some(KeepReason::Protected);
        }
        None
    }

    /// The kubelet puts a pod's labels on its sandbox only. Without the sandbox's record they
    /// are not known, so where labels protect, that container stays.
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

/// Says whether the pod's namespace, or a label that names the pod, is protected; an unknown namespace
/// counts as protected as soon as any is.
pub(super) fn protects_pod(protect: &Protect, pod: &PodRef) -> bool {
    protect.has_label_of_pod(pod)
        || protect.namespaces.contains(pod.namespace.as_str())
        || (pod.namespace.is_empty() && !protect.namespaces.is_empty())
}

/// What the kubelet's two limits would take.
struct Limits<'a> {
    superseded: BTreeSet<usize>,
    over_cap: BTreeSet<usize>,
    /// The names of which the cap takes something.
    capped: BTreeSet<GroupKey<'a>>,
}

impl<'a> Limits<'a> {
    fn of(
        snapshot: &'a Snapshot,
        mut groups: BTreeMap<GroupKey<'a>, Vec<usize>>,
        rules: &ContainerPolicy,
        newest: &BTreeSet<usize>,
    ) -> Self {
        let containers = &snapshot.containers;
        for group in groups.values_mut() {
            group.sort_by_key(|&index| Reverse(oldest_first(containers, index)));
        }
        // Beyond the limit of its name stays beyond it, and not the newest stays not the newest, however
        // many more records there are: this holds on an incomplete look too.
        let superseded = trim(&mut groups, rules.max_per_container);
        if rules.max_per_container == Limit::AtMost(0) {
            // The kubelet would take all. What we keep of it as the newest still counts for the cap,
            // which is what may lift it.
            for &index in superseded.intersection(newest) {
                let Some(container) = containers.get(index) else {
                    continue;
                };
                groups.entry(group_key(container)).or_default().push(index);
            }
            for group in groups.values_mut() {
                group.sort_by_key(|&index| Reverse(oldest_first(containers, index)));
            }
        }
        let over_cap = match rules.max_dead {
            Limit::AtMost(max_dead) if snapshot.seen.is_all() => {
                over_cap(containers, groups, max_dead)
            }
            // What was not seen cannot be counted, nor what of it belongs to deleted pods.
            Limit::AtMost(_) | Limit::None => BTreeSet::new(),
        };
        let taken = over_cap.iter().filter_map(|&index| containers.get(index));
        Self {
            capped: taken.map(group_key).collect(),
            superseded,
            over_cap,
        }
    }

    fn verdict(
        &self,
        index: usize,
        snapshot: &Snapshot,
        knowledge: &Knowledge<'_>,
        newest: &BTreeSet<usize>,
        quiet: &Quiet<'_>,
    ) -> Verdict {
        let is_newest = newest.contains(&index);
        let superseded = self.superseded.contains(&index);
        if superseded && !is_newest {
            return Verdict::Remove(RemoveReason::Superseded);
        }
        let container = snapshot.containers.get(index);
        let pod = container.and_then(|container| container.pod.as_deref());
        let state = knowledge_of(knowledge, pod);
        // After a clock step one that is newest by its attempt can lie beyond `max_per_container`. It
        // would be within it, and count, as soon as the cap has taken later ones: it goes with them.
        let goes_along =
            superseded && container.is_some_and(|it| self.capped.contains(&group_key(it)));
        if (self.over_cap.contains(&index) || goes_along) && (!is_newest || state.is_finished()) {
            if is_newest && container.is_some_and(|it| !quiet.allows_of(it, state)) {
                return Verdict::Keep(KeepReason::TooYoung);
            }
            return Verdict::Remove(RemoveReason::OverCap);
        }
        Verdict::Keep(
            if is_newest && knowledge_of(knowledge, pod) == PodKnowledge::Absent {
                KeepReason::TooYoung
            } else if is_newest {
                KeepReason::Newest
            } else {
                KeepReason::WithinLimits
            },
        )
    }
}

/// Orders by creation, as the kubelet does; equal times by attempt, then by id.
fn oldest_first(containers: &[Container], index: usize) -> Option<impl Ord + '_> {
    containers
        .get(index)
        .map(|c| (c.created_at, c.attempt, &c.id))
}

/// Takes from each group what is beyond the limit, oldest first; groups are newest first.
fn trim(groups: &mut BTreeMap<GroupKey<'_>, Vec<usize>>, limit: Limit) -> BTreeSet<usize> {
    let Limit::AtMost(limit) = limit else {
        return BTreeSet::new();
    };
    let mut taken = BTreeSet::new();
    for group in groups.values_mut() {
        taken.extend(group.split_off(limit.min(group.len())));
    }
    groups.retain(|_, group| !group.is_empty());
    taken
}

/// The kubelet's node-wide limit: an equal share for each name first (rounded down, at least one),
/// then the oldest of all.
fn over_cap(
    containers: &[Container],
    mut groups: BTreeMap<GroupKey<'_>, Vec<usize>>,
    max_dead: usize,
) -> BTreeSet<usize> {
    let count: usize = groups.values().map(Vec::len).sum();
    if count <= max_dead {
        return BTreeSet::new();
    }
    let share = (max_dead / groups.len().max(1)).max(1);
    let mut taken = trim(&mut groups, Limit::AtMost(share));
    let mut left: Vec<usize> = groups.into_values().flatten().collect();
    let surplus = left.len().saturating_sub(max_dead);
    left.sort_by_key(|&index| oldest_first(containers, index));
    taken.extend(left.into_iter().take(surplus));
    taken
}
