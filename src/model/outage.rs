//! Outages: times in which a list was over the kubelet's limit.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Snapshot;

/// How long the kubelet has to list and to sync its pods once the lists fit again.
pub const KUBELET_SYNCS_IN: Duration = Duration::from_secs(15);

/// The last outage: a list of containers or sandboxes was over its limit. The kubelet cannot list until
/// both fit again, and only then learns what happened meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// The first look that saw a list over its limit. Lists that fit for less than [`KUBELET_SYNCS_IN`] do not
    /// end an outage.
    pub first_seen: Timestamp,
    /// The last look that saw a list over its limit.
    pub last_seen: Timestamp,
    /// The first look since then that saw both lists fit; `None` during the outage.
    pub fits_since: Option<Timestamp>,
}

impl Outage {
    /// Says whether a list is over its limit in this snapshot.
    pub fn lasts(self, snapshot: &Snapshot) -> bool {
        self.last_seen >= snapshot.taken_at
    }
}
