//! Tries a batch, and draws the conclusions from what came of it.

use super::queue::Queue;
use super::tally::Tally;
use super::{JOURNAL_PATIENCE, Run};
use crate::gc::{Removal, Target};

impl Run<'_> {
    /// Runs one batch; returns what a cancel or the runtime's going away left open.
    pub(super) async fn batch(
        &mut self,
        target: Target,
        number: u64,
        batch: Vec<Removal>,
        queue: &mut Queue,
    ) -> Vec<Removal> {
        self.batches += 1;
        let size = batch.len();
        self.budget = self
            .budget
            .saturating_sub(u64::try_from(size).unwrap_or(u64::MAX));
        self.record
            .update(|pass| pass.targets.entry(target).or_default().batches += 1);
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
            .intended(&self.record.id(), number, &batch, JOURNAL_PATIENCE)
            .await;
        let (mut tally, executor) = (Tally::default(), &mut self.executor);
        let (runner, record, rules) = (self.runner, self.record, self.rules);
        let unstarted = executor
            .run(number, batch, |done| {
                tally.note(runner, record, rules, done);
            })
            .await;
        let mut open = self.settle(target, tally, queue);
        self.runner.journal.progress(&self.record.pass());
        self.budget = self
            .budget
            .saturating_add(u64::try_from(unstarted.len()).unwrap_or(0));
        open.extend(unstarted);
        open
    }

    /// Waits for the one that is tried for others, or a moment; returns what was lost with the runtime.
    pub(super) async fn wait(&mut self, target: Target, queue: &mut Queue) -> Vec<Removal> {
        let mut tally = Tally::default();
        let (runner, record, rules) = (self.runner, self.record, self.rules);
        self.executor
            .wait(|done| tally.note(runner, record, rules, done))
            .await;
        self.settle(target, tally, queue)
    }

    /// Draws the conclusions from what ended; returns what was lost with the runtime.
    fn settle(&mut self, target: Target, tally: Tally, queue: &mut Queue) -> Vec<Removal> {
        self.take(&tally);
        for (id, ending) in &tally.ended {
            if let Some(held) = queue.ended(id, *ending) {
                self.runner.hold(self.record, target, &held);
            }
        }
        self.budget = self
            .budget
            .saturating_add(u64::try_from(tally.lost.len()).unwrap_or(0));
        tally.lost
    }
}
