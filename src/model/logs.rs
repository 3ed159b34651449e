//! The entries of the log roots, and the names that the kubelet gives them.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ContainerId, PodRef, PodUid, Rows, Text, is_static_shaped};

/// The longest file name on Linux file systems.
const NAME_BYTES_MAX: usize = 255;
/// Digits of a full container id.
const CONTAINER_ID_DIGITS: usize = 64;

/// An entry of the pods' log root (`/var/log/pods`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodLogDir {
    /// Its name: `namespace_name_uid`, if the kubelet made it.
    pub name: String,
    /// Its full path, as the host names it.
    pub path: Text,
    /// Whether it is a directory, not a link to one. False also for a name with control characters or
    /// not in UTF-8, of which `name` is an approximation.
    pub is_dir: bool,
    /// Its inode: identifies the directory when its name is reused.
    pub inode: u64,
    /// When its own entries changed last.
    pub modified_at: Timestamp,
    /// Since when it is an orphan: no container, no sandbox and no pod has that UID. `None`: it is none,
    /// or that is unknown.
    pub orphan_since: Option<Timestamp>,
}

/// Whether a link's target exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkTarget {
    /// It exists.
    Exists,
    /// It lies below the pods' log root and does not exist.
    Missing,
    /// It lies elsewhere, or cannot be checked.
    Unknown,
}

/// The runtime's answer about the container that a dead link names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkedContainer {
    /// The runtime was not asked: the link is not dead, its name has no full id, the runtime lists the container
    /// anyway, or the question failed.
    NotAsked,
    /// There is no such container.
    NotFound,
    /// It exited.
    Exited,
    /// It exists, and has not exited or is in an unknown state.
    Lives,
}

/// An entry of the containers' log root (`/var/log/containers`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogLink {
    /// Its name: `<pod>_<namespace>_<container>-<id>.log`, if the kubelet made it.
    pub name: Text,
    /// Its full path, as the host names it.
    pub path: Text,
    /// Whether it is a symbolic link. False also for a name with control characters or not in UTF-8,
    /// of which `name` is an approximation.
    pub is_link: bool,
    /// Whether its target exists.
    pub target: LinkTarget,
    /// The runtime's answer about its container, if no list has it.
    pub container: LinkedContainer,
    /// When it was made.
    pub modified_at: Timestamp,
}

/// The entries of the log roots, as far as they could be read. Only these can be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logs {
    /// The entries of the pods' log root.
    pub dirs: Rows<PodLogDir>,
    /// The entries of the containers' log root.
    pub links: Rows<LogLink>,
    /// Unreadable paths, each with the error; their entries are not in the lists.
    pub unread: Vec<String>,
    /// Paths that can be read but not written, each with the error.
    pub unwritable: Vec<String>,
}

impl Logs {
    /// Returns the names of the directories in the pods' log root: a pod has logs if [`log_dir_name`] is among them.
    pub fn dir_names(&self) -> BTreeSet<&str> {
        let dirs = self.dirs.iter().filter(|dir| dir.is_dir);
        dirs.map(|dir| dir.name.as_str()).collect()
    }
}

/// A removed container, whose logs may be removed next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovedContainer {
    /// Its id.
    pub id: ContainerId,
    /// Its name within the pod.
    pub name: Text,
    /// Its attempt.
    pub attempt: u32,
    /// Its pod.
    pub pod: Arc<PodRef>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its log file, as the runtime named it before the removal.
    pub log_path: Text,
}

/// Reads the pod's UID from a log directory's name; `None` unless it has the kubelet's shape: a
/// namespace, a name and a UID (a UUID, or a static pod's 32 hex digits) joined by underscores,
/// which none of the three can contain.
pub fn pod_uid_of(dir_name: &str) -> Option<PodUid> {
    parts_of(dir_name).and_then(|(_, _, uid)| PodUid::new(uid))
}

/// Reads the pod from a log directory's name; `None` unless it has the kubelet's shape.
pub fn pod_of_dir(dir_name: &str) -> Option<PodRef> {
    let (namespace, name, uid) = parts_of(dir_name)?;
    Some(PodRef {
        uid: PodUid::new(uid)?,
        namespace: namespace.into(),
        name: name.into(),
    })
}

/// Returns the name of a pod's log directory, as the kubelet makes it; `None` if the pod's names are
/// unknown or have another shape.
pub fn log_dir_name(pod: &PodRef) -> Option<String> {
    let (namespace, name, uid) = (&pod.namespace, &pod.name, &pod.uid);
    are_the_kubelets(namespace, name, uid.as_str())
        .then(|| [namespace, "_", name, "_", uid.as_str()].concat())
}

fn parts_of(dir_name: &str) -> Option<(&str, &str, &str)> {
    let mut parts = dir_name.split('_');
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let is_shaped = parts.next().is_none() && are_the_kubelets(namespace, name, uid);
    is_shaped.then_some((namespace, name, uid))
}

fn are_the_kubelets(namespace: &str, name: &str, uid: &str) -> bool {
    let is_hash = is_static_shaped(uid) && uid.bytes().all(is_hex);
    is_dns(namespace) && is_dns(name) && (is_hash || is_uuid(uid))
}

/// Returns the name of the link to a container's log, as the kubelet makes it; `None` if the
/// kubelet would truncate it, or if it would not identify the container.
pub fn link_name(pod: &PodRef, container: &str, id: &ContainerId) -> Option<String> {
    let name = format!("{}_{}_{container}-{id}.log", pod.name, pod.namespace);
    (container_id_of(&name).as_ref() == Some(id)).then_some(name)
}

/// Reads the container's full id from a link's name; `None` unless it ends in a dash, 64 hex digits
/// and `.log`. The kubelet truncates names at 255 bytes, id included: a truncated name identifies no
/// container.
pub fn container_id_of(link_name: &str) -> Option<ContainerId> {
    id_in_link(link_name).and_then(ContainerId::new)
}

/// The same, without a copy of the id.
pub fn id_in_link(link_name: &str) -> Option<&str> {
    let (rest, id) = link_name.strip_suffix(".log")?.rsplit_once('-')?;
    let is_id = id.len() == CONTAINER_ID_DIGITS && id.bytes().all(is_hex);
    let is_plain = !rest.is_empty() && rest.bytes().all(|b| is_dns_byte(b) || b == b'_');
    (is_id && is_plain && link_name.len() <= NAME_BYTES_MAX).then_some(id)
}

fn is_dns(text: &str) -> bool {
    (1..=253).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_dns_byte)
}

fn is_dns_byte(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.'
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => is_hex(b),
        })
}

fn is_hex(b: u8) -> bool {
    b.is_ascii_digit() || (b'a'..=b'f').contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_kubelets_shape_have_a_pod() {
        let uid = |name: &str| pod_uid_of(name).map(|uid| uid.to_string());
        let of_api = "0d5f6a2c-1111-4222-8333-0123456789ab";
        let hash = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            uid(&format!("default_web-0_{of_api}")).as_deref(),
            Some(of_api)
        );
        assert_eq!(
            uid(&format!("kube-system_etcd-n1_{hash}")).as_deref(),
            Some(hash)
        );
        for name in [
            "lost+found".to_owned(),
            of_api.to_owned(),
            format!("web_{of_api}"),
            format!("a_b_c_{of_api}"),
            format!("_web_{of_api}"),
            format!("default__{of_api}"),
            format!(".hidden_web_{of_api}"),
            format!("Default_web_{of_api}"),
            "default_web_".to_owned(),
            "default_web_0d5f6a2c".to_owned(),
            format!("default_web_{}", of_api.to_uppercase()),
            format!("default_web_{}", hash.to_uppercase()),
            format!("default_web\n_{of_api}"),
            format!("default_web_{of_api}.bak"),
        ] {
            assert_eq!(uid(&name), None, "{name}");
        }
    }

    #[test]
    fn only_a_full_id_names_a_container() {
        let id = "0123456789abcdef".repeat(4);
        let of = |name: &str| container_id_of(name).map(|id| id.to_string());
        assert_eq!(of(&format!("web_default_app-{id}.log")), Some(id.clone()));
        assert!(of(&format!("{}-{id}.log", "a".repeat(186))).is_some());
        for name in [
            format!("web_default_app-{id}"),
            format!("web_default_app-{}.log", &id[1..]),
            format!("web_default_app-{id}0.log"),
            format!("-{id}.log"),
            format!("{id}.log"),
            format!("web_default_app-{}.log", id.to_uppercase()),
            format!("web_default_a\npp-{id}.log"),
            format!("{}-{id}.log", "a".repeat(187)),
        ] {
            assert_eq!(of(&name), None, "{name}");
        }
    }

    #[test]
    fn names_are_the_kubelets_or_none() {
        let pod = |namespace: &str, name: &str, uid: &str| PodRef {
            uid: PodUid::new(uid).unwrap(),
            namespace: namespace.into(),
            name: name.into(),
        };
        let uuid = "0d5f6a2c-1111-4222-8333-0123456789ab";
        let web = pod("default", "web-0", uuid);
        let dir = format!("default_web-0_{uuid}");
        assert_eq!(log_dir_name(&web), Some(dir));
        for odd in [
            pod("", "web-0", uuid),
            pod("default", "../etc", uuid),
            pod("default", "web-0", "x"),
        ] {
            assert_eq!(log_dir_name(&odd), None, "{odd:?}");
        }
        let id = ContainerId::new("0123456789abcdef".repeat(4)).unwrap();
        let link = format!("web-0_default_app-{id}.log");
        assert_eq!(link_name(&web, "app", &id), Some(link));
        assert_eq!(link_name(&web, "a/b", &id), None);
        assert_eq!(link_name(&web, &"a".repeat(200), &id), None);
        let short = ContainerId::new("0123").unwrap();
        assert_eq!(link_name(&web, "app", &short), None);
    }
}
