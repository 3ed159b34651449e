//! The brakes' names, and the hold of all nodes' passes as it outlives a restart.

use jiff::Timestamp;

use super::labelled;

labelled! {
    /// A brake: it delays or refuses automatic passes.
    pub enum Brake {
        /// `brakes.pause` is set.
        Pause,
        /// The fleet's switch (`fleet.hold_config_map`) holds.
        FleetHold,
        /// Whether the fleet's switch holds is not known.
        FleetUnknown,
        /// An alert holds automatic passes (`fleet.storm_hold`).
        FleetStorm,
        /// An automatic pass waits for a slot of `fleet.budget`.
        FleetBudget,
        /// A target's last pass ended less than `brakes.cooldown` ago.
        #[serde(rename = "cooldown")]
        #[strum(serialize = "cooldown")]
        CoolDown,
        /// `brakes.max_passes_per_hour` is reached for a target.
        #[serde(rename = "max-passes-per-hour")]
        #[strum(serialize = "max-passes-per-hour")]
        PassesPerHour,
    }
}

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
