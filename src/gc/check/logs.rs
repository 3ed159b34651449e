//! Conditions for removing a log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use jiff::Timestamp;

use super::is_protected;
use super::node::CheckedNode;
use crate::gc::{Expected, Policy, Removal};
use crate::model::{
    ContainerState, Coverage, LinkTarget, LinkedContainer, LogLink, PodLogDir, PodRef, PodUid,
    Pods, RemoveReason, RemovedContainer, Target,
};

/// The entries of the log roots, by path, and the removed containers. Empty if no log is planned.
#[derive(Default)]
pub(super) struct LogIndex<'a> {
    dirs: BTreeMap<&'a str, &'a PodLogDir>,
    links: BTreeMap<&'a str, &'a LogLink>,
    went: BTreeMap<&'a str, &'a RemovedContainer>,
    /// Log files of remaining containers: UID, name, attempt.
    written: BTreeSet<(&'a PodUid, &'a str, u32)>,
}

impl<'a> LogIndex<'a> {
    pub(super) fn of(node: &CheckedNode<'a>, removals: &[Removal]) -> Self {
        if !removals.iter().any(|it| it.subject.target == Target::Logs) {
            return Self::default();
        }
        let logs = &node.snapshot.logs;
        let went = node.snapshot.removed.iter();
        let staying = node.containers.iter().filter(|it| it.facts.stays());
        let written = staying.filter_map(|it| {
            let pod = it.row.pod.as_ref()?;
            Some((&pod.uid, it.row.name.as_str(), it.row.attempt))
        });
        Self {
            dirs: logs.dirs.iter().map(|it| (it.path.as_str(), it)).collect(),
            links: logs.links.iter().map(|it| (it.path.as_str(), it)).collect(),
            went: went.map(|it| (it.id.as_str(), it)).collect(),
            written: written.collect(),
        }
    }
}

/// Returns the rule that the removal would break.
pub(super) fn rule(
    node: &CheckedNode<'_>,
    logs: &LogIndex<'_>,
    removal: &Removal,
) -> Option<&'static str> {
    let policy = node.policy;
    let id = removal.subject.id.as_str();
    match (&removal.expected, removal.reason) {
        (Expected::PodLogDir { .. }, RemoveReason::PodDeleted) => match logs.dirs.get(id) {
            Some(dir) => dir_rule(node, policy, removal, dir),
            None => Some("is not on the node"),
        },
        (Expected::LogLink(_), RemoveReason::DeadLink) => match logs.links.get(id) {
            Some(link) => link_rule(node, policy, removal, link),
            None => Some("is not on the node"),
        },
        (Expected::ContainerLog(container), RemoveReason::ContainerRemoved) => {
            container_rule(node, logs, removal, container)
        }
        _ => Some("is planned for a reason of another kind"),
    }
}

fn dir_rule(
    node: &CheckedNode<'_>,
    policy: &Policy,
    removal: &Removal,
    dir: &PodLogDir,
) -> Option<&'static str> {
    let parts: Vec<&str> = dir.name.split('_').collect();
    let (&[namespace, name, _], Some(uid)) = (
        parts.as_slice(),
        parts.last().and_then(|uid| PodUid::new(*uid)),
    ) else {
        return Some("does not have the kubelet's name");
    };
    let pod = PodRef {
        uid,
        namespace: namespace.into(),
        name: name.into(),
    };
    let planned = Expected::PodLogDir {
        uid: pod.uid.clone(),
        inode: dir.inode,
        modified_at: dir.modified_at,
    };
    if removal.expected != planned || removal.subject.created_at != dir.modified_at {
        return Some("is not the object that was planned");
    }
    if !dir.is_dir || !is_pods_name(&pod) {
        return Some("does not have the kubelet's name");
    }
    if is_protected(policy, &pod) {
        return Some("is in a protected namespace");
    }
    if node.has_pod(&pod.uid) || !node.snapshot.seen.is_all() {
        return Some("the runtime has something of its pod, or may have");
    }
    if !deleted(node, &pod.uid, dir.modified_at) {
        return Some("its pod is not known to be deleted");
    }
    let old = |since| node.older_than(since, policy.logs.grace);
    let orphan_long_enough = dir.orphan_since.is_some_and(old);
    (!old(dir.modified_at) || !orphan_long_enough).then_some("is younger than grace")
}

/// Says whether a complete list that covers its kind lacks the pod, and is not older than the pod's objects.
fn deleted(node: &CheckedNode<'_>, uid: &PodUid, youngest: Timestamp) -> bool {
    let as_of = match &node.snapshot.pods {
        Pods::Known(list) => list.as_of,
        Pods::Unknown(_) => return false,
    };
    node.is_deleted(&node.unseen_pod(uid)) && as_of.is_none_or(|as_of| youngest < as_of)
}

fn link_rule(
    node: &CheckedNode<'_>,
    policy: &Policy,
    removal: &Removal,
    link: &LogLink,
) -> Option<&'static str> {
    let Some((start, id)) = start_and_id(&link.name) else {
        return Some("is no link to a container's log");
    };
    let named = matches!(&removal.expected, Expected::LogLink(it) if it.as_str() == id);
    if !named || removal.subject.created_at != link.modified_at {
        return Some("is not the object that was planned");
    }
    let plain = start.chars().all(|c| c == '_' || is_dns(c));
    if !link.is_link || !start.ends_with('-') || start.len() < 2 || !plain || !is_hex(id) {
        return Some("is no link to a container's log");
    }
    let namespaces = &policy.protect.namespaces;
    let parts: Vec<&str> = link.name.split('_').collect();
    let open = parts.len() == 3 && parts.get(1).is_some_and(|it| !namespaces.contains(*it));
    if !namespaces.is_empty() && !open {
        return Some("is in a protected namespace");
    }
    let named = start.trim_end_matches('-').split('_').collect::<Vec<_>>();
    let named = <[&str; 3]>::try_from(named).unwrap_or_default();
    if policy.protect.has_label_of_link(named) {
        return Some("bears a protected label, or may");
    }
    if link.target != LinkTarget::Missing {
        return Some("is not known to be dead");
    }
    let over = match node.container(id) {
        Some(container) => container.row.state == ContainerState::Exited,
        None => matches!(
            link.container,
            LinkedContainer::NotFound | LinkedContainer::Exited
        ),
    };
    (!over).then_some("its container is not known to be over")
}

fn start_and_id(name: &str) -> Option<(&str, &str)> {
    let name = name.strip_suffix(".log")?;
    name.split_at_checked(name.len().checked_sub(64)?)
}

fn container_rule(
    node: &CheckedNode<'_>,
    logs: &LogIndex<'_>,
    removal: &Removal,
    container: &RemovedContainer,
) -> Option<&'static str> {
    let policy = node.policy;
    let pod = &container.pod;
    let id = container.id.as_str();
    let went = logs.went.get(id) == Some(&container);
    let listed = node.container(id);
    let will_go = listed.is_some_and(|it| {
        !it.facts.stays()
            && it.row.pod.as_ref() == Some(pod)
            && it.row.name == container.name
            && it.row.attempt == container.attempt
            && it.row.created_at == container.created_at
    });
    if !went && !will_go || removal.subject.id != container.log_path {
        return Some("is not on the node");
    }
    if removal.subject.created_at != container.created_at {
        return Some("is not the object that was planned");
    }
    if !lies_in_pods_dir(policy, container) {
        return Some("does not lie in its pod's directory");
    }
    if is_protected(policy, pod) {
        return Some("is in a protected namespace");
    }
    let file = (&pod.uid, container.name.as_str(), container.attempt);
    let writes = logs.written.contains(&file) || listed.is_some_and(|it| it.facts.stays());
    (writes || node.snapshot.seen.containers != Coverage::Whole)
        .then_some("a container still writes to it, or may")
}

fn lies_in_pods_dir(policy: &Policy, container: &RemovedContainer) -> bool {
    let pod = &container.pod;
    if !is_pods_name(pod) {
        return false;
    }
    let dir = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
    let path = Path::new(container.log_path.as_str());
    let mut below = match path.strip_prefix(policy.logs.pods_root.join(dir)) {
        Ok(below) => below.components().peekable(),
        Err(_elsewhere) => return false,
    };
    below.peek().is_some() && below.all(|part| matches!(part, Component::Normal(_)))
}

/// Says whether the names are a pod's, and the UID has one of the two formats.
fn is_pods_name(pod: &PodRef) -> bool {
    let uid = pod.uid.as_str();
    let digits: String = uid.chars().filter(|digit| *digit != '-').collect();
    let dashes: Vec<usize> = uid.match_indices('-').map(|(at, _)| at).collect();
    let shaped = dashes.is_empty() || dashes == [8, 13, 18, 23];
    let plain = |name: &str| !name.is_empty() && !name.starts_with('.') && name.chars().all(is_dns);
    digits.len() == 32 && is_hex(&digits) && shaped && plain(&pod.namespace) && plain(&pod.name)
}

fn is_dns(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c)
}

fn is_hex(text: &str) -> bool {
    text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}
