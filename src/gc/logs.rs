//! The verdict on each entry of the log roots, and on the logs of removed containers.
//!
//! Never judges names without the kubelet's format, and never treats an unseen pod as gone: a directory needs
//! a complete list, a link needs the runtime's answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::age::at_least;
use super::containers::protects_pod;
use super::index::Places;
use super::knowledge::Knowledge;
use super::{Expected, PodKnowledge, Policy, Subject, Verdict};
use crate::model::{
    Container, ContainerId, ContainerState, Coverage, KeepReason, LinkTarget, LinkedContainer,
    LogLink, PodLogDir, PodRef, PodUid, RemoveReason, RemovedContainer, Snapshot, Target,
    container_id_of, log_dir_name, pod_uid_of,
};

/// Something below the log roots that gets a verdict.
pub(super) enum LogObject<'a> {
    /// A pod's directory.
    Dir(&'a PodLogDir),
    /// A link to a container's log.
    Link(&'a LogLink),
    /// The log of a container that was removed, or is removed earlier in the same pass.
    Container(RemovedContainer),
}

/// Judges every entry, and the logs of containers that were removed (`snapshot.removed`) or are planned to be
/// removed earlier in the same pass (`gone`).
pub(super) fn judge<'a>(
    policy: &Policy,
    knowledge: &Knowledge<'a>,
    gone: &Places,
    mut each: impl FnMut(LogObject<'a>, Verdict),
) {
    let snapshot = knowledge.index().snapshot;
    // Only links ask for them.
    let asked = !snapshot.logs.links.is_empty();
    let rows = snapshot.containers.iter().filter(|_| asked);
    let states: States<'_> = rows.map(|it| (&it.id, it.state)).collect();
    for dir in &snapshot.logs.dirs {
        let verdict = dir_verdict(policy, knowledge, dir);
        each(LogObject::Dir(dir), if_enabled(policy, verdict));
    }
    for link in &snapshot.logs.links {
        let verdict = link_verdict(&states, policy, link);
        each(LogObject::Link(link), if_enabled(policy, verdict));
    }
    // While logs are switched off, passes do not note removed containers.
    if !policy.logs.enabled || snapshot.removed.is_empty() && gone.iter().next().is_none() {
        return;
    }
    // After a manual removal of a record two containers can share a log file; it is removed once.
    let mut seen = BTreeSet::new();
    let (mut going, mut staying) = (Vec::new(), Vec::new());
    for (place, container) in snapshot.containers.iter().enumerate() {
        if gone.has(place) {
            going.push(container);
        } else {
            staying.push(container);
        }
    }
    let dirs = snapshot.logs.dir_names();
    let planned = going
        .into_iter()
        .filter_map(|container| foreseen(&dirs, policy, container));
    let writers = Writers::of(snapshot, &staying);
    for container in snapshot.removed.iter().cloned().chain(planned) {
        if seen.insert(container.log_path.clone()) {
            let verdict = container_verdict(&writers, policy, &container);
            each(LogObject::Container(container), verdict);
        }
    }
}

/// The remaining containers, by id and by log file.
struct Writers<'a> {
    /// There may be unseen ones.
    unseen: bool,
    ids: BTreeSet<&'a ContainerId>,
    files: BTreeSet<(&'a PodUid, &'a str, u32)>,
}

impl<'a> Writers<'a> {
    fn of(snapshot: &Snapshot, staying: &[&'a Container]) -> Self {
        let file = |it: &&'a Container| {
            let pod = it.pod.as_ref()?;
            Some((&pod.uid, it.name.as_str(), it.attempt))
        };
        Self {
            unseen: snapshot.seen.containers != Coverage::Whole,
            ids: staying.iter().map(|it| &it.id).collect(),
            files: staying.iter().filter_map(file).collect(),
        }
    }

    /// Says whether the container is still there, or another record writes to the same file.
    fn include(&self, container: &RemovedContainer) -> bool {
        let file = (
            &container.pod.uid,
            container.name.as_str(),
            container.attempt,
        );
        self.unseen || self.ids.contains(&container.id) || self.files.contains(&file)
    }
}

/// The containers' states, by id.
type States<'a> = BTreeMap<&'a ContainerId, ContainerState>;

fn dir_verdict(policy: &Policy, knowledge: &Knowledge<'_>, dir: &PodLogDir) -> Verdict {
    let Some(pod) = pod_of_dir(&dir.name).filter(|_| dir.is_dir) else {
        return Verdict::Keep(KeepReason::ForeignName);
    };
    if protects_pod(&policy.protect, &pod) {
        return Verdict::Keep(KeepReason::Protected);
    }
    let index = knowledge.index();
    if index.pod(&pod.uid).is_some() {
        return Verdict::Keep(KeepReason::HasContainers);
    }
    // Something of the pod may exist unseen.
    if !index.snapshot.seen.is_all() {
        return Verdict::Keep(KeepReason::PodsUnknown);
    }
    match knowledge.get_or_absent(&pod.uid, dir.modified_at) {
        PodKnowledge::Active | PodKnowledge::Terminated => Verdict::Keep(KeepReason::PodExists),
        PodKnowledge::Assumed | PodKnowledge::Unknown => Verdict::Keep(KeepReason::PodsUnknown),
        PodKnowledge::Absent => Verdict::Keep(KeepReason::TooYoung),
        PodKnowledge::Deleted => {
            let old = |since| at_least(index.snapshot.age(since), policy.logs.grace);
            if old(dir.modified_at) && dir.orphan_since.is_some_and(old) {
                Verdict::Remove(RemoveReason::PodDeleted)
            } else {
                Verdict::Keep(KeepReason::TooYoung)
            }
        }
    }
}

fn link_verdict(states: &States<'_>, policy: &Policy, link: &LogLink) -> Verdict {
    let Some(id) = container_id_of(&link.name).filter(|_| link.is_link) else {
        return Verdict::Keep(KeepReason::ForeignName);
    };
    if protects_link(policy, &link.name) {
        return Verdict::Keep(KeepReason::Protected);
    }
    match link.target {
        LinkTarget::Exists | LinkTarget::Unknown => {
            return Verdict::Keep(KeepReason::TargetExists);
        }
        LinkTarget::Missing => {}
    }
    // A rotation renames the log and reopens it a moment later: for that moment the link of a running
    // container is dead.
    let container = match states.get(&id) {
        Some(ContainerState::Exited) => LinkedContainer::Exited,
        Some(ContainerState::Created | ContainerState::Running | ContainerState::Unknown) => {
            LinkedContainer::Lives
        }
        None => link.container,
    };
    match container {
        LinkedContainer::NotAsked => Verdict::Keep(KeepReason::NotAsked),
        LinkedContainer::Lives => Verdict::Keep(KeepReason::HasContainers),
        LinkedContainer::NotFound | LinkedContainer::Exited => {
            Verdict::Remove(RemoveReason::DeadLink)
        }
    }
}

/// The namespace is the second part of the name; if it cannot be found, any protection counts.
fn protects_link(policy: &Policy, name: &str) -> bool {
    let namespaces = &policy.protect.namespaces;
    let parts: Vec<&str> = name.split('_').collect();
    match parts.as_slice() {
        [_, namespace, _] => namespaces.contains(*namespace),
        _ => !namespaces.is_empty(),
    }
}

/// As for the kubelet, the log is removed with its container, whatever the pod's state.
fn container_verdict(
    writers: &Writers<'_>,
    policy: &Policy,
    container: &RemovedContainer,
) -> Verdict {
    if !lies_in_pods_dir(policy, container) {
        return Verdict::Keep(KeepReason::ForeignName);
    }
    if protects_pod(&policy.protect, &container.pod) {
        return Verdict::Keep(KeepReason::Protected);
    }
    if writers.include(container) {
        return Verdict::Keep(KeepReason::HasContainers);
    }
    Verdict::Remove(RemoveReason::ContainerRemoved)
}

/// Only a file in the directory of that pod is its log, whatever path a runtime names.
fn lies_in_pods_dir(policy: &Policy, container: &RemovedContainer) -> bool {
    let below = log_dir_name(&container.pod)
        .zip(policy.logs.pods_root.to_str())
        .and_then(|(dir, root)| {
            let root = root.trim_end_matches('/');
            container.log_path.strip_prefix(&format!("{root}/{dir}/"))
        });
    below.is_some_and(|below| {
        below
            .split('/')
            .all(|part| !["", ".", ".."].contains(&part) && !part.chars().any(char::is_control))
    })
}

/// Returns the expected log of a container that is about to be removed, by the kubelet's naming; the runtime
/// is asked for the path right before the removal. Without a directory of its pod there is no log.
fn foreseen(
    dirs: &BTreeSet<&str>,
    policy: &Policy,
    container: &Container,
) -> Option<RemovedContainer> {
    let pod = container.pod.clone()?;
    let root = policy.logs.pods_root.to_str()?.trim_end_matches('/');
    let (name, attempt) = (&container.name, container.attempt);
    let dir = log_dir_name(&pod).filter(|dir| dirs.contains(dir.as_str()))?;
    let log_path = format!("{root}/{dir}/{name}/{attempt}.log");
    Some(RemovedContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        attempt: container.attempt,
        pod,
        created_at: container.created_at,
        log_path: log_path.into(),
    })
}

fn if_enabled(policy: &Policy, verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Remove(_) if !policy.logs.enabled => Verdict::Keep(KeepReason::NotAsked),
        Verdict::Remove(_) | Verdict::Keep(_) => verdict,
    }
}

/// Returns an entry as plans show it, and what it is planned as; `None` for a foreign name.
pub(super) fn subject(
    snapshot: &Snapshot,
    knowledge: &Knowledge<'_>,
    log: LogObject<'_>,
) -> (Subject, Option<Expected>) {
    let (created_at, path) = match &log {
        LogObject::Dir(dir) => (dir.modified_at, dir.path.clone()),
        LogObject::Link(link) => (link.modified_at, link.path.clone()),
        LogObject::Container(container) => (container.created_at, container.log_path.clone()),
    };
    let (pod, expected) = match log {
        LogObject::Dir(dir) => {
            let pod = pod_of_dir(&dir.name);
            let expected = pod.as_ref().map(|pod| Expected::PodLogDir {
                uid: pod.uid.clone(),
                inode: dir.inode,
                modified_at: dir.modified_at,
            });
            (pod.map(Arc::new), expected)
        }
        LogObject::Link(link) => (None, container_id_of(&link.name).map(Expected::LogLink)),
        LogObject::Container(container) => (
            Some(container.pod.clone()),
            Some(Expected::ContainerLog(Box::new(container))),
        ),
    };
    let subject = Subject {
        target: Target::Logs,
        name: path.rsplit('/').next().unwrap_or_default().into(),
        id: path,
        pod_state: pod.as_ref().map_or(PodKnowledge::Unknown, |pod| {
            knowledge.get_or_absent(&pod.uid, created_at)
        }),
        pod,
        attempt: 0,
        created_at,
        age_seconds: snapshot.age(created_at).as_secs().max(0),
        image: None,
    };
    (subject, expected)
}

fn pod_of_dir(dir_name: &str) -> Option<PodRef> {
    let uid = pod_uid_of(dir_name)?;
    let mut parts = dir_name.split('_');
    Some(PodRef {
        uid,
        namespace: parts.next()?.into(),
        name: parts.next()?.into(),
    })
}
