//! Which brakes hold now, for those who ask why nothing happens.

use std::time::Duration;

use super::{Gate, HOUR};
use crate::gc::Target;

/// A brake, as a name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// `brakes.pause` is set.
    Pause,
    /// A target was collected less than `brakes.cooldown` ago.
    CoolDown,
    /// `brakes.max_passes_per_hour` is reached.
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
    /// Says whether a brake would hold an alert now; the cool-down, one about some target.
    pub fn holds(&self, hold: Hold, now: Duration) -> bool {
        match hold {
            Hold::Pause => self.brakes.pause,
            Hold::CoolDown => Target::ALL
                .into_iter()
                .any(|target| self.is_cooling(target, now)),
            Hold::PassesPerHour => {
                let young = |start: &&Duration| now.saturating_sub(**start) < HOUR;
                let starts = self.starts.iter().filter(young).count();
                let max = self.brakes.max_passes_per_hour;
                max.is_some_and(|max| starts >= max as usize)
            }
        }
    }
}
