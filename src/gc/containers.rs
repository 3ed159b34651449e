//! The verdict on each container.
//!
//! First it computes what the kubelet's limits would remove, then it takes the protected objects out. No
//! other object replaces a protected one, so the removals are always a part of what the kubelet would remove
//! under the same limits.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::age::at_least;
use super::index::{Index, Newest, Places};
use super::knowledge::Knowledge;
use super::quiet::Quiet;
use super::{AgeFrom, ContainerPolicy, Limit, PodKnowledge, Policy, Protect, Verdict};
use crate::model::{
    Container, ContainerState, KeepReason, PodRef, PodSandbox, PodSandboxId, RemoveReason, Snapshot,
};

/// Judges every container; the answer has one verdict for each, in the snapshot's order.
pub(super) fn judge(policy: &Policy, knowledge: &Knowledge<'_>, newest: &Newest) -> Vec<Verdict> {
    let index = knowledge.index();
    let snapshot = index.snapshot;
    let shielded = Shields::new(snapshot, &policy.protect);
    let quiet = Quiet::of(knowledge, policy);
    let mut first: Vec<Option<Verdict>> = Vec::with_capacity(snapshot.containers.len());
    let mut counted = Places::none(snapshot.containers.len());
    for (place, container) in snapshot.containers.iter().enumerate() {
        let pod = index.pod_of_container(place);
        let state = knowledge.at(pod);
        let gate = considered(snapshot, policy, container);
        let shield = shielded.over(container);
        first.push(match (gate, shield) {
            (Err(keep @ (KeepReason::Running | KeepReason::Starting)), _) => {
                Some(Verdict::Keep(keep))
            }
            (Err(keep), shield) => Some(Verdict::Keep(shield.unwrap_or(keep))),
            (Ok(()), shield) if state == PodKnowledge::Deleted => Some(match shield {
                Some(keep) => Verdict::Keep(keep),
                None if newest.has(place) && !quiet.allows(pod) => {
                    Verdict::Keep(KeepReason::TooYoung)
                }
                None => Verdict::Remove(RemoveReason::PodDeleted),
            }),
            // The kubelet removes objects without a pod first, so they never count for the limits.
            (Ok(()), Some(keep @ KeepReason::Unmanaged)) => Some(Verdict::Keep(keep)),
            (Ok(()), shield) => {
                counted.add(place);
                shield.map(Verdict::Keep)
            }
        });
    }
    let limits = Limits::of(index, &counted, &policy.containers, newest);
    first
        .into_iter()
        .enumerate()
        .map(|(place, verdict)| {
            verdict.unwrap_or_else(|| limits.verdict(place, knowledge, newest, &quiet))
        })
        .collect()
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
        // Neither has an exit.
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
        // Its exit time is unknown: it may have exited just now.
        Some(_) | None => Err(KeepReason::TooYoung),
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

    fn over(&self, container: &Container) -> Option<KeepReason> {
        let Some(pod) = &container.pod else {
            return Some(KeepReason::Unmanaged);
        };
        if protects_pod(self.protect, pod) || self.protects_labels(container) {
            return Some(KeepReason::Protected);
        }
        None
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
struct Limits {
    superseded: Places,
    over_cap: Places,
    /// The groups of which the cap removes something.
    capped: Places,
    /// The oldest of each group, if the policy keeps them. They count like any other, and nothing goes in their
    /// place.
    first: Places,
}

impl Limits {
    /// `counted` are the positions of the containers that count for the limits.
    fn of(index: &Index<'_>, counts: &Places, rules: &ContainerPolicy, newest: &Newest) -> Self {
        let snapshot = index.snapshot;
        let mut limits = Self {
            superseded: Places::none(snapshot.containers.len()),
            over_cap: Places::none(snapshot.containers.len()),
            capped: Places::none(index.groups().count()),
            first: Places::none(snapshot.containers.len()),
        };
        // A container beyond the limit of its name stays beyond it, and one that is not the newest stays so,
        // however many more records there are: this also holds on an incomplete look.
        let mut counted = by_group(index, |it| counts.has(it));
        if rules.keep_first {
            for group in counted.chunk_by(|a, b| index.group_of(*a) == index.group_of(*b)) {
                group
                    .last()
                    .into_iter()
                    .for_each(|it| limits.first.add(*it));
            }
        }
        let superseded = &mut limits.superseded;
        trim(index, &mut counted, rules.max_per_container, superseded);
        if rules.max_per_container == Limit::AtMost(0) {
            // The kubelet would remove all. The newest ones that we keep still count for the cap, which may
            // then remove them.
            counted = by_group(index, |it| limits.superseded.has(it) && newest.has(it));
        }
        match rules.max_dead {
            Limit::AtMost(max_dead) if snapshot.seen.is_all() => {
                limits.cap(index, counted, max_dead);
            }
            // Unseen records cannot be counted, nor assigned to deleted pods.
            Limit::AtMost(_) | Limit::None => {}
        }
        limits
    }

    /// The kubelet's node-wide limit: first an equal share for each name (rounded down, at least one), then
    /// the oldest of all.
    fn cap(&mut self, index: &Index<'_>, mut counted: Vec<usize>, max_dead: usize) {
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

    fn verdict(
        &self,
        place: usize,
        knowledge: &Knowledge<'_>,
        newest: &Newest,
        quiet: &Quiet<'_>,
    ) -> Verdict {
        let index = knowledge.index();
        let is_newest = newest.has(place);
        let pod = index.pod_of_container(place);
        let state = knowledge.at(pod);
        if self.first.has(place) && !is_newest && !state.is_finished() {
            return Verdict::Keep(KeepReason::WithinLimits);
        }
        let superseded = self.superseded.has(place);
        if superseded && !is_newest {
            return Verdict::Remove(RemoveReason::Superseded);
        }
        // After a clock step one that is newest by its attempt can lie beyond `max_per_container`. It would
        // be within it, and count, after the cap has removed later ones: so it is removed with them.
        let goes_along = superseded && self.capped.has(index.group_of(place));
        if (self.over_cap.has(place) || goes_along) && (!is_newest || state.is_finished()) {
            if is_newest && !quiet.allows(pod) {
                return Verdict::Keep(KeepReason::TooYoung);
            }
            return Verdict::Remove(RemoveReason::OverCap);
        }
        Verdict::Keep(if is_newest && state == PodKnowledge::Absent {
            KeepReason::TooYoung
        } else if is_newest {
            KeepReason::Newest
        } else {
            KeepReason::WithinLimits
        })
    }
}

/// Sorts positions group by group, newest first in each.
fn by_group(index: &Index<'_>, counts: impl Fn(usize) -> bool) -> Vec<usize> {
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
fn trim(index: &Index<'_>, places: &mut Vec<usize>, limit: Limit, taken: &mut Places) {
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
