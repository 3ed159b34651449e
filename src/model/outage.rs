//! The weights of the runtime's lists, and outages: times in which a list was over the kubelet's limit.

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

/// A list's weight, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weight {
    /// Weight of the unfiltered unary answer, even if it is too large to be sent; `None`: the list failed for
    /// another reason.
    pub bytes: Option<u64>,
    /// Largest list that can be read: the lower of the kubelet's and the runtime's limit.
    pub limit_bytes: u64,
}

impl Weight {
    /// Says whether the list is over its limit; `None` if its weight is not known.
    pub fn is_over(self) -> Option<bool> {
        Some(self.bytes? > self.limit_bytes)
    }

    /// Returns the used share of the limit; 1 is at the limit.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for marks")]
    pub fn ratio(self) -> Option<f64> {
        Some(self.bytes? as f64 / self.limit_bytes.max(1) as f64)
    }
}
