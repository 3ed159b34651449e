//! Cleans one target, in one round or in several: where a look shows only a part of the node, what is done
//! after it is not all that there is to do. So the node is looked at again, and what that look shows goes too,
//! until a look shows everything, or nothing more to remove.

use std::sync::Arc;

use super::end::End;
use super::queue::{Next, Queue};
use super::rescue::is_over;
use super::{Phase, Run, tell};
use crate::gc::Removal;
use crate::model::Target;
use crate::snapshot::Look;

/// Rounds of one target, at most: where each look shows a little more for ever, the next pass goes on.
const ROUNDS_MAX: usize = 200;

/// How far the rounds of one target have come.
#[derive(Debug, Default)]
struct Far {
    /// What had gone before the latest round.
    gone: u64,
    /// The most that a look has shown, with what had gone before it.
    shown: u64,
}

impl Run<'_> {
    /// Cleans one target; says whether anything was tried since `look` was taken.
    pub(super) async fn clean(
        &mut self,
        target: Target,
        look: &mut Arc<Look>,
    ) -> Result<bool, End> {
        let mut far = Far::default();
        for round in 0..ROUNDS_MAX {
            let basis = Arc::clone(look);
            let tried = self.round(target, round, look).await?;
            let is_done = basis.seen().is_all() || self.given_up;
            if is_done || !self.has_got_on(target, &basis, &mut far) {
                if !is_done && self.phase == Phase::Cleaning {
                    self.complain_of_unseen(target, &basis);
                }
                return Ok(tried);
            }
            *look = self.look_again().await?;
            if self.phase == Phase::Rescue && !is_over(look) {
                return Ok(false);
            }
        }
        let why = format!("{ROUNDS_MAX} looks showed only a part each; the rest stays");
        self.complain(target, &why);
        Ok(false)
    }

    /// Plans on a look and carries the plan out; says whether anything was tried.
    pub(super) async fn round(
        &mut self,
        target: Target,
        round: usize,
        look: &mut Arc<Look>,
    ) -> Result<bool, End> {
        let mut plan = self.plan(look, &[target].into())?;
        self.tell_knowledge(look, &[target].into());
        if round == 0 {
            self.tell_if_incomplete(look.seen());
            tell::plan(self.record, &plan, target);
        } else {
            // What failed is tried once in a pass.
            plan.removals
                .retain(|it| !self.stayed.contains(it.subject.id.as_str()));
            tell::further(self.record, &plan, target, "seen by now");
        }
        if target == Target::Logs && !self.can_reach_logs(look, &plan) {
            return Ok(false);
        }
        // What stays is told, and would only take room while the pass runs.
        let removals = plan.into_removals();
        for removal in &removals {
            let found = (target, removal.subject.id.clone());
            self.lost_sight_of.remove(&found);
        }
        let tried = !removals.is_empty();
        self.carry_out(target, removals, look).await?;
        Ok(tried)
    }

    /// Says whether another round may find more: something went, or a look that had no time for all showed more than
    /// those before it.
    fn has_got_on(&self, target: Target, basis: &Look, far: &mut Far) -> bool {
        let pass = self.record.pass();
        let gone = pass.targets.get(&target);
        let gone = gone.map_or(0, |report| report.removed + report.already_gone);
        let shown = basis.rows().saturating_add(far.gone);
        let got_on = gone > far.gone || basis.is_cut_short() && shown > far.shown;
        far.gone = gone;
        far.shown = shown.max(far.shown);
        got_on
    }

    /// Says what may be left because no look showed all that is there.
    fn complain_of_unseen(&mut self, target: Target, look: &Look) {
        let lost = self.lost_sight_of.iter().filter(|(of, _)| *of == target);
        let lost = lost.count();
        if lost > 0 {
            self.complain(
                target,
                &format!(
                    "{lost} were due, and no look showed them again: the runtime's lists could not be read whole"
                ),
            );
        }
        if look.is_cut_short() {
            self.complain(
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
        let planned = removals.len();
        let mut queue = Queue::new(removals, self.runner.known_failures());
        loop {
            if !queue.is_empty() {
                self.bounds()?;
                if self.is_stale(look) {
                    *look = self.look_again().await?;
                    self.still_due(look, target, &mut queue)?;
                }
            }
            let mut ran = match queue.next(self.batch_size(usize::MAX)) {
                Next::Batch(batch) => {
                    let number = self.next_number(target);
                    let until = self.next_batch_begins(target, &queue);
                    let ran = self.batch(target, number, batch, look, until).await;
                    tell::progress(self.record, target, number, planned);
                    ran
                }
                Next::Wait if !self.executor.is_idle() => {
                    self.not_stopped()?;
                    self.wait().await
                }
                Next::Done if !self.executor.only_slow() => {
                    self.not_stopped()?;
                    self.wait().await
                }
                Next::Wait | Next::Done => break,
            };
            let mut followed = self.logs_follow(look).await;
            ran.ended.append(&mut followed.ended);
            ran.open.append(&mut followed.open);
            self.conclude(target, &ran.ended, &mut queue);
            let mut open = ran.open;
            if self.breaks(target) {
                break;
            }
            if !open.is_empty() {
                // A slow one of another target that was lost is not for this queue.
                open.retain(|removal| removal.subject.target == target);
                // Not started because of a cancel, or lost with the runtime.
                self.bounds()?;
                queue.give_back(open);
                *look = self.runtime_back().await?;
                self.still_due(look, target, &mut queue)?;
            }
            if !queue.is_empty() && !self.config.gc.batch_pause.is_zero() {
                self.rest(self.config.gc.batch_pause).await;
            }
        }
        Ok(())
    }
}
