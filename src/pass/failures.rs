//! Containers, images and logs whose removal failed: later passes try them last. Never says what is due, and keeps
//! nothing: sandboxes have the quarantine for that.
//!
//! Otherwise many that can never go would come first as the oldest, and the circuit breaker would end their target in
//! each pass before the others had their turn. Forgotten when the process ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::PassRun;
use super::end::EarlyEnd;
use crate::gc::Removal;
use crate::model::{Target, Text};
use crate::snapshot::Look;

/// The most objects; above that the one that failed longest ago is dropped, and is tried first again.
const FAILURES_MAX: usize = 4096;

/// Objects whose latest removal failed.
#[derive(Clone, Debug, Default)]
pub struct PriorFailures {
    entries: BTreeMap<(Target, Text), PriorFailure>,
    /// Failures so far.
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PriorFailure {
    /// Failures of this object.
    times: u32,
    /// Number of its latest failure.
    latest: u64,
}

impl PriorFailures {
    /// Notes a failure.
    pub(super) fn failed(&mut self, target: Target, id: &Text) {
        self.count += 1;
        let entry = self.entries.entry((target, id.clone())).or_default();
        entry.times = entry.times.saturating_add(1);
        entry.latest = self.count;
        if self.entries.len() > FAILURES_MAX {
            let entries = self.entries.iter();
            let oldest = entries.min_by_key(|(_, entry)| entry.latest);
            let oldest = oldest.map(|(object, _)| object.clone());
            oldest.and_then(|object| self.entries.remove(&object));
        }
    }

    /// Forgets an object that is gone.
    pub(super) fn gone(&mut self, target: Target, id: &Text) {
        self.entries.remove(&(target, id.clone()));
    }

    /// Says whether the object's latest removal failed.
    pub(super) fn has(&self, target: Target, id: &Text) -> bool {
        self.times(target, id) > 0
    }

    /// Takes out the removals of objects that failed before, the fewest failures first.
    pub(super) fn take(&self, target: Target, removals: &mut Vec<Removal>) -> Vec<Removal> {
        let times = |removal: &Removal| self.times(target, &removal.subject.id);
        let mut failed: Vec<_> = removals.extract_if(.., |it| times(it) > 0).collect();
        failed.sort_by_key(times);
        failed
    }

    fn times(&self, target: Target, id: &Text) -> u32 {
        let entry = self.entries.get(&(target, id.clone()));
        entry.map_or(0, |entry| entry.times)
    }
}

impl PassRun<'_> {
    /// Carries the plan out. What failed in earlier passes goes last, and only as long as half of a batch goes; all of
    /// it without the circuit breaker.
    pub(super) async fn carry_out_plan(
        &mut self,
        target: Target,
        mut removals: Vec<Removal>,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        let failures = &self.runner.failures;
        let goes_on = self.config.gc.failure_ratio.is_none();
        let mut failed_before = failures.lock().take(target, &mut removals);
        if target == Target::Images {
            // One queue, so that a reached goal ends it.
            removals.append(&mut failed_before);
        }
        let has_others = !removals.is_empty();
        self.carry_out(target, removals, look).await?;
        while !(failed_before.is_empty() || has_others && self.given_up) {
            let size = failed_before.len().min(self.config.gc.batch_size);
            let rest = failed_before.split_off(size);
            let gone_before = self.gone_of(target);
            self.carry_out(target, failed_before, look).await?;
            let gone = self.gone_of(target).saturating_sub(gone_before);
            failed_before = rest;
            if !goes_on && 2 * gone < size as u64 {
                break;
            }
        }
        if !failed_before.is_empty() {
            self.record.line(format!(
                "{target}: {} more that failed in earlier passes are left to the next",
                failed_before.len()
            ));
        }
        let left = failed_before.into_iter();
        self.tally
            .stayed
            .extend(left.map(|it| it.subject.id.to_string()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_what_failed_longest_ago() {
        let mut failures = PriorFailures::default();
        let id = |number: usize| Text::from(format!("c{number}"));
        for number in 0..FAILURES_MAX {
            failures.failed(Target::Containers, &id(number));
        }
        failures.failed(Target::Containers, &id(0));
        failures.failed(Target::Containers, &id(FAILURES_MAX));
        assert_eq!(failures.times(Target::Containers, &id(0)), 2);
        assert!(!failures.has(Target::Containers, &id(1)));
        assert!(!failures.has(Target::Images, &id(0)));
        failures.gone(Target::Containers, &id(0));
        assert!(!failures.has(Target::Containers, &id(0)));
    }
}
