//! Which brakes hold.

use super::Worker;
use crate::model::Hold;

impl Worker {
    /// Returns the brakes that would hold an alert now.
    pub fn holding(&self) -> Vec<Hold> {
        let now = self.inner.began.elapsed();
        let state = self.state();
        let holds = |hold: &Hold| state.gate.holds(*hold, now);
        Hold::ALL.into_iter().filter(holds).collect()
    }
}
