//! Makes room: images go until the low mark is reached, however much the runtime's sizes overstate
//! what each of them frees.
//!
//! One round is what the kubelet does in one run: a plan by listed sizes, from the high mark down to the
//! low one. After each batch the room is measured again, and what is no longer needed stays. Sizes overstate
//! what goes, so a further round begins where the low mark is not reached: as long as each batch gains a
//! share of its sizes, and images go.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::batch::Until;
use super::end::End;
use super::room::{Batch, Goal};
use super::{Run, tell};
use crate::gc::Removal;
use crate::model::{Image, ImageId, Images, RemoveReason, Rows, Snapshot, Target};
use crate::snapshot::Look;

impl Run<'_> {
    /// Cleans the images; says whether anything was tried.
    pub(super) async fn clean_images(&mut self, look: &mut Arc<Look>) -> Result<bool, End> {
        if self.is_stale(look) {
            *look = self.look_again().await?;
        }
        if !self.images_are_known(look) {
            return Ok(false);
        }
        let plan = self.plan(look, &[Target::Images].into())?;
        tell::plan(self.record, &plan, Target::Images);
        self.complain_of_images(look, &plan);
        let goal = Goal::of(&self.config.policy, look);
        let mut policy = self.config.policy.clone();
        if goal.is_some() {
            policy.images = policy.images.freeing_on();
        }
        let mut due: VecDeque<Removal> = plan.into_removals().into();
        let tried = !due.is_empty();
        // Where no image may go for room, the pass has nothing to do about it.
        let makes_room = due.iter().any(|it| it.reason == RemoveReason::Space);
        while !due.is_empty() {
            let removed = self.removed_images();
            let gains = self.images_round(look, due).await?;
            let goes_on = gains && !self.given_up && self.removed_images() > removed;
            if !goes_on || !self.images_are_known(look) {
                break;
            }
            let plan = self.plan_under(look, &[Target::Images].into(), &policy)?;
            tell::further(self.record, &plan, Target::Images, "still above the mark");
            due = plan.into_removals().into();
        }
        if let Some(goal) = goal.filter(|_| makes_room) {
            self.complain_of_room(look, &goal);
        }
        Ok(tried)
    }

    /// Removes what is due, batch by batch, until it is gone or no longer needed. Says whether a further
    /// round can make room.
    async fn images_round(
        &mut self,
        look: &mut Arc<Look>,
        mut due: VecDeque<Removal>,
    ) -> Result<bool, End> {
        let mut gains = true;
        let mut policy = self.config.policy.clone();
        policy.images = policy.images.freeing_on();
        let planned = self
            .record
            .pass()
            .targets
            .get(&Target::Images)
            .map(|report| report.planned);
        let planned = planned
            .and_then(|n| usize::try_from(n).ok())
            .unwrap_or(due.len());
        while !due.is_empty() {
            self.bounds()?;
            let size = self.batch_size(due.len());
            let batch: Vec<Removal> = due.drain(..size).collect();
            let number = self.next_number(Target::Images);
            let before = Batch::begins(self.freed_images(), look, &batch);
            let until = Until::OnlySlow;
            let ran = self.batch(Target::Images, number, batch, look, until).await;
            let open = ran.open;
            tell::progress(self.record, Target::Images, number, planned);
            if self.breaks(Target::Images) {
                return Ok(false);
            }
            if open.is_empty() {
                if !due.is_empty() && !self.config.gc.batch_pause.is_zero() {
                    self.rest(self.config.gc.batch_pause).await;
                }
                *look = self.look_again().await?;
                if !self.has_gained(&before, look).await? {
                    gains = false;
                    due.retain(|removal| removal.reason != RemoveReason::Space);
                }
            } else {
                // Not started because of a cancel or the deadline, or lost with the runtime.
                self.bounds()?;
                open.into_iter()
                    .rev()
                    .filter(|removal| removal.subject.target == Target::Images)
                    .for_each(|removal| due.push_front(removal));
                *look = self.runtime_back().await?;
            }
            if !self.images_are_known(look) {
                return Ok(false);
            }
            due = self.still_due_under(look, Target::Images, due, &policy)?;
        }
        Ok(gains)
    }

    /// Says whether the images are known, and writes down once why not: then the pass is not complete.
    pub(super) fn images_are_known(&mut self, look: &Look) -> bool {
        let Images::Unknown(why) = &look.store else {
            return true;
        };
        if self.config.policy.images.enabled {
            self.complain(Target::Images, why);
        }
        false
    }

    /// Takes the images out of a plan's sight that could not be removed in this pass, so that a further round
    /// goes on with others, as the kubelet's walk does after a failure. All records of such an id: what
    /// kept one of them keeps the others.
    pub(super) fn pass_over_what_stayed(&self, snapshot: &mut Snapshot) {
        if self.stayed.is_empty() {
            return;
        }
        if let Images::Known(store) = &mut snapshot.images {
            pass_over(&mut store.rows, &self.stayed);
        }
    }

    pub(super) fn freed_images(&self) -> u64 {
        let pass = self.record.pass();
        let report = pass.targets.get(&Target::Images);
        report.and_then(|report| report.freed_bytes).unwrap_or(0)
    }

    fn removed_images(&self) -> u64 {
        let pass = self.record.pass();
        let report = pass.targets.get(&Target::Images);
        report.map_or(0, |report| report.removed + report.already_gone)
    }
}

fn pass_over(rows: &mut Rows<Image>, stayed: &BTreeSet<String>) {
    let of_stayed = rows.iter().filter(|image| stayed.contains(&image.key()));
    let ids: BTreeSet<ImageId> = of_stayed.map(|image| image.id.clone()).collect();
    rows.retain(|image| !ids.contains(&image.id));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_one_record_that_stayed_every_record_of_its_id_is_passed_over() {
        let image = |id: &str, handler: &str| Image {
            id: ImageId::new(id).unwrap(),
            repo_tags: Vec::new(),
            repo_digests: Vec::new(),
            size_bytes: 1,
            pinned: false,
            handler: handler.to_owned(),
        };
        let mut rows = vec![image("a", ""), image("a", "kata"), image("b", "")].into();
        pass_over(&mut rows, &["a,kata".to_owned(), "c".to_owned()].into());
        assert_eq!(*rows, [image("b", "")]);
    }
}
