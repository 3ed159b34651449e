//! What the contract allows to believe about a pod, and which record is its newest: written plainly, without
//! code of the planner.

use crisweep::gc::Policy;
use crisweep::model::{
    ConfigSource, Container, ContainerState, PodSandbox, PodSandboxState, PodUid, Pods,
    PodsUnknown, Snapshot,
};
use jiff::{SignedDuration, Timestamp};

fn containers<'a>(snapshot: &'a Snapshot, uid: &'a PodUid) -> impl Iterator<Item = &'a Container> {
    snapshot
        .containers
        .iter()
        .filter(move |it| it.pod.as_ref().is_some_and(|pod| pod.uid == *uid))
}

fn sandboxes<'a>(snapshot: &'a Snapshot, uid: &'a PodUid) -> impl Iterator<Item = &'a PodSandbox> {
    snapshot
        .sandboxes
        .iter()
        .filter(move |it| it.pod.as_ref().is_some_and(|pod| pod.uid == *uid))
}

fn lives(snapshot: &Snapshot, uid: &PodUid) -> bool {
    containers(snapshot, uid).any(|container| container.state == ContainerState::Running)
        || sandboxes(snapshot, uid).any(|sandbox| sandbox.state == PodSandboxState::Ready)
}

/// The list has every pod that lives, or that may.
fn is_complete(snapshot: &Snapshot, policy: &Policy) -> bool {
    let Pods::Known(list) = &snapshot.pods else {
        return false;
    };
    let may_run = |uid: &PodUid| {
        !policy.containers.include_unknown
            && containers(snapshot, uid).any(|it| it.state == ContainerState::Unknown)
    };
    let of_containers = snapshot.containers.iter().filter_map(|it| it.pod.as_ref());
    let of_sandboxes = snapshot.sandboxes.iter().filter_map(|it| it.pod.as_ref());
    of_containers.chain(of_sandboxes).all(|pod| {
        list.pods.contains_key(&pod.uid) || !lives(snapshot, &pod.uid) && !may_run(&pod.uid)
    })
}

/// The pod's source at the kubelet; `None` if the statements differ.
fn config_source(snapshot: &Snapshot, uid: &PodUid) -> Option<ConfigSource> {
    let history = snapshot.pod_history.get(uid);
    let mut said: Vec<ConfigSource> = sandboxes(snapshot, uid)
        .filter_map(|sandbox| sandbox.config_source)
        .chain(history.and_then(|history| history.config_source))
        .collect();
    said.dedup();
    match said[..] {
        [] if uid.as_str().contains('-') => Some(ConfigSource::Api),
        [] => Some(ConfigSource::File),
        [source] => Some(source),
        _ => None,
    }
}

pub(crate) fn is_deleted(snapshot: &Snapshot, policy: &Policy, uid: &PodUid) -> bool {
    let Pods::Known(list) = &snapshot.pods else {
        return false;
    };
    let Some(source) = config_source(snapshot, uid) else {
        return false;
    };
    let peers = list.pods.values().filter(|pod| pod.config_source == source);
    if source != ConfigSource::Api && (list.by_mirrors || source == ConfigSource::Other) {
        return false;
    }
    let ready = |it: &PodSandbox| it.pod.is_some() && it.state == PodSandboxState::Ready;
    let booted = snapshot.uptime.as_secs() < 900 && !snapshot.sandboxes.iter().any(ready);
    let history = snapshot.pod_history.get(uid);
    let absent_for = history
        .and_then(|history| history.absent_since)
        .map(|since| snapshot.taken_at.duration_since(since));
    let settle = SignedDuration::try_from(policy.pods.settle).unwrap();
    let long_absent = settle.is_zero() || absent_for.is_some_and(|age| age >= settle);
    let absent = !list.pods.contains_key(uid) && long_absent && !booted;
    absent && is_complete(snapshot, policy) && peers.count() > 0
}

/// The pod is known, or by the operator's setting assumed, to be finished, but not deleted.
pub(crate) fn is_finished(snapshot: &Snapshot, policy: &Policy, uid: &PodUid) -> bool {
    if lives(snapshot, uid) || config_source(snapshot, uid) != Some(ConfigSource::Api) {
        return false;
    }
    if let Pods::Known(list) = &snapshot.pods {
        match list.pods.get(uid) {
            Some(pod) if pod.is_static() || !pod.finished => return false,
            Some(_) if is_complete(snapshot, policy) => return true,
            _ => {}
        }
    }
    let Some(after) = policy.assume_finished_after else {
        return false;
    };
    let after = SignedDuration::try_from(after).unwrap();
    let long_ago = |at: Timestamp| snapshot.taken_at.duration_since(at) > after;
    let seen = snapshot.last_exits.get(uid);
    snapshot.pods != Pods::Unknown(PodsUnknown::Settling)
        && (seen.is_some() || containers(snapshot, uid).count() > 0)
        && seen.is_none_or(|at| long_ago(*at))
        && containers(snapshot, uid).all(|container| {
            container.state == ContainerState::Exited && container.finished_at.is_some_and(long_ago)
        })
}

/// No other record of the pod's container has a higher attempt, or none was created later.
pub(crate) fn is_newest_container(snapshot: &Snapshot, it: &Container) -> bool {
    let Some(pod) = &it.pod else { return false };
    let others = || {
        containers(snapshot, &pod.uid).filter(|other| other.name == it.name && other.id != it.id)
    };
    let by_attempt = |c: &Container| (c.attempt, c.created_at, c.id.clone());
    let by_creation = |c: &Container| (c.created_at, c.attempt, c.id.clone());
    others().all(|other| by_attempt(other) < by_attempt(it))
        || others().all(|other| by_creation(other) < by_creation(it))
}

/// The same for the pod's sandboxes.
pub(crate) fn is_newest_sandbox(snapshot: &Snapshot, it: &PodSandbox) -> bool {
    let Some(pod) = &it.pod else { return false };
    let others = || sandboxes(snapshot, &pod.uid).filter(|other| other.id != it.id);
    let by_attempt = |s: &PodSandbox| (s.attempt, s.created_at, s.id.clone());
    let by_creation = |s: &PodSandbox| (s.created_at, s.attempt, s.id.clone());
    others().all(|other| by_attempt(other) < by_attempt(it))
        || others().all(|other| by_creation(other) < by_creation(it))
}
