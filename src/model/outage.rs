//! The time in which the kubelet could not list: a list was over its limit.

use jiff::Timestamp;

use super::Snapshot;

/// The last time that looks saw a list of containers or sandboxes over its limit. The kubelet is blind
/// then, and learns of all that happened meanwhile once the lists fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The first of the looks in a row that saw one over its limit.
    pub first_seen: Timestamp,
    /// The last of them.
    pub last_seen: Timestamp,
}

impl Outage {
    /// Says whether a list is over its limit in this snapshot.
    pub fn lasts(self, snapshot: &Snapshot) -> bool {
        self.last_seen >= snapshot.taken_at
    }
}
