//! What a reload can change, and what takes a restart; and a fingerprint of what is in force.

use super::{Config, Given};

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
    /// Keeps what only a start can change as the running configuration has it. Returns the keys whose
    /// new values wait for a restart.
    pub fn keep_fixed(&mut self, running: &Self) -> Vec<&'static str> {
        let wait = |key: &&str| self.value(key) != running.value(key);
        let waiting = FIXED.into_iter().filter(wait).collect();
        self.runtime.clone_from(&running.runtime);
        self.node_name.clone_from(&running.node_name);
        self.state.clone_from(&running.state);
        self.web.listen.clone_from(&running.web.listen);
        self.log.format = running.log.format;
        let (logs, kept) = (&mut self.policy.logs, &running.policy.logs);
        logs.pods_root.clone_from(&kept.pods_root);
        logs.containers_root.clone_from(&kept.containers_root);
        for (key, value) in &mut self.effective {
            if let Some(kept) = running.value(key).filter(|_| FIXED.contains(key)) {
                value.clone_from(kept);
            }
        }
        waiting
    }

    fn value(&self, key: &str) -> Option<&Given> {
        let found = self.effective.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| value)
    }

    /// Returns a fingerprint of the effective configuration. The node's name is left out, so that nodes
    /// with the same settings have the same one.
    pub fn hash(&self) -> String {
        let entries = self.effective.iter().filter(|(key, _)| *key != "node.name");
        format!("{:08x}", crc32fast::hash(super::yaml(entries).as_bytes()))
    }
}
