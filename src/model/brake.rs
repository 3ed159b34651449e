//! The brakes, as names.

use super::every;

/// A brake, as a name alone.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "lowercase")]
pub enum Brake {
    /// `brakes.pause` is set.
    Pause,
    /// A target was collected less than `brakes.cooldown` ago.
    CoolDown,
    /// `brakes.max_passes_per_hour` is reached for a target.
    #[strum(serialize = "max-passes-per-hour")]
    PassesPerHour,
}

impl Brake {
    /// Every one.
    pub const ALL: [Self; 3] = every();

    /// Returns its name as metrics and the status write it.
    pub fn label(self) -> &'static str {
        self.into()
    }
}
