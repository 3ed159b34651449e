//! The hold of all nodes' passes, as it outlives a restart.

use jiff::Timestamp;

/// What the fleet's switch said when it was last read: passes are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetHold {
    /// The switch, with its API server.
    pub place: String,
    /// Why passes are held.
    pub reason: String,
    /// When it was read.
    pub read_at: Timestamp,
}
