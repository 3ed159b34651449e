//! What follows when a pass ends: the next one may begin, a follow-up is queued, and its end is logged.

use std::num::NonZeroU64;

use super::{Worker, clock, trigger_of};
use crate::model::{Outcome, Pass, PassState};
use crate::pass::record::PassRecord;
use crate::pass::{JOURNAL_PATIENCE, PassEnd};

impl Worker {
    /// Records the end of the pass that ran.
    pub(super) async fn finished(&self, record: &PassRecord, end: PassEnd) {
        self.free(&end);
        let pass = ended(record.pass(), end.outcome);
        let journal = &self.inner.runner.journal;
        journal.ended(&pass);
        // A client that saw the end must not see "interrupted" after a crash.
        journal.settled(JOURNAL_PATIENCE).await;
        self.close(record, &pass);
        log_end(&pass, 0);
    }

    /// Lets the next pass begin, and queues the follow-up of the ended one.
    fn free(&self, end: &PassEnd) {
        let now = self.inner.began.elapsed();
        let mut guard = self.state();
        let state = &mut *guard;
        let follow_up = state
            .admissions
            .finished(end, now, || state.history.next_id());
        if let Some(queued) = follow_up {
            self.enlist(state, &queued, trigger_of(&queued), now);
        }
        self.show_waiting(state);
    }

    /// Ends a pass that never began. `line`: how many log lines were dropped before this one; `None`: neither
    /// log line nor journal entry is written.
    pub(super) fn end(&self, record: &PassRecord, why: &str, line: Option<u64>) {
        record.error(why.to_owned());
        let pass = ended(record.pass(), Outcome::Aborted);
        self.close(record, &pass);
        if let Some(left_out) = line {
            self.inner.runner.journal.ended(&pass);
            log_end(&pass, left_out);
        }
    }

    fn close(&self, record: &PassRecord, ended: &Pass) {
        // Write lines before the end, so that a follower who sees the end has all lines.
        record.line(summary(ended));
        record.update(|pass| pass.clone_from(ended));
        self.changed();
        self.runner().metrics.pass_finished(ended);
        self.runner().events.pass_ended(ended);
    }
}

/// Logs the end of a pass, with the number of dropped log lines before it.
fn log_end(pass: &Pass, left_out: u64) {
    let (outcome, left_out) = (pass.outcome.map(Outcome::label), NonZeroU64::new(left_out));
    tracing::info!(pass.id = %pass.id, outcome, left_out, "{}", summary(pass));
}

fn ended(pass: Pass, outcome: Outcome) -> Pass {
    Pass {
        state: PassState::Done,
        outcome: Some(outcome),
        finished_at: Some(clock()),
        ..pass
    }
}

/// Returns one line about how a pass ended.
pub(super) fn summary(pass: &Pass) -> String {
    let outcome = pass.outcome.map_or("running", Outcome::label);
    let dry = if pass.dry_run {
        " (dry run, nothing was removed)"
    } else {
        ""
    };
    let targets: Vec<String> = pass
        .targets
        .iter()
        .map(|(target, report)| {
            let mut text = if pass.dry_run {
                format!("{target} {} to remove", report.planned)
            } else {
                format!("{target} {} removed", report.removed)
            };
            let rest = [
                (report.already_gone, "already gone"),
                (report.failed, "failed"),
                (report.skipped, "skipped"),
                (if pass.dry_run { 0 } else { report.remaining }, "remaining"),
            ];
            for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
                text.push_str(&format!(", {count} {what}"));
            }
            text
        })
        .collect();
    let why = pass
        .last_error()
        .filter(|_| pass.outcome != Some(Outcome::Completed));
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    format!(
        "pass {} {outcome}{dry}{why}: {}",
        pass.id,
        targets.join("; ")
    )
}
