//! Runs batches of removals: the journal has them before the first one starts.

use std::sync::Arc;

use super::executor::{Batch, ReturnWhen};
use super::{JOURNAL_PATIENCE, PassRun};
use crate::gc::Removal;
use crate::model::Target;
use crate::snapshot::Look;
use crate::snapshot_file;

impl PassRun<'_> {
    /// Runs batches of some targets side by side, all resting on `look`: reports that they begin, and starts none of
    /// their removals before all are in the journal. Returns the number of the first batch, and how many of its removals
    /// have not started; those are open now.
    pub(super) async fn run_batches(
        &mut self,
        batches: Vec<(Target, Vec<Removal>)>,
        until: ReturnWhen,
        look: &Arc<Look>,
    ) -> (u64, usize) {
        let batches = batches.into_iter();
        let begun = batches.map(|(target, removals)| self.begin_batch(target, removals));
        let mut batches: Vec<Batch> = begun.collect();
        let due = batches
            .iter()
            .flat_map(|batch| batch.removals.iter().map(|it| (batch.number, it)));
        let due: Vec<(u64, &Removal)> = due.collect();
        let journal = &self.runner.journal;
        journal.progress(&self.record.pass());
        let pass = &self.record.id;
        journal.intended(pass, &due, JOURNAL_PATIENCE).await;
        if !self.executor.has_started_any() {
            self.keep_snapshot(look);
        }
        let on_done = |done| self.tally.note(done);
        self.executor.run(&mut batches, until, look, on_done).await;
        let first = batches.first();
        let first = first.map_or((0, 0), |batch| (batch.number, batch.removals.len()));
        let open = batches.into_iter().flat_map(|batch| batch.removals);
        for removal in open {
            self.tally.held_back(removal);
        }
        first
    }

    fn begin_batch(&self, target: Target, removals: Vec<Removal>) -> Batch {
        let number = self.report_of(target, |report| report.batches) + 1;
        self.record.update(|pass| {
            // Logs of removed containers are not a target of a pass without logs.
            if let Some(report) = pass.targets.get_mut(&target) {
                report.batches += 1;
            }
        });
        tracing::info!(
            pass.id = %self.record.id,
            target = target.label(),
            batch = number,
            size = removals.len(),
            in_flight = self.executor.limiter.limit(),
            "batch begins"
        );
        Batch {
            number,
            removals: removals.into(),
        }
    }

    /// Keeps the node as it is before the first removal, so that its plan can be replayed afterwards.
    fn keep_snapshot(&self, look: &Arc<Look>) {
        let at_most = self.config.state.snapshots;
        if at_most == 0 {
            return;
        }
        let (look, config) = (Arc::clone(look), self.config.clone());
        let quarantine = self.runner.next_attempts(look.taken_at);
        let (journal, taken_at) = (&self.runner.journal, look.taken_at);
        journal.keep_snapshot(&self.record.id, taken_at, at_most, move || {
            let snapshot = look.snapshot(quarantine).ok()?;
            snapshot_file::encode(&look.about(&config), &config.policy, &snapshot).ok()
        });
    }
}
