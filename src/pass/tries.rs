//! Tries a batch, and draws the conclusions from what came of it.

use std::sync::Arc;

use super::batch::Until;
use super::queue::{Ending, Queue};
use super::tally::Tally;
use super::{JOURNAL_PATIENCE, Run};
use crate::gc::Removal;
use crate::model::Target;
use crate::snapshot::Look;

/// What came of a batch, or of waiting.
#[derive(Default)]
pub(super) struct Ran {
    /// What a cancel, the deadline or the runtime's going away left open.
    pub(super) open: Vec<Removal>,
    /// How each sandbox ended.
    pub(super) ended: Vec<(String, Ending)>,
}

impl Run<'_> {
    /// Runs one batch. `look` is the one that it rests on; `until` does not concern images.
    pub(super) async fn batch(
        &mut self,
        target: Target,
        number: u64,
        batch: Vec<Removal>,
        look: &Arc<Look>,
        until: Until,
    ) -> Ran {
        self.batches += 1;
        self.given_up = false;
        let size = batch.len();
        self.budget = self
            .budget
            .saturating_sub(u64::try_from(size).unwrap_or(u64::MAX));
        self.record.update(|pass| {
            // Logs that follow their containers are no target of a pass that was not asked for logs.
            if let Some(report) = pass.targets.get_mut(&target) {
                report.batches += 1;
            }
        });
        tracing::info!(
            pass.id = %self.record.id(),
            target = target.label(),
            batch = number,
            size,
            in_flight = self.executor.limit(),
            "batch begins"
        );
        let journal = &self.runner.journal;
        journal
            .intended(self.record.id(), number, &batch, JOURNAL_PATIENCE)
            .await;
        let (mut tally, executor) = (Tally::default(), &mut self.executor);
        let (runner, record, back_off) = (self.runner, self.record, self.config.quarantine);
        let on_done = |done| tally.note(runner, record, back_off, done);
        let unstarted = match target {
            Target::Images => executor.run_one_by_one(number, batch, look, on_done).await,
            Target::Containers | Target::Sandboxes | Target::Logs => {
                executor.run(number, batch, until, on_done).await
            }
        };
        let mut ran = self.ran(tally);
        self.runner.journal.progress(&self.record.pass());
        // What is lost may have gone all the same: it has had its share of the bound.
        let count = u64::try_from(unstarted.len()).unwrap_or(0);
        self.budget = self.budget.saturating_add(count);
        ran.open.extend(unstarted);
        ran
    }

    /// Waits for the one that is tried for others, or a moment.
    pub(super) async fn wait(&mut self) -> Ran {
        let mut tally = Tally::default();
        let (runner, record, back_off) = (self.runner, self.record, self.config.quarantine);
        self.executor
            .wait(|done| tally.note(runner, record, back_off, done))
            .await;
        self.ran(tally)
    }

    /// Draws the conclusions from how sandboxes ended for others of their class.
    pub(super) fn conclude(&self, target: Target, ended: &[(String, Ending)], queue: &mut Queue) {
        for (id, ending) in ended {
            if let Some(held) = queue.ended(id, *ending) {
                self.runner.hold(self.record, target, &held);
            }
        }
    }

    fn ran(&mut self, mut tally: Tally) -> Ran {
        self.take(&mut tally);
        Ran {
            open: tally.lost,
            ended: tally.ended,
        }
    }
}
