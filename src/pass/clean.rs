//! Cleans one target: plan on a look, carry the plan out batch by batch, look again. One loop for all targets.
//!
//! Where a look shows only a part of the node, what is done after it is not all that there is to do; the sizes
//! of images overstate what they free. So the pass plans again on the next look, until a look shows
//! everything, nothing more is to be removed, or a round gained nothing.

use std::sync::Arc;

use super::end::End;
use super::executor::Until;
use super::queue::{Next, Queue};
use super::rescue::is_over;
use super::{JOURNAL_PATIENCE, Phase, Run, progress};
use crate::gc::{Plan, Removal};
use crate::model::Target;
use crate::snapshot::Look;

/// Rounds of one target, at most: where each look shows a little more for ever, the next pass goes on.
const ROUNDS_MAX: usize = 200;

/// How far the rounds of one target have come.
#[derive(Debug, Default)]
struct RoundProgress {
    /// What had gone before the latest round.
    gone: u64,
    /// The most that a look has shown, with what had gone before it.
    shown: u64,
}

impl Run<'_> {
    /// Cleans one target, in one round or in several.
    pub(super) async fn clean(&mut self, target: Target, look: &mut Arc<Look>) -> Result<(), End> {
        let mut rounds = RoundProgress::default();
        // How much room is wanted depends on the look's age.
        if target == Target::Images && self.is_stale(look) {
            *look = self.look_again().await?;
        }
        for round in 0..ROUNDS_MAX {
            let basis = Arc::clone(look);
            let Some(removals) = self.plan_round(target, round, look)? else {
                return Ok(());
            };
            self.carry_out(target, removals, look).await?;
            if !self.wants_round(target, &basis, look, &mut rounds).await? {
                return Ok(());
            }
        }
        let why = format!("{ROUNDS_MAX} rounds were not enough; the rest stays");
        self.report_problem(target, &why);
        Ok(())
    }

    /// Plans on a look, and says what the plan wants and why; `None` where the target is out of reach.
    fn plan_round(
        &mut self,
        target: Target,
        round: usize,
        look: &Look,
    ) -> Result<Option<Vec<Removal>>, End> {
        if target == Target::Images && !self.images_are_known(look) {
            return Ok(None);
        }
        let policy = self.policy_of_round(target, round);
        let mut plan = self.plan_under(look, &[target].into(), &policy)?;
        self.report_plan_problems(target, round, look, &plan);
        if round == 0 {
            progress::planned(self.record, &plan, target);
        } else {
            // What failed is tried once in a pass.
            let stayed = &self.tally.stayed;
            plan.removals
                .retain(|it| !stayed.contains(it.subject.id.as_str()));
            let why = match target {
                Target::Images => "still above the mark",
                Target::Containers | Target::Sandboxes | Target::Logs => "seen by now",
            };
            progress::further(self.record, &plan, target, why);
        }
        if target == Target::Logs && !self.can_reach_logs(look, &plan) {
            return Ok(None);
        }
        // The reasons to keep are reported by now and would only take room while the pass runs.
        let removals = plan.into_removals();
        for removal in &removals {
            let found = (target, removal.subject.id.clone());
            self.no_longer_seen.remove(&found);
        }
        Ok(Some(removals))
    }

    /// Says what a plan could not take into account.
    fn report_plan_problems(&mut self, target: Target, round: usize, look: &Look, plan: &Plan) {
        match target {
            Target::Images if round == 0 => self.set_goal(look, plan),
            Target::Images => {}
            Target::Containers | Target::Sandboxes | Target::Logs => {
                self.report_knowledge(look, &[target].into());
                if round == 0 {
                    self.tell_if_incomplete(look.seen());
                }
            }
        }
    }

    /// Says whether another round may find more, and looks for it: something went and room is still wanted, or
    /// the look did not show everything and something went or a later look showed more.
    async fn wants_round(
        &mut self,
        target: Target,
        basis: &Look,
        look: &mut Arc<Look>,
        rounds: &mut RoundProgress,
    ) -> Result<bool, End> {
        let gone = self.gone_of(target);
        let gone_before = std::mem::replace(&mut rounds.gone, gone);
        let has_removed = gone > gone_before;
        if target == Target::Images {
            return Ok(self.may_gain(look, has_removed));
        }
        if basis.seen().is_all() || self.given_up {
            return Ok(false);
        }
        let shown = basis.rows().saturating_add(gone_before);
        let shows_more = basis.is_cut_short() && shown > rounds.shown;
        rounds.shown = shown.max(rounds.shown);
        if !has_removed && !shows_more {
            if self.phase == Phase::Cleaning {
                self.report_unseen(target, basis);
            }
            return Ok(false);
        }
        *look = self.look_again().await?;
        Ok(self.phase != Phase::Rescue || is_over(look))
    }

    /// Says what may be left because no look showed all that is there.
    fn report_unseen(&mut self, target: Target, look: &Look) {
        let lost = self.no_longer_seen.iter().filter(|(of, _)| *of == target);
        let lost = lost.count();
        if lost > 0 {
            self.report_problem(
                target,
                &format!(
                    "{lost} were due, and no look showed them again: the runtime's lists could not be read whole"
                ),
            );
        }
        if look.is_cut_short() {
            self.report_problem(
                target,
                "the runtime's lists could not be read to their end in their time (runtime.timeout); what was not \
                 read stays",
            );
        }
    }

    /// Carries out what is due, batch by batch.
    async fn carry_out(
        &mut self,
        target: Target,
        removals: Vec<Removal>,
        look: &mut Arc<Look>,
    ) -> Result<(), End> {
        let planned = self.report_of(target, |report| report.planned);
        let mut queue = Queue::new(removals, self.runner.known_failures());
        loop {
            if !queue.is_empty() {
                self.bounds()?;
                // Images are looked at after each batch.
                if target != Target::Images && self.is_stale(look) {
                    *look = self.look_again().await?;
                    self.still_due(look, target, &mut queue)?;
                }
            }
            match queue.next(self.batch_size()) {
                Next::Batch(batch) => {
                    let until = self.next_batch_begins(target, &queue);
                    let number = self.batch(target, batch, until, look).await;
                    progress::batch(self.record, target, number, planned);
                }
                Next::Wait if self.executor.is_idle() => return Ok(()),
                Next::Done if self.executor.only_slow() => return Ok(()),
                Next::Wait | Next::Done => self.wait().await?,
            }
            // What logs free must not count as what a batch of images freed: theirs wait for the pass's end.
            if target != Target::Images {
                self.logs_follow(look).await;
            }
            self.conclude(target, &mut queue);
            if self.breaks(target) {
                self.tally.open.clear();
                return Ok(());
            }
            self.take_up_again(target, look, &mut queue).await?;
        }
    }

    /// After a batch: takes back what the runtime's going away left open, rests, and measures what images freed.
    async fn take_up_again(
        &mut self,
        target: Target,
        look: &mut Arc<Look>,
        queue: &mut Queue,
    ) -> Result<(), End> {
        let mut open = std::mem::take(&mut self.tally.open);
        // No look follows a rest between images: the batch after it would rest on one as old as that.
        let has_looked = target == Target::Images && !open.is_empty();
        if !open.is_empty() {
            // A slow one of another target that was lost is not for this queue.
            open.retain(|removal| removal.subject.target == target);
            // Not started because of a cancel, or lost with the runtime.
            self.bounds()?;
            queue.give_back(open);
            *look = self.runtime_back().await?;
            self.room.forget_batch();
            self.still_due(look, target, queue)?;
        }
        let pause = self.config.gc.batch_pause;
        if !has_looked && !queue.is_empty() && !pause.is_zero() {
            self.rest(pause).await;
        }
        self.measure_after(look, queue).await
    }

    /// Runs one batch, and returns its number. `look` is the one that it rests on.
    pub(super) async fn batch(
        &mut self,
        target: Target,
        batch: Vec<Removal>,
        until: Until,
        look: &Arc<Look>,
    ) -> u64 {
        let (number, size) = (
            self.report_of(target, |report| report.batches) + 1,
            batch.len(),
        );
        self.given_up = false;
        self.budget = self.budget.saturating_sub(size as u64);
        if target == Target::Images {
            self.measure_before(look, &batch);
        }
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
        let (runner, record, back_off) = (self.runner, self.record, self.config.quarantine);
        let intended = runner
            .journal
            .intended(record.id(), number, &batch, JOURNAL_PATIENCE);
        intended.await;
        let (tally, executor) = (&mut self.tally, &mut self.executor);
        let on_done = |done| tally.note(runner, record, back_off, done);
        let unstarted = executor.run(number, batch, until, look, on_done).await;
        runner.journal.progress(&record.pass());
        // What is lost may have gone all the same: it has had its share of the bound.
        self.budget = self.budget.saturating_add(unstarted.len() as u64);
        self.tally.open.extend(unstarted);
        number
    }

    /// Waits for the one that is tried for others, or a moment.
    async fn wait(&mut self) -> Result<(), End> {
        self.not_stopped()?;
        let (runner, record, back_off) = (self.runner, self.record, self.config.quarantine);
        let (tally, executor) = (&mut self.tally, &mut self.executor);
        let on_done = |done| tally.note(runner, record, back_off, done);
        executor.wait(on_done).await;
        Ok(())
    }

    /// Draws the conclusions from how sandboxes ended for others of their class.
    fn conclude(&mut self, target: Target, queue: &mut Queue) {
        for (id, outcome) in std::mem::take(&mut self.tally.ended) {
            if let Some(held) = queue.ended(&id, &outcome) {
                self.runner.hold(self.record, target, &held);
            }
        }
    }

    /// Returns when the batch after this one begins. Sandboxes may wait for their network: there as soon as
    /// there is room, unless there is a rest before it, or none.
    fn next_batch_begins(&self, target: Target, queue: &Queue) -> Until {
        let last = queue.is_empty() || !self.config.gc.batch_pause.is_zero();
        match target {
            Target::Sandboxes if !last => Until::Room,
            Target::Sandboxes | Target::Containers | Target::Logs => Until::OnlySlow,
            Target::Images => Until::NoImage,
        }
    }

    /// Returns how many the next batch may take.
    fn batch_size(&self) -> usize {
        let budget = usize::try_from(self.budget).unwrap_or(usize::MAX);
        self.config.gc.batch_size.min(budget)
    }
}
