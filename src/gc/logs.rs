//! The verdict on each entry of the log roots, and on the logs of containers that went.

use std::collections::BTreeSet;

use super::knowledge::Knowledge;
use super::{Expected, KeepReason, PodKnowledge, Policy, Subject, Target, Verdict};
use crate::model::{
    ContainerId, LogLink, Logs, PodLogDir, PodRef, PodUid, RemovedContainer, Snapshot,
    container_id_of, pod_uid_of,
};

/// Something below the log roots that gets a verdict.
pub(super) enum LogObject<'a> {
    /// A pod's directory.
    Dir(&'a PodLogDir),
    /// A link to a container's log.
    Link(&'a LogLink),
    /// The log of a container that went, or that goes earlier in the same pass.
    Container(RemovedContainer),
}

/// Judges every entry; containers in `gone` are taken for removed already.
pub(super) fn judge<'a>(
    snapshot: &'a Snapshot,
    _policy: &Policy,
    _knowledge: &Knowledge<'_>,
    _gone: &BTreeSet<&ContainerId>,
    mut each: impl FnMut(LogObject<'a>, Verdict),
) {
    let Logs::Known(tree) = &snapshot.logs else {
        return;
    };
    for dir in &tree.dirs {
        each(LogObject::Dir(dir), Verdict::Keep(KeepReason::PodsUnknown));
    }
    for link in &tree.links {
        each(LogObject::Link(link), Verdict::Keep(KeepReason::NotAsked));
    }
}

/// Returns an entry as plans show it, and what it is planned as: nothing for a foreign name.
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
            let (uid, modified_at) = (pod_uid_of(&dir.name), dir.modified_at);
            let pod = uid.map(|uid| pod_of(&dir.name, uid));
            let expected = pod.clone().map(|pod| Expected::PodLogDir {
                uid: pod.uid,
                modified_at,
            });
            (pod, expected)
        }
        LogObject::Link(link) => (None, container_id_of(&link.name).map(Expected::LogLink)),
        LogObject::Container(container) => (
            Some(container.pod.clone()),
            Some(Expected::ContainerLog(container)),
        ),
    };
    let subject = Subject {
        target: Target::Logs,
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        id: path,
        pod_state: pod
            .as_ref()
            .map_or(PodKnowledge::Unknown, |pod| knowledge.get(&pod.uid)),
        pod,
        attempt: 0,
        created_at,
        age_seconds: snapshot.age(created_at).as_secs().max(0),
        last_used_at: None,
        size_bytes: None,
    };
    (subject, expected)
}

fn pod_of(dir_name: &str, uid: PodUid) -> PodRef {
    let mut parts = dir_name.split('_').map(str::to_owned);
    PodRef {
        uid,
        namespace: parts.next().unwrap_or_default(),
        name: parts.next().unwrap_or_default(),
    }
}
