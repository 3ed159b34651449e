//! The verdict on each pod sandbox.

use super::age::at_least;
use super::containers::protects_pod;
use super::index::{Ages, Index, Newest, Places};
use super::knowledge::Knowledge;
use super::quiet::Quiet;
use super::{Limit, PodKnowledge, Policy, Verdict};
use crate::model::{
    Coverage, KeepReason, Numbering, PodSandbox, PodSandboxState, RemoveReason, Snapshot,
};

/// Judges every sandbox; returns one verdict for each, in the snapshot's order. Containers in `gone` count as
/// removed: a plan for both targets shows what one pass would do.
pub(super) fn judge(
    policy: &Policy,
    knowledge: &Knowledge<'_>,
    newest: &Newest,
    gone: &Places,
) -> Vec<Verdict> {
    let index = knowledge.index();
    let snapshot = index.snapshot;
    let named = named(index, gone);
    let quiet = Quiet::of(knowledge, policy);
    let mut first: Vec<Option<Verdict>> = Vec::with_capacity(snapshot.sandboxes.len());
    let mut counted = Vec::new();
    for (place, sandbox) in snapshot.sandboxes.iter().enumerate() {
        let is_named = named.has(place);
        let pod = index.pod_of_sandbox(place);
        let verdict = match considered(snapshot, policy, sandbox, is_named) {
            Err(keep) => Some(Verdict::Keep(keep)),
            Ok(()) => by_pod(pod, knowledge, newest.has(place), &quiet),
        };
        // A protected sandbox counts for the cap, and no other replaces it.
        let shielded = verdict == Some(Verdict::Keep(KeepReason::Protected));
        let dead = !is_named && is_dead(snapshot, policy, sandbox);
        if dead && (verdict.is_none() || shielded) {
            counted.push(place);
        }
        first.push(verdict);
    }
    let max_dead = if snapshot.seen.is_all() {
        policy.sandboxes.max_dead
    } else {
        Limit::None
    };
    let over_cap = over_cap(&index.sandboxes, counted, max_dead);
    let judged = snapshot.sandboxes.iter().enumerate().zip(first);
    judged
        .map(|((place, sandbox), verdict)| {
            let pod = index.pod_of_sandbox(place);
            let verdict =
                verdict.unwrap_or_else(|| by_cap(pod, knowledge, over_cap.has(place), &quiet));
            unless_quarantined(snapshot, sandbox, verdict)
        })
        .collect()
}

/// Finds the sandboxes that containers name. A container without a sandbox id may be in any sandbox of its
/// pod; without a pod, in any sandbox at all.
fn named(index: &Index<'_>, gone: &Places) -> Places {
    let Snapshot {
        containers,
        sandboxes,
        ..
    } = index.snapshot;
    let of_sandboxes = sandboxes.iter().map(|it| Some(it.id.as_str()));
    let of_containers = containers.iter().map(|it| Some(it.sandbox_id.as_str()));
    let ids = Numbering::of(of_sandboxes.chain(of_containers));
    let mut named_ids = Places::none(ids.texts().len());
    // The pods of containers without a sandbox id; `None`: any pod.
    let mut astray: Vec<Option<usize>> = Vec::new();
    for (place, container) in containers.iter().enumerate() {
        if gone.has(place) {
            continue;
        }
        if container.sandbox_id.is_stand_in() {
            astray.push(index.pod_of_container(place));
        } else if let Some(id) = ids.at(sandboxes.len() + place) {
            named_ids.add(id);
        }
    }
    astray.sort_unstable();
    let may_hold_astray = |pod: Option<usize>| {
        !astray.is_empty()
            && (pod.is_none()
                || astray.first() == Some(&None)
                || astray.binary_search(&pod).is_ok())
    };
    let mut named = Places::none(sandboxes.len());
    for place in 0..sandboxes.len() {
        let is_named = ids.at(place).is_some_and(|id| named_ids.has(id));
        if is_named || may_hold_astray(index.pod_of_sandbox(place)) {
            named.add(place);
        }
    }
    named
}

/// Says whether a sandbox can be removed at all; if not, why.
fn considered(
    snapshot: &Snapshot,
    policy: &Policy,
    sandbox: &PodSandbox,
    is_named: bool,
) -> Result<(), KeepReason> {
    if sandbox.state == PodSandboxState::Ready {
        return Err(KeepReason::Ready);
    }
    // On an incomplete list of containers any sandbox may have one.
    if is_named || snapshot.seen.containers != Coverage::Whole {
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
    Ok(())
}

fn is_dead(snapshot: &Snapshot, policy: &Policy, sandbox: &PodSandbox) -> bool {
    sandbox.state == PodSandboxState::NotReady
        && at_least(snapshot.age(sandbox.created_at), policy.sandboxes.min_age)
}

/// Decides by the pod alone; `None` leaves it to the cap.
fn by_pod(
    pod: Option<usize>,
    knowledge: &Knowledge<'_>,
    is_newest: bool,
    quiet: &Quiet<'_>,
) -> Option<Verdict> {
    match (knowledge.at(pod), is_newest) {
        (PodKnowledge::Deleted, true) if !quiet.allows(pod) => {
            Some(Verdict::Keep(KeepReason::TooYoung))
        }
        (PodKnowledge::Deleted, _) => Some(Verdict::Remove(RemoveReason::PodDeleted)),
        (_, false) => Some(Verdict::Remove(RemoveReason::Superseded)),
        (_, true) => None,
    }
}

/// The kubelet has no cap on sandboxes: ours applies only to pods that are known to be finished.
fn by_cap(
    pod: Option<usize>,
    knowledge: &Knowledge<'_>,
    over_cap: bool,
    quiet: &Quiet<'_>,
) -> Verdict {
    match (knowledge.at(pod), over_cap) {
        (PodKnowledge::Terminated | PodKnowledge::Assumed, true) => {
            if quiet.allows(pod) {
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

fn over_cap(ages: &Ages, mut counted: Vec<usize>, max_dead: Limit) -> Places {
    let mut taken = Places::none(ages.len());
    let Limit::AtMost(max_dead) = max_dead else {
        return taken;
    };
    let surplus = counted.len().saturating_sub(max_dead);
    counted.sort_by_key(|it| ages.at(*it).by_creation);
    for &place in counted.iter().take(surplus) {
        taken.add(place);
    }
    taken
}
