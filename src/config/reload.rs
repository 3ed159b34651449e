//! What a reload can change, and what takes a restart; and a fingerprint of what is in force.

use super::layers::Layers;
use super::{Config, Error};

/// The keys that only a start can change: the kernel or what was built on them holds them.
pub const FIXED: [&str; 13] = [
    "runtime.endpoint",
    "runtime.image_endpoint",
    "runtime.timeout",
    "runtime.removal_timeout",
    "runtime.max_message_bytes",
    "runtime.host_root",
    "node.name",
    "policy.logs.pods_root",
    "policy.logs.containers_root",
    "state.dir",
    "state.journal_bytes",
    "web.listen",
    "log.format",
];

impl Config {
    /// Keeps what only a start can change as the running configuration has it, and notes those keys in
    /// `needs_restart`.
    ///
    /// # Errors
    /// If what is kept and what is new do not go together.
    pub fn keep_fixed(self, running: &Self) -> Result<Self, Error> {
        let mut needs_restart = Vec::new();
        let mut layers = Layers::defaults();
        layers.tree = self.effective.clone();
        for key in FIXED {
            let (new, old) = (self.effective.at(key), running.effective.at(key));
            if let (true, Some(old)) = (new != old, old) {
                needs_restart.push(key);
                layers.set(key, old.clone(), String::new());
            }
        }
        let (config, tree) =
            layers.read(|config| config.pods.in_cluster.clone_from(&self.pods.in_cluster))?;
        Ok(Self {
            strange: self.strange,
            needs_restart,
            ..config.with(tree)
        })
    }

    /// Returns a fingerprint of the effective configuration. The node's name is left out, so that nodes
    /// with the same settings have the same one.
    pub fn hash(&self) -> String {
        let yaml = super::yaml(&self.effective, |key| key == "node.name");
        format!("{:08x}", crc32fast::hash(yaml.as_bytes()))
    }
}
