//! Takes over what earlier processes did: the history shows it, and the brakes go on counting.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::end::summary;
use super::{Worker, clock};
use crate::model::Pass;
use crate::pass::record::PassRecord;
use crate::state::{self, History};

/// How far back the brakes remember passes of earlier processes.
const MEMORY: Duration = Duration::from_secs(7 * 24 * 3600);

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
        let runtime = self.runtime();
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
        for pass in passes {
            if let (Some(began), Some(ended)) = (pass.started_at, pass.finished_at) {
                state.admissions.remember(&pass, then(began), then(ended));
            }
            state.history.remember(Arc::new(PassRecord::new(pass)));
        }
    }
}
