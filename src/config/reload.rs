//! Which settings a reload can change, which need a restart, and a fingerprint of the settings in force.

use super::layers::Layers;
use super::value::without_user;
use super::{Config, Error};

/// The keys that only a start can change, and why.
pub(super) const FIXED: [(&str, &str); 13] = [
    ("runtime.endpoint", ITS_STATE),
    ("runtime.image_endpoint", ITS_STATE),
    ("runtime.host_root", ITS_PODS),
    ("node.name", ITS_PODS),
    ("policy.logs.pods_root", ITS_PODS),
    ("policy.logs.containers_root", ITS_PODS),
    ("state.dir", "the lock is held there"),
    ("state.journal_bytes", "its room is claimed at a start"),
    ("state.audit_lines", "its thread writes there"),
    (
        "evidence.max_bytes",
        "the database's bound is set when it is opened",
    ),
    ("web.listen", "the sockets are bound"),
    ("web.socket_mode", "the sockets are bound"),
    ("web.socket_owner", "the sockets are bound"),
];

const ITS_STATE: &str = "the state on disk is of this runtime";
const ITS_PODS: &str = "the pods known are of this host";

impl Config {
    /// Keeps what only a start can change as the running configuration has it, and notes those keys in
    /// `needs_restart`.
    ///
    /// # Errors
    /// If what is kept and what is new do not go together.
    pub fn keep_fixed(self, running: &Self) -> Result<Self, Error> {
        // The file was read during a write, or the disk was full when it was written.
        if self.is_blank.0 && !running.is_blank.0 {
            return Err(Error::Emptied);
        }
        let mut needs_restart = Vec::new();
        let mut layers = Layers::defaults();
        layers.tree = self.effective.clone();
        for (key, _why) in FIXED {
            let (new, old) = (self.effective.at(key), running.effective.at(key));
            if let (true, Some(old)) = (new != old, old) {
                needs_restart.push(key);
                layers.set(key, old.clone(), String::new());
            }
        }
        let read = layers.read(|config| config.pods.in_cluster.clone_from(&self.pods.in_cluster));
        let (config, tree) = read.map_err(|source| Error::NeedsRestart {
            keys: needs_restart.clone(),
            source: Box::new(source),
        })?;
        Ok(Self {
            is_blank: self.is_blank,
            needs_restart,
            ..config.with(tree)
        })
    }

    /// Returns a fingerprint of the effective configuration. The node's name and its kubelet's URL are left out, so that
    /// nodes with the same settings have the same one; so are users and passwords in URLs, which it would help to guess.
    pub fn hash(&self) -> String {
        let yaml = super::yaml(&self.effective, |key| {
            ["node.name", "pods.kubelet_url"].contains(&key)
        });
        let mut sum = crc32fast::Hasher::new();
        for line in yaml.lines() {
            let has_url = line.contains("://");
            let line = if has_url { &without_user(line) } else { line };
            sum.update(line.as_bytes());
            sum.update(b"\n");
        }
        format!("{:08x}", sum.finalize())
    }
}
