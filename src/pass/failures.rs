//! Objects whose removal failed, was skipped or was given up: later passes try them last. Otherwise many that can never
//! go would come first as the oldest, and the circuit breaker, the deadline or `max_removals` would end each pass before
//! the others had their turn. Never says what is due; sandboxes whose removal failed have the quarantine. Forgotten when
//! the process ends.

use std::collections::BTreeMap;

use crate::gc::Removal;
use crate::model::{Target, Text};

/// The most objects; above that the one that failed longest ago is dropped, and is tried in its turn again.
const FAILURES_MAX: usize = 4096;

/// Objects whose latest removal failed, was skipped or was given up.
#[derive(Clone, Debug, Default)]
pub struct PriorFailures {
    entries: BTreeMap<(Target, Text), PriorFailure>,
    /// Failures so far.
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PriorFailure {
    times: u32,
    /// Number of its latest failure.
    latest: u64,
}

impl PriorFailures {
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

    /// Puts what failed before last, the fewest failures first.
    pub(super) fn put_last(&self, removals: &mut [Removal]) {
        if !self.entries.is_empty() {
            removals.sort_by_key(|it| self.times(it.subject.target, &it.subject.id));
        }
    }

    /// Says whether the latest removal of an object failed, was skipped or was given up.
    pub(super) fn has(&self, target: Target, id: &Text) -> bool {
        self.times(target, id) > 0
    }

    /// Returns how often the removal of an object failed, was skipped or was given up.
    pub(super) fn times(&self, target: Target, id: &Text) -> u32 {
        let entry = self.entries.get(&(target, id.clone()));
        entry.map_or(0, |entry| entry.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_what_failed_longest_ago() {
        let mut failures = PriorFailures::default();
        let id = |number: usize| Text::from(format!("c{number}"));
        let times =
            |failures: &PriorFailures, number| failures.times(Target::Containers, &id(number));
        for number in 0..FAILURES_MAX {
            failures.failed(Target::Containers, &id(number));
        }
        failures.failed(Target::Containers, &id(0));
        failures.failed(Target::Containers, &id(FAILURES_MAX));
        assert_eq!(times(&failures, 0), 2);
        assert_eq!(times(&failures, 1), 0);
        assert_eq!(failures.times(Target::Images, &id(0)), 0);
        failures.gone(Target::Containers, &id(0));
        assert_eq!(times(&failures, 0), 0);
    }
}
