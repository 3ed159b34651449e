//! Ids from the names of log files. Reads names only, follows no link, and never treats the names as complete.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::super::LogRoots;
use crate::model::{ContainerId, PodUid, container_id_of, pod_uid_of};
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
        pods: ids(&roots.pods, pod_uid_of),
        containers: ids(&roots.containers, container_id_of),
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

#[cfg(test)]
mod tests {
    use super::*;

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
