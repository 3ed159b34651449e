//! The weight of a list of the runtime, and its limit.

use serde::{Deserialize, Serialize};

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
