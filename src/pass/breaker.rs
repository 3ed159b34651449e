//! The circuit breaker: gives up a target for this pass if most of its removals fail. The next target goes on: a broken
//! CNI plugin must not stop image removal on a full disk.

use super::PassRun;
use crate::model::Target;

/// The breaker looks at the share of failures from this many attempts on.
const MIN_ATTEMPTS: u64 = 5;

impl PassRun<'_> {
    /// Returns the attempts and failures of a target among the removals that have ended, if the breaker would end it.
    #[expect(clippy::cast_precision_loss, reason = "a share of some thousands")]
    pub(super) fn mostly_fails(&self, target: Target) -> Option<(u64, u64)> {
        let ratio = self.config.gc.failure_ratio?;
        let (attempts, failures) = *self.tally.tried.get(&target)?;
        let is_beyond = attempts >= MIN_ATTEMPTS && failures as f64 / attempts as f64 > ratio;
        is_beyond.then_some((attempts, failures))
    }

    /// Says whether the breaker ends the target, and reports it.
    pub(super) fn breaks(&mut self, target: Target) -> bool {
        let Some((attempts, failures)) = self.mostly_fails(target) else {
            return false;
        };
        self.given_up = true;
        let why = format!(
            "circuit breaker (gc.failure_ratio): {failures} of {attempts} removals failed; the rest stays"
        );
        tracing::warn!(pass.id = %self.record.id, target = target.label(), why, "target given up");
        let line = format!("{target}: {why}");
        // The rescue begins a target several times: one error, and one trip, for all of them.
        match self.tally.broken.insert(target, line.clone()) {
            Some(before) => self.record.retract(&before),
            None => {
                self.runner.metrics.breaker_trips.inc();
            }
        }
        self.record.error(line);
        true
    }
}
