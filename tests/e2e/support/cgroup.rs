//! The pods' control groups: one parent of our own, found and removed by its name.

use std::fs;
use std::path::{Path, PathBuf};

use super::daemon::owner_is_dead;

const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "crisweep-e2e-";

/// The parent group of all pods of one node. Removed on drop, after the processes are gone.
pub(crate) struct CgroupParent {
    name: String,
}

impl CgroupParent {
    /// Chooses a name, and removes the groups of test processes that were killed.
    pub(crate) fn new() -> Self {
        remove_stale();
        Self {
            name: format!("{PREFIX}{}-{:08x}", std::process::id(), fastrand::u32(..)),
        }
    }

    /// Returns the path as CRI's `cgroup_parent` takes it.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Returns the processes in the group of a container or sandbox, by the ids that this process
    /// sees them under.
    pub(crate) fn processes(&self, id: &str) -> Vec<u32> {
        let mut pids: Vec<u32> = hierarchies()
            .iter()
            .filter_map(|root| {
                fs::read_to_string(root.join(&self.name).join(id).join("cgroup.procs")).ok()
            })
            .flat_map(|text| {
                text.lines()
                    .filter_map(|pid| pid.parse().ok())
                    .collect::<Vec<_>>()
            })
            .filter(|pid| *pid != 0)
            .collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }
}

impl Drop for CgroupParent {
    fn drop(&mut self) {
        for root in hierarchies() {
            remove_tree(&root.join(&self.name));
        }
    }
}

/// Version 2 has one hierarchy, version 1 one directory for each controller.
fn hierarchies() -> Vec<PathBuf> {
    let mut roots = vec![PathBuf::from(ROOT)];
    roots.extend(directories(Path::new(ROOT)));
    roots
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Control files cannot be removed and need not be: only directories, from the leaves up.
fn remove_tree(path: &Path) {
    for child in directories(path) {
        remove_tree(&child);
    }
    let _ = fs::remove_dir(path);
}

fn remove_stale() {
    for root in hierarchies() {
        for group in directories(&root) {
            if owner_is_dead(&group, PREFIX) {
                remove_tree(&group);
            }
        }
    }
}
