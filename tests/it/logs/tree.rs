//! The log tree of a simulated node, written as the kubelet writes it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crisweep_sim::{ContainerRecord, NodeBuilder, Sim, hours};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A host's `/var/log`.
pub(super) struct Tree {
    dir: TempDir,
    /// The host's file system is mounted elsewhere, as in a pod.
    is_mounted: bool,
}

impl Tree {
    /// The service runs on the host itself.
    pub(super) fn plain() -> Self {
        Self::new(false)
    }

    /// The service sees the host below `runtime.host_root`.
    pub(super) fn mounted() -> Self {
        Self::new(true)
    }

    pub(super) fn both() -> [Self; 2] {
        [Self::plain(), Self::mounted()]
    }

    fn new(is_mounted: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = Self { dir, is_mounted };
        fs::create_dir_all(tree.real(&tree.pods_root())).unwrap();
        fs::create_dir_all(tree.real(&tree.containers_root())).unwrap();
        tree
    }

    /// Returns a path as the host names it.
    fn named(&self, path: &str) -> String {
        if self.is_mounted {
            path.to_owned()
        } else {
            format!("{}{path}", self.dir.path().display())
        }
    }

    /// Returns the real path of a path of the host.
    pub(super) fn real(&self, path: &str) -> PathBuf {
        if self.is_mounted {
            self.dir.path().join(path.trim_start_matches('/'))
        } else {
            path.into()
        }
    }

    pub(super) fn pods_root(&self) -> String {
        self.named("/var/log/pods")
    }

    pub(super) fn containers_root(&self) -> String {
        self.named("/var/log/containers")
    }

    /// Returns an empty node with its logs here.
    pub(super) fn node(&self) -> NodeBuilder {
        NodeBuilder::new().log_root(&self.pods_root())
    }

    /// Returns a configuration with this tree, without grace unless `policy` sets one.
    pub(super) fn config(&self, logs: &Value) -> Value {
        let host_root = if self.is_mounted {
            self.dir.path()
        } else {
            Path::new("/")
        };
        let mut policy = json!({
            "enabled": true,
            "grace": "0s",
            "pods_root": self.pods_root(),
            "containers_root": self.containers_root(),
        });
        for (key, value) in logs.as_object().unwrap() {
            policy[key] = value.clone();
        }
        json!({ "runtime": { "host_root": host_root }, "policy": { "logs": policy } })
    }

    /// Writes the log, two rotations and the link of every container of the node.
    pub(super) fn fill(&self, sim: &Sim) {
        for container in sim.containers() {
            self.write_log(&container);
        }
    }

    pub(super) fn write_log(&self, container: &ContainerRecord) {
        let log = self.real(&container.log_path);
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        for end in ["", ".20260101-000000.gz", ".20260101-010000"] {
            fs::write(format!("{}{end}", log.display()), "a line\n").unwrap();
        }
        symlink(&container.log_path, self.real(&self.link(container))).unwrap();
    }

    /// Returns the path of the link to a container's log, as the host names it.
    pub(super) fn link(&self, container: &ContainerRecord) -> String {
        let label = |key: &str| &container.row.labels[&format!("io.kubernetes.{key}")];
        let (pod, namespace) = (label("pod.name"), label("pod.namespace"));
        let (name, id) = (label("container.name"), &container.row.id);
        let root = self.containers_root();
        format!("{root}/{pod}_{namespace}_{name}-{id}.log")
    }

    /// Makes a pod's directory with a log, old enough not to be a new pod's, and returns its path as the host
    /// names it.
    pub(super) fn dir(&self, name: &str) -> String {
        let path = format!("{}/{name}", self.pods_root());
        fs::create_dir_all(self.real(&path).join("app")).unwrap();
        fs::write(self.real(&path).join("app/0.log"), "a line\n").unwrap();
        let dir = fs::File::open(self.real(&path)).unwrap();
        dir.set_modified(SystemTime::UNIX_EPOCH + hours(5)).unwrap();
        path
    }

    /// Makes a dead link, and returns its path as the host names it.
    pub(super) fn dead_link(&self, name: &str) -> String {
        let path = format!("{}/{name}", self.containers_root());
        let log = format!("{}/default_gone_x/app/0.log", self.pods_root());
        symlink(log, self.real(&path)).unwrap();
        path
    }

    /// Says whether the path exists, even as a dead link.
    pub(super) fn has(&self, path: &str) -> bool {
        self.real(path).symlink_metadata().is_ok()
    }

    /// Returns the log files and the links, by their names on the host.
    pub(super) fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        let mut dirs = vec![
            self.real(&self.pods_root()),
            self.real(&self.containers_root()),
        ];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    found.insert(entry.path());
                }
            }
        }
        found
    }
}

/// Returns the verdict and reason of a log in a plan.
pub(super) fn verdict(plan: &Value, path: &str) -> (&'static str, String) {
    let find = |list: &str| {
        let rows = plan[list].as_array().unwrap();
        rows.iter().find(|it| it["id"] == path).cloned()
    };
    let (word, row) = match (find("removals"), find("kept")) {
        (Some(row), None) => ("remove", row),
        (None, Some(row)) => ("keep", row),
        both => panic!("{path}: {both:?}"),
    };
    (word, row["reason"].as_str().unwrap().to_owned())
}
