//! The brakes, as names.

/// A brake, as a name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// `brakes.pause` is set.
    Pause,
    /// A target was collected less than `brakes.cooldown` ago.
    CoolDown,
    /// `brakes.max_passes_per_hour` is reached for a target.
    PassesPerHour,
}

impl Hold {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Pause, Self::CoolDown, Self::PassesPerHour];

    /// Returns its name as metrics and the status write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::CoolDown => "cooldown",
            Self::PassesPerHour => "max-passes-per-hour",
        }
    }
}
