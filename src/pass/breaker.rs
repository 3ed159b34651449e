//! The circuit breaker: gives up a target for this pass if most of its removals fail. The next target goes on:
//! a broken CNI plugin must not stop image removal on a full disk.

use std::collections::BTreeMap;

use super::Run;
use crate::model::{RemovalOutcome, Target};

/// The breaker looks at the share of failures from this many attempts on.
const MIN_ATTEMPTS: u64 = 5;

/// Attempts and failures of each target. Quarantined sandboxes are not counted: they are probes, expected to
/// fail.
#[derive(Debug, Default)]
pub(super) struct FailureShare(BTreeMap<Target, (u64, u64)>);

impl FailureShare {
    /// Counts a removal, if the runtime answered.
    pub(super) fn tried(&mut self, target: Target, outcome: &RemovalOutcome) {
        let failed = match outcome {
            RemovalOutcome::Lost { .. } | RemovalOutcome::NotBegun => return,
            RemovalOutcome::Failed { .. } => 1,
            RemovalOutcome::Removed { .. }
            | RemovalOutcome::AlreadyGone
            | RemovalOutcome::Skipped { .. } => 0,
        };
        let (attempts, failures) = self.0.entry(target).or_default();
        *attempts += 1;
        *failures += failed;
    }

    /// Returns attempts and failures of a target if the share of failures is above `ratio`.
    #[expect(clippy::cast_precision_loss, reason = "a share of some thousands")]
    fn beyond(&self, target: Target, ratio: f64) -> Option<(u64, u64)> {
        let (attempts, failures) = *self.0.get(&target)?;
        let is_beyond = attempts >= MIN_ATTEMPTS && failures as f64 / attempts as f64 > ratio;
        is_beyond.then_some((attempts, failures))
    }
}

impl Run<'_> {
    /// Says whether the breaker ends the target, and reports it.
    pub(super) fn breaks(&mut self, target: Target) -> bool {
        let ratio = self.config.gc.failure_ratio;
        let Some((attempts, failures)) =
            ratio.and_then(|ratio| self.tally.share.beyond(target, ratio))
        else {
            return false;
        };
        self.runner.metrics.breaker_tripped();
        self.given_up = true;
        let why = format!(
            "circuit breaker (gc.failure_ratio): {failures} of {attempts} removals failed; the rest stays"
        );
        tracing::warn!(pass.id = %self.record.id(), target = target.label(), why, "target given up");
        self.record.error(format!("{target}: {why}"));
        true
    }
}
