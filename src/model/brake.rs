//! The brakes' names.

use super::labelled;

/// A brake: it delays or refuses automatic passes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Brake {
    /// `brakes.pause` is set.
    Pause,
    /// The fleet's switch (`fleet.hold_config_map`) holds.
    #[strum(serialize = "fleet-hold")]
    FleetHold,
    /// Whether the fleet's switch holds is not known.
    #[strum(serialize = "fleet-unknown")]
    FleetUnknown,
    /// An alert holds automatic passes (`fleet.storm_hold`).
    #[strum(serialize = "fleet-storm")]
    FleetStorm,
    /// An automatic pass waits for a slot of `fleet.budget`.
    #[strum(serialize = "fleet-budget")]
    FleetBudget,
    /// A target's last pass ended less than `brakes.cooldown` ago.
    CoolDown,
    /// `brakes.max_passes_per_hour` is reached for a target.
    #[strum(serialize = "max-passes-per-hour")]
    PassesPerHour,
}

labelled!(Brake);
