//! The brakes' names.

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
