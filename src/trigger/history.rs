//! The history of passes: waiting, running, and the last ended ones, also those of earlier processes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::end::summary;
use super::{Worker, clock};
use crate::model::Pass;
use crate::pass::record::PassRecord;
use crate::state::{self, History};

/// Passes in the history, waiting and running ones included.
const HISTORY_MAX: usize = 100;
/// How many of them may have ended before they began (a flapping alert causes thousands); above that the oldest
/// such pass is dropped first.
const NEVER_BEGUN_MAX: usize = 20;

/// How far back the brakes remember passes of earlier processes.
const MEMORY: Duration = Duration::from_secs(7 * 24 * 3600);

/// The history in the order in which the passes began, or were queued if they did not begin.
#[derive(Debug, Default)]
pub(super) struct PassHistory {
    records: VecDeque<Arc<PassRecord>>,
    /// Number of passes ever added.
    counter: u64,
}

impl PassHistory {
    /// Returns the id of the next pass: the time and a counter. No pass in the history has it. Of the older passes in
    /// the database one could have it only if the clock was set back to the very second in which that one was queued.
    pub(super) fn next_id(&self) -> String {
        let time = clock().strftime("%Y%m%dT%H%M%SZ");
        let ids = (self.counter + 1..).map(|count| format!("{time}-{count}"));
        let mut free = ids.filter(|id| self.find(id).is_none());
        free.next().unwrap_or_default()
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<PassRecord>> {
        let record = self.records.iter().find(|record| record.id == id);
        record.cloned()
    }

    pub(super) fn remember(&mut self, record: Arc<PassRecord>) {
        while self.records.len() >= HISTORY_MAX {
            let least = self.least_wanted();
            self.records.remove(least);
        }
        self.counter += 1;
        self.records.push_back(record);
    }

    /// Puts a pass that begins behind those that began before it, whenever it was queued.
    pub(super) fn begins(&mut self, id: &str) {
        let place = self.records.iter().position(|record| record.id == id);
        let record = place.and_then(|place| self.records.remove(place));
        self.records.extend(record);
    }

    /// The oldest ended pass; only a few wait or run.
    fn least_wanted(&self) -> usize {
        let of = |wanted: fn(&Pass) -> bool| {
            let records = self.records.iter().enumerate();
            let fits = records.filter(move |(_, record)| record.read(wanted));
            fits.map(|(position, _)| position)
        };
        let never_begun = || of(|pass| pass.is_done() && pass.started_at.is_none());
        let mut over = of(Pass::is_done);
        let oldest = if never_begun().count() > NEVER_BEGUN_MAX {
            never_begun().next()
        } else {
            over.next()
        };
        oldest.unwrap_or(0)
    }

    pub(super) fn passes(&self) -> Vec<Pass> {
        self.records
            .iter()
            .rev()
            .map(|record| record.pass())
            .collect()
    }
}

/// Returns the beginning of the worker's time: early enough for the passes of earlier processes that brakes count.
pub(super) fn began(now: Instant) -> Instant {
    now.checked_sub(MEMORY).unwrap_or(now)
}

impl Worker {
    /// Takes over the passes of earlier processes, if they worked on the same runtime. Reports unfinished
    /// passes as interrupted, once, and writes down the end of others. Quarantined sandboxes stay quarantined, and the
    /// brakes go on counting.
    pub fn restore(&self, history: History) {
        let now = clock();
        self.runner()
            .restore(history.failures, self.config().quarantine, now);
        let runtime = self.runner().observer.client().endpoint();
        let ours = |pass: &Pass| pass.runtime == runtime;
        let mut passes: Vec<Pass> = history.ended.into_iter().filter(ours).collect();
        for mut pass in history.interrupted {
            state::interrupt(&mut pass, now);
            // A pass over another runtime is over too: only this process uses the database.
            self.inner.runner.journal.ended(&pass);
            if ours(&pass) {
                self.inner.runner.metrics.pass_finished(&pass);
                tracing::warn!(pass.id = %pass.id, "{}", summary(&pass));
                passes.push(pass);
            }
        }
        let elapsed = self.inner.began.elapsed();
        let then = |at: Timestamp| {
            // After a clock step back `at` may lie in the future: its age is then 0.
            let age = Duration::try_from(now.duration_since(at)).unwrap_or_default();
            elapsed.checked_sub(age)
        };
        let mut state = self.state();
        // Behind those of this process, if the database was opened after its first ones.
        let newer = std::mem::take(&mut state.history.records);
        for pass in passes {
            if let (Some(began), Some(ended)) = (pass.started_at, pass.finished_at) {
                state.admissions.remember(&pass, then(began), then(ended));
            }
            state.history.remember(Arc::new(PassRecord::new(pass)));
        }
        for record in newer {
            state.history.remember(record);
        }
        drop(state);
        self.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Cause, Outcome, PassState};

    fn record(id: String, started: bool, state: PassState) -> Arc<PassRecord> {
        let time = Timestamp::UNIX_EPOCH;
        Arc::new(PassRecord::new(Pass {
            state,
            outcome: Some(Outcome::Aborted),
            started_at: started.then_some(time),
            ..Pass::queued(id, Cause::Alert.into(), [], time)
        }))
    }

    #[test]
    fn passes_that_were_taken_back_do_not_push_out_those_that_ran() {
        let mut kept = PassHistory::default();
        kept.remember(record("running".to_owned(), true, PassState::Running));
        for number in 0..10 {
            kept.remember(record(format!("ran-{number}"), true, PassState::Done));
        }
        for number in 0..1_000 {
            kept.remember(record(format!("back-{number}"), false, PassState::Done));
            assert!(kept.records.len() <= HISTORY_MAX);
        }
        assert!(kept.find("running").is_some() && kept.find("ran-0").is_some());
        assert!(kept.find("back-999").is_some() && kept.find("back-0").is_none());
        // More passes than the history holds have run since: they are dropped by age.
        for number in 10..HISTORY_MAX * 2 {
            kept.remember(record(format!("ran-{number}"), true, PassState::Done));
        }
        let passes = kept.passes();
        let begun = passes.iter().filter(|pass| pass.started_at.is_some());
        assert_eq!(begun.count(), HISTORY_MAX);
        assert!(kept.find("running").is_some() && kept.find("ran-100").is_none());
    }
}
