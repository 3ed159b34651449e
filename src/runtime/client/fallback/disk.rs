//! Ids from the names of log files. Reads names only, follows no link, and never treats the names as complete.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::super::LogRoots;
use crate::model::{ContainerId, PodUid};
use crate::system::blocking::BlockingPool;

/// The most names that are read in one directory; far above what a node has.
const NAMES_MAX: usize = 50_000;

/// Ids from names on the node's disk.
#[derive(Debug, Default)]
pub(super) struct DiskIds {
    pub(super) pods: BTreeSet<PodUid>,
    pub(super) containers: BTreeSet<ContainerId>,
}

/// Timeout for reading the names. If the disk hangs there are none, and other sources remain.
const NAMES_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the names. A directory that cannot be read in time has none.
pub(super) async fn names(disk: &BlockingPool, roots: &LogRoots) -> DiskIds {
    let roots = roots.clone();
    let read = move || DiskIds {
        pods: ids(&roots.pods, pod_uid),
        containers: ids(&roots.containers, container_id),
    };
    match disk.run(NAMES_TIMEOUT, read).await {
        Ok(names) => names,
        Err(error) => {
            tracing::debug!(%error, "no names in the log roots");
            DiskIds::default()
        }
    }
}

fn ids<Id: Ord>(root: &Path, id: fn(&str) -> Option<Id>) -> BTreeSet<Id> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return BTreeSet::new();
    };
    let names = entries.take(NAMES_MAX).flatten();
    names
        .filter_map(|entry| id(entry.file_name().to_str()?))
        .collect()
}

/// `namespace_pod_uid`, where the uid is a UUID or the hash of a static pod's manifest.
fn pod_uid(name: &str) -> Option<PodUid> {
    let mut parts = name.rsplitn(3, '_');
    let uid = parts.next()?;
    parts.next()?;
    parts.next()?;
    let is_uuid = uid.len() == 36
        && uid.bytes().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    let uid = PodUid::new(uid)?;
    (is_uuid || uid.is_static_shaped()).then_some(uid)
}

/// `pod_namespace_container-id.log`, where the id has 64 hex digits.
fn container_id(name: &str) -> Option<ContainerId> {
    let (_, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| ContainerId::new(id)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_another_shape_give_no_id() {
        let uid = "01234567-89ab-cdef-0123-456789abcdef";
        let hash = "0123456789abcdef0123456789abcdef";
        let id_of = |name: &str| pod_uid(name).map(|uid| uid.to_string());
        assert_eq!(id_of(&format!("shop_web_{uid}")), Some(uid.to_owned()));
        assert_eq!(id_of(&format!("shop_web_{hash}")), Some(hash.to_owned()));
        for name in ["shop_web_x", &format!("web_{uid}"), uid, "lost+found", ""] {
            assert_eq!(id_of(name), None, "{name}");
        }
        let id = "0123456789abcdef".repeat(4);
        let id_of = |name: &str| container_id(name).map(|id| id.to_string());
        assert_eq!(id_of(&format!("web_shop_app-1-{id}.log")), Some(id.clone()));
        for name in [
            format!("web_shop_app-{id}"),
            format!("web_shop_app-{}.log", id.trim_end_matches('f')),
            format!("{id}.log"),
        ] {
            assert_eq!(id_of(&name), None, "{name}");
        }
    }

    #[tokio::test]
    async fn a_missing_directory_has_no_names() {
        let dir = tempfile::tempdir().unwrap();
        let roots = LogRoots {
            pods: dir.path().join("pods"),
            containers: dir.path().to_owned(),
        };
        std::fs::write(dir.path().join(format!("a_b_c-{}.log", "f".repeat(64))), "").unwrap();
        let names = names(&BlockingPool::new(1), &roots).await;
        assert_eq!((names.pods.len(), names.containers.len()), (0, 1));
    }
}
