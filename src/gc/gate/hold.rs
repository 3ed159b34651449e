//! Which brakes hold now, for those who ask why nothing happens.

use std::time::Duration;

use super::Gate;
use crate::model::Target;

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

impl Gate {
    /// Says whether a brake would hold an alert now; the two that are per target, one about some target.
    pub fn holds(&self, hold: Hold, now: Duration) -> bool {
        let mut targets = Target::ALL.into_iter();
        match hold {
            Hold::Pause => self.brakes.pause,
            Hold::CoolDown => targets.any(|target| self.is_cooling(target, now)),
            Hold::PassesPerHour => targets.any(|target| self.is_spent(target, now)),
        }
    }
}
