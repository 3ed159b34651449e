//! Whether removing images makes room: what a batch gained, and how far the low mark is. As `statvfs` says,
//! whatever sizes the runtime lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Run;
use super::end::End;
use crate::gc::images::{space_wanted, unknown_users};
use crate::gc::{Plan, Policy, Removal};
use crate::model::{FilesystemUsage, Images, KeepReason, RemoveReason, Target};
use crate::snapshot::Look;

/// A batch gains at least this part of the sizes that the runtime lists.
const GAIN_LEAST: u64 = 10;
/// A runtime may free what it removed a little later: the file system is measured again after these times.
const MEASURED_AGAIN: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// How much room a pass is to make.
pub(super) struct Goal {
    wanted: u64,
    before: FilesystemUsage,
}

impl Goal {
    /// Returns how much is wanted; `None` below the high mark, or where the file system is not known.
    pub(super) fn of(policy: &Policy, look: &Look) -> Option<Self> {
        let before = usage(look)?;
        let wanted = space_wanted(&policy.images, before);
        (policy.images.enabled && wanted > 0).then_some(Self { wanted, before })
    }
}

/// What was so before a batch.
pub(super) struct Batch {
    /// Sum of the listed sizes of what had gone.
    freed: u64,
    /// The file system, where the batch is to make room.
    usage: Option<FilesystemUsage>,
}

impl Batch {
    pub(super) fn begins(freed: u64, look: &Look, batch: &[Removal]) -> Self {
        let makes_room = batch.iter().any(|it| it.reason == RemoveReason::Space);
        let usage = usage(look).filter(|_| makes_room);
        Self { freed, usage }
    }
}

impl Run<'_> {
    /// Says whether the batch gained enough to go on. A look that is older than the gain is replaced.
    pub(super) async fn has_gained(
        &mut self,
        batch: &Batch,
        look: &mut Arc<Look>,
    ) -> Result<bool, End> {
        let listed = self.freed_images().saturating_sub(batch.freed);
        let (Some(before), Some(after)) = (batch.usage, usage(look)) else {
            return Ok(true);
        };
        let mut gain = gained(before, after);
        for pause in MEASURED_AGAIN {
            if gain >= listed / GAIN_LEAST {
                break;
            }
            self.rest(pause).await;
            self.bounds()?;
            if let Some(after) = self.runner.observer.image_filesystem().await {
                gain = gained(before, after);
                if gain >= listed / GAIN_LEAST {
                    *look = self.look_again().await?;
                }
            }
        }
        let is_enough = gain >= listed / GAIN_LEAST;
        if !is_enough {
            self.complain(
                Target::Images,
                &format!(
                    "a batch of {listed} bytes, as the runtime lists them, freed {gain} bytes: something else fills \
                     the file system; the rest stays"
                ),
            );
        }
        Ok(is_enough)
    }

    /// Says what keeps images from going that the policy wants gone.
    pub(super) fn complain_of_images(&mut self, look: &Look, plan: &Plan) {
        let blocked = plan
            .kept
            .iter()
            .filter(|kept| kept.reason == KeepReason::UnknownUser);
        let count = blocked.count();
        let users = look.snapshot(BTreeMap::new()).ok();
        if let Some(users) = users.and_then(|snapshot| unknown_users(&snapshot))
            && count > 0
        {
            self.complain(Target::Images, &format!("{count} images stay: {users}"));
        }
        let Images::Known(store) = &look.store else {
            return;
        };
        let rules = &self.config.policy.images;
        if let Some(other) = &store.other_mount
            && rules.enabled
            && space_wanted(rules, other.usage) > 0
        {
            let why = &other.why;
            self.complain(Target::Images, &format!("no room is made: {why}"));
        }
    }

    /// Says how much of the room is still missing, if any.
    pub(super) fn complain_of_room(&mut self, look: &Look, goal: &Goal) {
        let rules = self.config.policy.images.freeing_on();
        let Some(after) = usage(look).filter(|after| space_wanted(&rules, *after) > 0) else {
            return;
        };
        let (gain, wanted) = (gained(goal.before, after), goal.wanted);
        let low = rules.low_threshold_percent;
        self.complain(
            Target::Images,
            &format!("freed {gain} of {wanted} bytes: the low mark ({low} %) is not reached"),
        );
    }
}

fn usage(look: &Look) -> Option<FilesystemUsage> {
    match &look.store {
        Images::Known(store) => store.filesystem,
        Images::Unknown(_) => None,
    }
}

fn gained(before: FilesystemUsage, after: FilesystemUsage) -> u64 {
    after.available_bytes.saturating_sub(before.available_bytes)
}
