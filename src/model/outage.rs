//! The time in which the kubelet could not list: a list was over its limit.

use std::time::Duration;

use jiff::Timestamp;

use super::Snapshot;

/// How long the kubelet has to list and to sync its pods once the lists fit again.
pub const KUBELET_SYNCS_IN: Duration = Duration::from_secs(15);

/// The last time that looks saw a list of containers or sandboxes over its limit. The kubelet is blind
/// then, and learns of all that happened meanwhile once the lists fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The first of the looks that saw one over its limit. Lists that fit for less than
    /// [`KUBELET_SYNCS_IN`] in between do not end an outage.
    pub first_seen: Timestamp,
    /// The last of them.
    pub last_seen: Timestamp,
    /// The first of the looks since that saw both lists fit; `None` while it lasts.
    pub fits_since: Option<Timestamp>,
}

impl Outage {
    /// Says whether a list is over its limit in this snapshot.
    pub fn lasts(self, snapshot: &Snapshot) -> bool {
        self.last_seen >= snapshot.taken_at
    }
}
