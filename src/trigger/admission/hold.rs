//! Which brakes hold now, for those who ask why nothing happens.

use std::time::Duration;

use super::Gate;
use crate::model::{Hold, Target};

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
