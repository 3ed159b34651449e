//! The verdict on each pod sandbox.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::containers::{at_least, protects_pod};
use super::knowledge::Knowledge;
use super::quiet::Quiet;
use super::{KeepReason, Limit, PodKnowledge, Policy, RemoveReason, Verdict};
use crate::model::{
    Container, ContainerId, Coverage, PodSandbox, PodSandboxId, PodSandboxState, PodUid, Snapshot,
};

/// Judges every sandbox; the answer has one verdict for each, in the snapshot's order. Containers in
/// `gone` are taken for removed already: a plan for both targets says what one pass would do.
pub(super) fn judge(
    snapshot: &Snapshot,
    policy: &Policy,
    knowledge: &Knowledge<'_>,
    gone: &BTreeSet<&ContainerId>,
) -> Vec<Verdict> {
    let named = named(snapshot, gone);
    let newest = Newest::of(&snapshot.sandboxes).indexes();
    let quiet = Quiet::of(snapshot, policy);
    let mut first: Vec<Option<Verdict>> = Vec::with_capacity(snapshot.sandboxes.len());
    let mut counted = Vec::new();
    for (index, sandbox) in snapshot.sandboxes.iter().enumerate() {
        let verdict = match considered(snapshot, policy, sandbox, &named) {
            Err(keep) => Some(Verdict::Keep(keep)),
            Ok(pod) => by_pod(pod, knowledge, newest.contains(&index), &quiet),
        };
        // What stays protected counts for the cap and is not made up for by another.
        let shielded = verdict == Some(Verdict::Keep(KeepReason::Protected));
        let dead = is_dead(snapshot, policy, sandbox, &named);
        if dead && (verdict.is_none() || shielded) {
            counted.push(index);
        }
        first.push(verdict);
    }
    let max_dead = if snapshot.seen.is_all() {
        policy.sandboxes.max_dead
    } else {
        Limit::None
    };
    let over_cap = over_cap(&snapshot.sandboxes, counted, max_dead);
    let judged = snapshot.sandboxes.iter().enumerate().zip(first);
    judged
        .map(|((index, sandbox), verdict)| {
            let verdict = verdict
                .unwrap_or_else(|| by_cap(sandbox, knowledge, over_cap.contains(&index), &quiet));
            unless_quarantined(snapshot, sandbox, verdict)
        })
        .collect()
}

/// Finds the sandboxes that containers name. One that names none may be in any sandbox of its pod; without
/// a pod, in any at all.
fn named<'a>(snapshot: &'a Snapshot, gone: &BTreeSet<&ContainerId>) -> BTreeSet<&'a PodSandboxId> {
    let stays = |it: &&Container| !gone.contains(&it.id);
    let mut named = BTreeSet::new();
    for container in snapshot.containers.iter().filter(stays) {
        if !container.sandbox_id.is_stand_in() {
            named.insert(&container.sandbox_id);
            continue;
        }
        let may_hold = |sandbox: &&PodSandbox| match (&container.pod, &sandbox.pod) {
            (Some(pod), Some(of)) => pod.uid == of.uid,
            (None, _) | (_, None) => true,
        };
        let sandboxes = snapshot.sandboxes.iter().filter(may_hold);
        named.extend(sandboxes.map(|sandbox| &sandbox.id));
    }
    named
}

/// Says whether a sandbox is one that could go at all, and of which pod; if not, why.
fn considered<'a>(
    snapshot: &Snapshot,
    policy: &Policy,
    sandbox: &'a PodSandbox,
    named: &BTreeSet<&PodSandboxId>,
) -> Result<&'a PodUid, KeepReason> {
    if sandbox.state == PodSandboxState::Ready {
        return Err(KeepReason::Ready);
    }
    // On an incomplete list of containers any sandbox may still have one.
    if named.contains(&sandbox.id) || snapshot.seen.containers != Coverage::Whole {
        return Err(KeepReason::HasContainers);
    }
    let Some(pod) = &sandbox.pod else {
        return Err(KeepReason::Unmanaged);
    };
    let protect = &policy.protect;
    if protects_pod(protect, pod) || protect.has_label(&sandbox.labels) {
        return Err(KeepReason::Protected);
    }
    if !at_least(snapshot.age(sandbox.created_at), policy.sandboxes.min_age) {
        return Err(KeepReason::TooYoung);
    }
    Ok(&pod.uid)
}

fn is_dead(
    snapshot: &Snapshot,
    policy: &Policy,
    sandbox: &PodSandbox,
    named: &BTreeSet<&PodSandboxId>,
) -> bool {
    sandbox.state == PodSandboxState::NotReady
        && !named.contains(&sandbox.id)
        && at_least(snapshot.age(sandbox.created_at), policy.sandboxes.min_age)
}

/// What the pod alone decides; `None` leaves it to the cap.
fn by_pod(
    pod: &PodUid,
    knowledge: &Knowledge<'_>,
    is_newest: bool,
    quiet: &Quiet<'_>,
) -> Option<Verdict> {
    let state = knowledge.get(pod);
    match (state, is_newest) {
        (PodKnowledge::Deleted, true) if !quiet.allows(pod, state) => {
            Some(Verdict::Keep(KeepReason::TooYoung))
        }
        (PodKnowledge::Deleted, _) => Some(Verdict::Remove(RemoveReason::PodDeleted)),
        (_, false) => Some(Verdict::Remove(RemoveReason::Superseded)),
        (_, true) => None,
    }
}

/// The kubelet has no cap on sandboxes: ours takes only those of pods that are known to be over.
fn by_cap(
    sandbox: &PodSandbox,
    knowledge: &Knowledge<'_>,
    over_cap: bool,
    quiet: &Quiet<'_>,
) -> Verdict {
    let pod = sandbox.pod.as_ref().map(|pod| &pod.uid);
    let state = pod.map_or(PodKnowledge::Unknown, |pod| knowledge.get(pod));
    match (state, over_cap) {
        (PodKnowledge::Terminated | PodKnowledge::Assumed, true) => {
            if pod.is_some_and(|pod| quiet.allows(pod, state)) {
                Verdict::Remove(RemoveReason::OverCap)
            } else {
                Verdict::Keep(KeepReason::TooYoung)
            }
        }
        (PodKnowledge::Terminated | PodKnowledge::Assumed, false) => {
            Verdict::Keep(KeepReason::WithinLimits)
        }
        (PodKnowledge::Absent, _) => Verdict::Keep(KeepReason::TooYoung),
        (PodKnowledge::Active | PodKnowledge::Deleted | PodKnowledge::Unknown, _) => {
            Verdict::Keep(KeepReason::Newest)
        }
    }
}

fn unless_quarantined(snapshot: &Snapshot, sandbox: &PodSandbox, verdict: Verdict) -> Verdict {
    let until = snapshot.quarantine.get(&sandbox.id);
    match verdict {
        Verdict::Remove(_) if until.is_some_and(|until| *until > snapshot.taken_at) => {
            Verdict::Keep(KeepReason::Quarantined)
        }
        Verdict::Remove(_) | Verdict::Keep(_) => verdict,
    }
}

/// For each pod, the sandbox of the highest attempt and the one created last: after a clock step they
/// differ, and the kubelet may mean either.
pub(super) struct Newest<'a> {
    by_attempt: BTreeMap<&'a PodUid, (u32, Timestamp, &'a PodSandboxId, usize)>,
    by_creation: BTreeMap<&'a PodUid, (Timestamp, u32, &'a PodSandboxId, usize)>,
}

impl<'a> Newest<'a> {
    pub(super) fn of(sandboxes: &'a [PodSandbox]) -> Self {
        let (mut by_attempt, mut by_creation) = (BTreeMap::new(), BTreeMap::new());
        for (index, sandbox) in sandboxes.iter().enumerate() {
            let Some(pod) = &sandbox.pod else { continue };
            let (attempt, created_at, id) = (sandbox.attempt, sandbox.created_at, &sandbox.id);
            let this = (attempt, created_at, id, index);
            let best = by_attempt.entry(&pod.uid).or_insert(this);
            *best = this.max(*best);
            let this = (created_at, attempt, id, index);
            let best = by_creation.entry(&pod.uid).or_insert(this);
            *best = this.max(*best);
        }
        Self {
            by_attempt,
            by_creation,
        }
    }

    /// Returns the newest of the sandbox's pod: one record, or two; none without a pod.
    pub(super) fn beside(&self, sandbox: &PodSandbox) -> BTreeSet<&'a str> {
        let Some(pod) = &sandbox.pod else {
            return BTreeSet::new();
        };
        let by_attempt = self.by_attempt.get(&pod.uid).map(|best| best.2.as_str());
        let by_creation = self.by_creation.get(&pod.uid).map(|best| best.2.as_str());
        by_attempt.into_iter().chain(by_creation).collect()
    }

    fn indexes(&self) -> BTreeSet<usize> {
        let by_attempt = self.by_attempt.values().map(|best| best.3);
        let by_creation = self.by_creation.values().map(|best| best.3);
        by_attempt.chain(by_creation).collect()
    }
}

fn over_cap(sandboxes: &[PodSandbox], mut counted: Vec<usize>, max_dead: Limit) -> BTreeSet<usize> {
    let Limit::AtMost(max_dead) = max_dead else {
        return BTreeSet::new();
    };
    let surplus = counted.len().saturating_sub(max_dead);
    counted.sort_by_key(|&index| {
        sandboxes
            .get(index)
            .map(|s| (s.created_at, s.attempt, &s.id))
    });
    counted.into_iter().take(surplus).collect()
}
