//! What may be believed of each pod: the pod source's answer, held against what the runtime shows.
//!
//! Never takes the runtime's word alone that a pod is over, except where the operator pulled the one
//! lever for it (`assume_finished_after`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{PodKnowledge, Policy};
use crate::model::{ContainerState, PodList, PodSandboxState, PodUid, Pods, PodsUnknown, Snapshot};

/// What is known of each pod that the runtime has something of.
#[derive(Debug)]
pub struct Knowledge<'a> {
    snapshot: &'a Snapshot,
    /// The list may lack a pod that lives.
    unproven: bool,
    states: BTreeMap<&'a PodUid, PodKnowledge>,
    incomplete: Option<&'a PodUid>,
}

impl<'a> Knowledge<'a> {
    /// Judges every pod of the snapshot.
    pub fn of(snapshot: &'a Snapshot, policy: &Policy) -> Self {
        let signs = signs_of_life(snapshot);
        let incomplete = missing_live_pod(snapshot, &signs);
        // A pod that lives unseen could be the one that the source's list lacks.
        let unproven = incomplete.is_some() || !snapshot.seen.is_all_that_lives();
        let states = signs
            .iter()
            .map(|(uid, sign)| (*uid, judge(snapshot, policy, uid, sign, unproven)))
            .collect();
        Self {
            snapshot,
            unproven,
            states,
            incomplete,
        }
    }

    /// Returns what is known of a pod; unknown if the runtime has nothing of it.
    pub fn get(&self, uid: &PodUid) -> PodKnowledge {
        self.states
            .get(uid)
            .copied()
            .unwrap_or(PodKnowledge::Unknown)
    }

    /// Returns what is known of a pod that the runtime may have nothing of; `youngest` is the latest
    /// that is known of it otherwise. An assumption is never made of a pod without any container.
    pub fn get_or_absent(&self, uid: &PodUid, youngest: Timestamp) -> PodKnowledge {
        if let Some(state) = self.states.get(uid) {
            return *state;
        }
        let signs = Signs {
            youngest: Some(youngest),
            ..Signs::default()
        };
        let told = match &self.snapshot.pods {
            Pods::Known(list) => told(self.snapshot, list, uid, &signs, self.unproven),
            Pods::Unknown(_) => None,
        };
        told.unwrap_or(PodKnowledge::Unknown)
    }

    /// Returns a pod that lives here although the source's list lacks it: proof that the list is
    /// incomplete.
    pub fn missing_from_list(&self) -> Option<&'a PodUid> {
        self.incomplete
    }
}

/// What the runtime shows of one pod.
#[derive(Debug, Default)]
struct Signs {
    ready_sandbox: bool,
    /// Of its containers; one that nobody knows may be running.
    states: BTreeSet<ContainerState>,
    /// Exited at a time that nobody knows.
    unknown_exit: bool,
    last_exit: Option<Timestamp>,
    /// The latest creation of anything of it.
    youngest: Option<Timestamp>,
}

impl Signs {
    fn lives(&self) -> bool {
        self.ready_sandbox || self.states.contains(&ContainerState::Running)
    }

    /// Nothing of it lives, nor may live unseen.
    fn is_quiet(&self) -> bool {
        !self.lives() && !self.states.contains(&ContainerState::Unknown)
    }
}

fn signs_of_life(snapshot: &Snapshot) -> BTreeMap<&PodUid, Signs> {
    let mut signs: BTreeMap<&PodUid, Signs> = BTreeMap::new();
    for sandbox in &snapshot.sandboxes {
        let Some(pod) = &sandbox.pod else { continue };
        let sign = signs.entry(&pod.uid).or_default();
        sign.ready_sandbox |= sandbox.state == PodSandboxState::Ready;
        sign.youngest = sign.youngest.max(Some(sandbox.created_at));
    }
    for container in &snapshot.containers {
        let Some(pod) = &container.pod else { continue };
        let sign = signs.entry(&pod.uid).or_default();
        sign.states.insert(container.state);
        sign.youngest = sign.youngest.max(Some(container.created_at));
        match container.finished_at {
            Some(at) => sign.last_exit = sign.last_exit.max(Some(at)),
            None => sign.unknown_exit |= container.state == ContainerState::Exited,
        }
    }
    for (uid, at) in &snapshot.last_exits {
        if let Some(sign) = signs.get_mut(uid) {
            sign.last_exit = sign.last_exit.max(Some(*at));
        }
    }
    signs
}

/// A pod with a ready sandbox or a running container that the list does not have: the list was
/// partial, so absence from it means nothing for any pod.
fn missing_live_pod<'a>(
    snapshot: &Snapshot,
    signs: &BTreeMap<&'a PodUid, Signs>,
) -> Option<&'a PodUid> {
    let Pods::Known(list) = &snapshot.pods else {
        return None;
    };
    signs
        .iter()
        .find(|(uid, sign)| sign.lives() && !list.pods.contains_key(**uid))
        .map(|(uid, _)| *uid)
}

fn judge(
    snapshot: &Snapshot,
    policy: &Policy,
    uid: &PodUid,
    signs: &Signs,
    unproven: bool,
) -> PodKnowledge {
    let told = match &snapshot.pods {
        Pods::Known(list) => told(snapshot, list, uid, signs, unproven),
        Pods::Unknown(_) => None,
    };
    match told {
        Some(state) => state,
        None if may_assume_finished(snapshot, policy, uid, signs) => PodKnowledge::Assumed,
        None => PodKnowledge::Unknown,
    }
}

/// What the list tells of a pod; `None` if nothing that can be built on.
fn told(
    snapshot: &Snapshot,
    list: &PodList,
    uid: &PodUid,
    signs: &Signs,
    unproven: bool,
) -> Option<PodKnowledge> {
    match list.pods.get(uid) {
        // The kubelet runs a finished static pod again at its next start.
        Some(pod) if pod.is_static || uid.is_static_shaped() => Some(PodKnowledge::Active),
        // Even a partial list is right about what it names.
        Some(pod) if !pod.finished => Some(PodKnowledge::Active),
        Some(_) if !signs.is_quiet() && !unproven => Some(PodKnowledge::Active),
        // Quiet only if nothing of it is missing.
        Some(_) if snapshot.seen.is_all() && !unproven => Some(PodKnowledge::Terminated),
        None if !unproven && names_same_source(list, uid) && !outlives(snapshot, signs, list) => {
            Some(PodKnowledge::Deleted)
        }
        Some(_) | None => None,
    }
}

/// A kubelet that started while the API server was down shows its static pods only, for ever: the
/// absence of an API pod counts only beside another API pod, of a static pod beside a static one.
/// Of static pods only the node itself can say that they are gone: the API server has mirrors alone.
fn names_same_source(list: &PodList, uid: &PodUid) -> bool {
    let is_static = uid.is_static_shaped();
    let peers = list.pods.values().any(|pod| pod.is_static == is_static);
    let is_new = if is_static {
        list.static_is_new
    } else {
        list.api_is_new
    };
    peers && !is_new && !(is_static && list.by_mirrors)
}

/// Something of the pod is younger than the list, or may be: the pod may have been born since, or, if
/// it is a static one, have come back under its old UID.
fn outlives(snapshot: &Snapshot, signs: &Signs, list: &PodList) -> bool {
    list.as_of.is_some_and(|as_of| {
        !snapshot.seen.is_all() || signs.youngest.is_none_or(|youngest| youngest >= as_of)
    })
}

fn may_assume_finished(snapshot: &Snapshot, policy: &Policy, uid: &PodUid, signs: &Signs) -> bool {
    let Some(after) = policy.assume_finished_after else {
        return false;
    };
    // What is missing of it may be alive, or have exited just now.
    if !snapshot.seen.is_all() {
        return false;
    }
    // A source that is about to answer is better than an assumption.
    if snapshot.pods == Pods::Unknown(PodsUnknown::Settling) || uid.is_static_shaped() {
        return false;
    }
    let starting = signs.states.contains(&ContainerState::Created);
    let quiet = signs.is_quiet() && !starting && !signs.unknown_exit;
    let Ok(after) = SignedDuration::try_from(after) else {
        return false;
    };
    quiet && signs.last_exit.is_some_and(|at| snapshot.age(at) > after)
}
