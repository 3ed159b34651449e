//! Cleans one target: plan on a look, carry the plan out batch by batch, look again. One loop for all targets. The
//! journal has the removals of a batch before the first one starts.
//!
//! If a look is incomplete, or images freed less than their listed size, the work is not done after one plan.
//! The pass then plans again on the next look, until a look is complete, nothing more is to be removed, or a
//! round gained nothing.

use std::sync::Arc;

use tokio::time::Instant;

use super::end::EarlyEnd;
use super::executor::{Batch, ReturnWhen};
use super::queue::{NextStep, Queue};
use super::rescue::is_over;
use super::{JOURNAL_PATIENCE, PassRun, Phase};
use crate::gc::{Expected, Plan, Removal};
use crate::model::Target;
use crate::snapshot::Look;
use crate::snapshot_file;

/// The most rounds of one target. If each look shows a little more, the next pass goes on.
const ROUNDS_MAX: usize = 200;

#[derive(Debug, Default)]
struct RoundProgress {
    /// Objects gone before the latest round.
    gone: u64,
    /// The most objects that a look has shown, plus those gone before it.
    shown: u64,
    /// Objects whose removal had failed before the latest round.
    failed: u64,
}

impl PassRun<'_> {
    /// Cleans one target, in one or several rounds. Rounds from `first_round` 1 on leave out what this pass has tried.
    pub(super) async fn clean(
        &mut self,
        first_round: usize,
        target: Target,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        let mut rounds = RoundProgress::default();
        // The wanted room depends on current usage.
        if target == Target::Images {
            if self.is_stale(look) {
                *look = self.look_again().await?;
            }
            self.await_room(look).await?;
        }
        for round in first_round..ROUNDS_MAX {
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

    /// Cleans sandboxes once more if containers have gone since sandboxes were planned, so that a pod's
    /// containers and its sandbox go in one pass. Not after the circuit breaker, which ends a target for the
    /// whole pass.
    pub(super) async fn clean_after_slow_containers(
        &mut self,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        if let Some(gone) = self.gone_at_sandboxes
            && self.all_end().await
            && self.gone_of(Target::Containers) > gone
            && self.mostly_fails(Target::Sandboxes).is_none()
        {
            *look = self.look_again().await?;
            self.clean(1, Target::Sandboxes, look).await?;
        }
        Ok(())
    }

    /// Waits for removals in flight, as long as one may take; says whether all have ended, and the pass goes on.
    pub(super) async fn all_end(&mut self) -> bool {
        let until = Instant::now() + self.config.runtime.removal_timeout;
        while !self.executor.is_idle() && Instant::now() < until {
            if self.wait().await.is_err() {
                return false;
            }
        }
        self.executor.is_idle()
    }

    /// Plans on a look and reports the plan; `None` if the target cannot be reached.
    fn plan_round(
        &mut self,
        target: Target,
        round: usize,
        look: &Look,
    ) -> Result<Option<Vec<Removal>>, EarlyEnd> {
        if target == Target::Images && !self.images_are_known(look) {
            return Ok(None);
        }
        if target == Target::Sandboxes {
            self.gone_at_sandboxes = Some(self.gone_of(Target::Containers));
        }
        let policy = self.policy_of_round(target, round);
        let mut plan = self.plan(look, &[target].into(), &policy)?;
        self.report_plan_problems(target, round, look, &plan);
        self.tally.keep_lost(target, &plan);
        // The runtime lists an object until its removal ends; the summary still counts it.
        let mut in_flight = self.executor.of(target);
        plan.removals
            .retain(|it| in_flight.remove(&it.subject.id).is_none());
        // What an earlier round left open is planned anew, if it is still due.
        let open = self.take_open(target);
        if round == 0 {
            // The summary lacks those that have ended before this look and are not noted yet.
            self.tally
                .planned(&plan, target, in_flight.into_values().collect());
        } else {
            self.tally.take_back(&open, target);
            self.drop_tried(target, &mut plan);
            let why = match target {
                Target::Images => "still above the low threshold",
                Target::Containers | Target::Sandboxes | Target::Logs => "due by now",
            };
            self.tally.planned_further(&plan, target, why);
        }
        if target == Target::Logs && !self.can_reach_logs(look, &plan) {
            return Ok(None);
        }
        // Kept objects are already reported; free them.
        let mut removals = plan.removals;
        self.runner.failures.lock().put_last(&mut removals);
        for removal in &removals {
            let found = (target, removal.subject.id.clone());
            self.no_longer_seen.remove(&found);
        }
        Ok(Some(removals))
    }

    /// Drops from a further round's plan what this pass has tried to remove: once in a pass is enough.
    fn drop_tried(&mut self, target: Target, plan: &mut Plan) {
        let (stayed, gone) = (&self.tally.stayed, &self.tally.gone);
        plan.removals
            .retain(|it| !stayed.contains_key(it.subject.id.as_str()));
        let count = plan.removals.len();
        plan.removals
            .retain(|it| !gone.contains(&(target, it.subject.id.clone())));
        let still_listed = count - plan.removals.len();
        if still_listed > 0 {
            let why =
                format!("{still_listed} removed or gone are still listed, and are not tried again");
            self.report_problem(target, &why);
        }
    }

    /// Reports what the plan could not take into account.
    fn report_plan_problems(&mut self, target: Target, round: usize, look: &Look, plan: &Plan) {
        match target {
            Target::Images if round == 0 => self.set_goal(look, plan),
            Target::Images => {}
            Target::Containers | Target::Sandboxes | Target::Logs => {
                self.report_knowledge(look, &[target].into());
                if round == 0 {
                    self.report_row_problems(look);
                    self.report_incomplete_look(look.seen());
                }
            }
        }
    }

    /// Says whether another round may find more, and takes the look for it: something was removed and room is
    /// still missing, or the look was incomplete and something was removed or a later look showed more.
    async fn wants_round(
        &mut self,
        target: Target,
        basis: &Look,
        look: &mut Arc<Look>,
        rounds: &mut RoundProgress,
    ) -> Result<bool, EarlyEnd> {
        let gone = self.gone_of(target);
        let gone_before = std::mem::replace(&mut rounds.gone, gone);
        let has_removed = gone > gone_before;
        if target == Target::Images {
            let failed = self.report_of(target, |report| report.failed);
            let failed_before = std::mem::replace(&mut rounds.failed, failed);
            return Ok(self.may_gain(look, has_removed, failed > failed_before));
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

    /// Reports objects that may remain because no look was complete.
    fn report_unseen(&mut self, target: Target, look: &Look) {
        let lost = self.no_longer_seen.iter().filter(|(of, _)| *of == target);
        let lost = lost.count();
        if lost > 0 {
            self.report_problem(
                target,
                &format!(
                    "{lost} were planned, and no later look showed them: the runtime's lists could not be read completely"
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

    async fn carry_out(
        &mut self,
        target: Target,
        removals: Vec<Removal>,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        let mut queue = Queue::new(removals, self.runner.quarantine.lock().known_failures());
        let ended = self.empty_queue(target, &mut queue, look).await;
        let untried = queue.take().into_iter();
        let untried = untried.map(|it| (target, it.subject.id));
        self.tally.untried.extend(untried);
        ended
    }

    async fn empty_queue(
        &mut self,
        target: Target,
        queue: &mut Queue,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        let planned = self.report_of(target, |report| report.planned);
        loop {
            if !queue.is_empty() {
                self.bounds()?;
                // After image batches the look is replaced by `measure_after`.
                if target != Target::Images && self.is_stale(look) {
                    *look = self.look_again().await?;
                    self.still_due(look, target, queue)?;
                }
            }
            match queue.next(self.batch_size()) {
                NextStep::Batch(removals) => {
                    let (size, until) = (removals.len(), self.next_batch_begins(target, queue));
                    self.given_up = false;
                    let mut logs = Vec::new();
                    if target == Target::Images {
                        self.measure_before(look, &removals);
                    } else {
                        // Space freed by logs must not count as freed by images, so there logs wait for the pass's end.
                        logs = self.due_logs(look);
                    }
                    let mut batches = vec![(target, removals)];
                    if !logs.is_empty() {
                        batches.push((Target::Logs, logs));
                    }
                    let (number, unstarted) = self.run_batches(batches, until, look).await;
                    // A lost removal may have succeeded, so it still counts against the bound.
                    let started = size.saturating_sub(unstarted) as u64;
                    self.removals_left = self.removals_left.saturating_sub(started);
                    self.tally.batch_ended(target, number, planned);
                }
                NextStep::Wait if self.executor.is_idle() => return Ok(()),
                NextStep::Done if self.executor.only_slow() => return Ok(()),
                NextStep::Wait | NextStep::Done => self.wait().await?,
            }
            if target != Target::Images && queue.is_empty() {
                self.logs_follow(look).await;
            }
            self.conclude(target, queue);
            if self.mostly_fails(target).is_some() {
                // What is still in flight counts too, and must not be planned a second time.
                while !self.executor.only_slow() {
                    self.wait().await?;
                }
                self.conclude(target, queue);
                if self.breaks(target) {
                    self.take_open(target);
                    return Ok(());
                }
            }
            self.resume(target, look, queue).await?;
        }
    }

    /// After a batch: takes back removals that a lost runtime left open, rests, and measures what images freed.
    async fn resume(
        &mut self,
        target: Target,
        look: &mut Arc<Look>,
        queue: &mut Queue,
    ) -> Result<(), EarlyEnd> {
        let went_away = std::mem::take(&mut self.tally.went_away);
        let is_due = |it: &Removal| [target, Target::Logs].contains(&it.subject.target);
        let has_open = went_away || self.tally.open.iter().any(is_due);
        let open = self.take_open(target);
        if has_open {
            // Not started because of a cancel.
            self.bounds()?;
        }
        // Images get no look after a rest, because the measurement takes one.
        let has_looked = target == Target::Images && went_away;
        if has_open && target == Target::Images && !went_away {
            // They would make room that is or may be there: the measurement decides.
            queue.give_back(open);
        } else if has_open {
            let was_lost =
                |it: &Removal| self.tally.lost.contains(&(target, it.subject.id.clone()));
            let (lost, unstarted) = open.into_iter().partition(was_lost);
            queue.give_back(unstarted);
            queue.give_back_lost(lost);
            *look = self.runtime_back().await?;
            self.space.before = None;
            self.still_due(look, target, queue)?;
        }
        let pause = self.config.gc.batch_pause;
        if !has_looked && !queue.is_empty() && !pause.is_zero() {
            self.rest(pause).await;
        }
        self.measure_after(look, queue).await
    }

    /// Takes the removals of a target that a lost runtime left open. Logs of removed containers are in no later plan,
    /// so they wait until logs are removed again; a slow removal of another target does not belong in this queue, and the
    /// report names it.
    fn take_open(&mut self, target: Target) -> Vec<Removal> {
        self.take_open_logs();
        let open = std::mem::take(&mut self.tally.open).into_iter();
        let (open, others) = open.partition(|it| it.subject.target == target);
        self.tally.open = others;
        open
    }

    pub(super) fn take_open_logs(&mut self) {
        let open = std::mem::take(&mut self.tally.open).into_iter();
        let (logs, others): (Vec<_>, Vec<_>) =
            open.partition(|removal| matches!(removal.expected, Expected::ContainerLog(_)));
        self.open_logs.extend(logs);
        self.tally.open = others;
    }

    /// Waits for the class probe in flight, or a moment.
    pub(super) async fn wait(&mut self) -> Result<(), EarlyEnd> {
        self.not_stopped()?;
        let on_done = |done| self.tally.note(done);
        self.executor.wait(on_done).await;
        Ok(())
    }

    /// Applies the result of class probes to the other sandboxes of their class.
    fn conclude(&mut self, target: Target, queue: &mut Queue) {
        for (id, outcome) in std::mem::take(&mut self.tally.ended) {
            if let Some(held) = queue.ended(&id, &outcome) {
                self.tally.hold(target, &held);
            }
        }
    }

    /// Returns when the next batch begins: as soon as there is room, except around a rest, at the end of the queue, and
    /// for images, whose freed space is measured.
    fn next_batch_begins(&self, target: Target, queue: &Queue) -> ReturnWhen {
        let last = queue.is_empty() || queue.is_alone() || !self.config.gc.batch_pause.is_zero();
        match target {
            Target::Images => ReturnWhen::NoImage,
            Target::Containers | Target::Sandboxes | Target::Logs if last => ReturnWhen::OnlySlow,
            Target::Containers | Target::Sandboxes | Target::Logs => ReturnWhen::Room,
        }
    }

    fn batch_size(&self) -> usize {
        let left = usize::try_from(self.removals_left).unwrap_or(usize::MAX);
        self.config.gc.batch_size.min(left)
    }

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
