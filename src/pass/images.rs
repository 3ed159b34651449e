//! The parts of the clean loop that only images need: the goal, which is room on the file system, and whether a
//! batch came nearer to it, measured by `statvfs`.
//!
//! One round is one run of the kubelet's image GC: a plan by listed sizes, from the high threshold down to the
//! low one. Where an image frees more than is listed, the round ends as soon as the low threshold is measured; where
//! images free less, further rounds go on towards it while each batch gains enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::PassRun;
use super::end::EarlyEnd;
use super::queue::Queue;
use crate::gc::images::{space_wanted, unknown_users, used_percent};
use crate::gc::{Plan, Policy, Removal};
use crate::model::{
    FilesystemUsage, Image, ImageId, Images, KeepReason, RemoveReason, Rows, Snapshot, Target,
};
use crate::snapshot::Look;

/// A batch must free at least one part in `GAIN_LEAST` of its listed size.
const GAIN_LEAST: u64 = 10;
/// Listed size of removed images from which the file system must have gained something: less may drown in logs.
const PROVABLE_LEAST: u64 = 64 << 20;
/// A runtime may free space a little after the removal, so usage is measured again after these pauses.
const MEASURED_AGAIN: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

/// How often and how long the pass waits for btrfs, which frees what was removed with its next commit: every 30 s.
const COMMIT_AWAITED: [Duration; 34] = [Duration::from_secs(1); 34];

/// Progress of a pass towards free space.
#[derive(Default)]
pub(super) struct SpaceGoal {
    /// The usage before; `None` if no room is wanted, or no image may go.
    goal: Option<FilesystemUsage>,
    /// The file system was above the high threshold: further rounds go on to the low threshold.
    is_wanted: bool,
    /// A batch gained too little: something else fills the file system.
    gained_too_little: bool,
    /// The state before the running batch; `None`: its gain is not measured.
    pub(super) before: Option<BeforeBatch>,
    start: Option<BeforeFirstBatch>,
}

struct BeforeFirstBatch {
    usage: FilesystemUsage,
    images: BTreeSet<ImageId>,
}

#[derive(Clone, Copy)]
pub(super) struct BeforeBatch {
    /// Sum of the listed sizes removed before.
    freed: u64,
    usage: Option<FilesystemUsage>,
    /// An image of the batch goes for space.
    makes_room: bool,
}

impl PassRun<'_> {
    /// Returns the policy of a round: the first starts at the high threshold, further ones free down to the low
    /// one.
    pub(super) fn policy_of_round(&self, target: Target, round: usize) -> Policy {
        let mut policy = self.policy.clone();
        if target == Target::Images && round > 0 && self.space.is_wanted {
            policy.images = policy.images.freeing_on();
        }
        policy
    }

    /// Notes the goal of the first image plan, and reports what keeps images.
    pub(super) fn set_goal(&mut self, look: &Look, plan: &Plan) {
        self.report_image_problems(look, plan);
        let images = &self.policy.images;
        let usage = usage(look).filter(|_| images.enabled);
        let is_wanted = usage.is_some_and(|usage| space_wanted(images, usage) > 0);
        self.space = SpaceGoal {
            goal: usage.filter(|_| is_wanted && !plan.removals.is_empty()),
            is_wanted,
            start: before_first_batch(look),
            ..SpaceGoal::default()
        };
    }

    pub(super) fn measure_before(&mut self, look: &Look, batch: &[Removal]) {
        self.space.before = Some(BeforeBatch {
            freed: self.freed_images(),
            usage: usage(look),
            makes_room: batch.iter().any(|it| it.reason == RemoveReason::Space),
        });
    }

    /// Looks again after a batch of images. If it gained too little, no more images go for space.
    pub(super) async fn measure_after(
        &mut self,
        look: &mut Arc<Look>,
        queue: &mut Queue,
    ) -> Result<(), EarlyEnd> {
        let Some(before) = self.space.before.take() else {
            return Ok(());
        };
        *look = self.look_again().await?;
        // A further round, or the end, judges by the room that is there after the last batch.
        let is_last = self.space.is_wanted && queue.is_empty();
        if (before.makes_room || is_last) && !self.has_gained(before, look).await? {
            self.space.gained_too_little = true;
            let mut due = queue.take();
            due.retain(|removal| removal.reason != RemoveReason::Space);
            queue.put(due);
        }
        self.still_due(look, Target::Images, queue)
    }

    /// Takes over why a later plan removes what is due: an image that was to make room may be old by now, and then goes
    /// whether there is room or not.
    pub(super) fn take_reasons(&self, due: &mut [Removal], later: &Plan) {
        let later = later.removals_of(Target::Images);
        let later = later.map(|it| (it.subject.id.as_str(), it.reason));
        let later: BTreeMap<&str, RemoveReason> = later.collect();
        self.record.update(|pass| {
            let Some(report) = pass.targets.get_mut(&Target::Images) else {
                return;
            };
            for removal in due {
                if let Some(reason) = later.get(removal.subject.id.as_str()) {
                    report.unplan(removal.reason);
                    report.plan(*reason, 1);
                    removal.reason = *reason;
                }
            }
        });
    }

    /// Says whether a further round may free space; reports missing space if not. Where removals failed, other images
    /// may make the room.
    pub(super) fn may_gain(&mut self, look: &Look, has_removed: bool, has_failed: bool) -> bool {
        let has_progress = has_removed || has_failed && self.space.is_wanted;
        let goes_on = has_progress && !self.space.gained_too_little && !self.given_up;
        let goes_on = goes_on && self.images_are_known(look);
        if !goes_on && let Some(before) = self.space.goal {
            self.report_missing_room(look, before);
        }
        goes_on
    }

    /// Says whether the batch gained enough. Replaces a look that is older than the gain.
    async fn has_gained(
        &mut self,
        batch: BeforeBatch,
        look: &mut Arc<Look>,
    ) -> Result<bool, EarlyEnd> {
        let listed = self.freed_images().saturating_sub(batch.freed);
        let (Some(before), Some(after)) = (batch.usage, usage(look)) else {
            return Ok(true);
        };
        // On btrfs a part of the gain says nothing of the rest: expect all of it.
        let expected = if is_btrfs(look) {
            listed
        } else {
            listed / GAIN_LEAST
        };
        let rules = self.policy.images.freeing_on();
        let is_free = |usage| space_wanted(&rules, usage) == 0;
        let is_enough = |usage| gained(before, usage) >= expected || is_free(usage);
        let after = self.measure_until(look, after, is_enough).await?;
        let gain = gained(before, after);
        let is_enough = gain >= listed / GAIN_LEAST || is_free(after);
        if !is_enough {
            self.report_problem(
                Target::Images,
                &format!(
                    "a batch of {listed} bytes, as the runtime lists them, freed {gain} bytes: something else fills \
                     the file system, images that stay share the layers, or the runtime has not freed them; the rest \
                     stays"
                ),
            );
        }
        Ok(is_enough)
    }

    /// On btrfs, waits for the room that removals of other targets made, before images are planned for it.
    pub(super) async fn await_room(&mut self, look: &mut Arc<Look>) -> Result<(), EarlyEnd> {
        let others = [Target::Containers, Target::Sandboxes, Target::Logs];
        let has_removed = others.into_iter().any(|target| self.gone_of(target) > 0);
        let rules = self.policy.images.clone();
        if let Some(now) = usage(look)
            && has_removed
            && self.removals_left > 0
            && rules.enabled
            && is_btrfs(look)
        {
            let is_free = |usage| space_wanted(&rules, usage) == 0;
            self.measure_until(look, now, is_free).await?;
        }
        Ok(())
    }

    /// Measures until the runtime and the file system have had their time to free what was removed. Replaces a look that
    /// is older than that.
    async fn measure_until(
        &mut self,
        look: &mut Arc<Look>,
        first: FilesystemUsage,
        is_enough: impl Fn(FilesystemUsage) -> bool,
    ) -> Result<FilesystemUsage, EarlyEnd> {
        let mut usage = first;
        if is_btrfs(look) && !is_enough(usage) {
            let line = "images: waits for btrfs, which frees what was removed within 34 s";
            self.record.line(line.to_owned());
        }
        for pause in pauses(look) {
            if is_enough(usage) {
                break;
            }
            self.rest(*pause).await;
            self.bounds()?;
            let measured = tokio::select! {
                measured = self.runner.observer.image_filesystem() => measured,
                stop = self.stops.wait() => return Err(EarlyEnd::Stopped(stop)),
            };
            usage = measured.unwrap_or(usage);
        }
        if usage != first {
            *look = self.look_again().await?;
        }
        Ok(usage)
    }

    /// Reports what keeps images that the policy would remove.
    pub(super) fn report_image_problems(&mut self, look: &Look, plan: &Plan) {
        let blocked = plan
            .kept
            .iter()
            .filter(|kept| kept.reason == KeepReason::UnknownUser);
        let count = blocked.count();
        let users = look.snapshot(BTreeMap::new()).ok();
        if let Some(users) = users.and_then(|snapshot| unknown_users(&snapshot))
            && count > 0
        {
            self.report_problem(Target::Images, &format!("{count} images stay: {users}"));
        }
        let Images::Known(store) = &look.store else {
            return;
        };
        let rules = &self.config.policy.images;
        let mut kept = plan.kept.iter();
        let may_be_due = match &store.other_mount {
            Some(other) => space_wanted(rules, other.usage) > 0,
            // These would go if the file system were full.
            None => rules.makes_room() && kept.any(|it| it.reason == KeepReason::BelowThreshold),
        };
        if may_be_due
            && rules.enabled
            && let Some(why) = unmeasured(look)
        {
            self.report_problem(Target::Images, &why);
        }
    }

    /// Reports how much space is still missing, if any, or that this is not known.
    fn report_missing_room(&mut self, look: &Look, before: FilesystemUsage) {
        if let Some(why) = unmeasured(look) {
            self.report_problem(Target::Images, &why);
        }
        let rules = self.config.policy.images.freeing_on();
        let Some(after) = usage(look).filter(|after| space_wanted(&rules, *after) > 0) else {
            return;
        };
        let (gain, used) = (gained(before, after), used_percent(after));
        let low = rules.low_threshold_percent;
        self.report_problem(
            Target::Images,
            &format!(
                "freed {gain} bytes: {used} % are in use, the low mark ({low} %) is not reached"
            ),
        );
    }

    /// Reports, after the pass, that the images' file system gained nothing although images were removed.
    pub(super) async fn prove_images(&mut self, look: &Look, may_wait: bool) {
        let listed = self.freed_images();
        let (Some(start), Some(mut after)) = (self.space.start.take(), usage(look)) else {
            return;
        };
        let is_reported = self.space.gained_too_little;
        if is_reported || pulled_since(&start.images, look) {
            return;
        }
        let waits = pauses(look).iter().filter(|_| may_wait);
        for pause in waits {
            if !gained_nothing(listed, start.usage, after) || self.stops.reached().is_some() {
                break;
            }
            self.rest(*pause).await;
            let measured = tokio::select! {
                measured = self.runner.observer.image_filesystem() => measured,
                () = self.stops.last_look_over() => None,
            };
            after = measured.unwrap_or(after);
        }
        self.record.update(|pass| {
            if let Some(figures) = &mut pass.after {
                figures.measured(after);
            }
        });
        if !gained_nothing(listed, start.usage, after) {
            return;
        }
        let (before, after) = (start.usage.available_bytes, after.available_bytes);
        self.report_problem(
            Target::Images,
            &format!(
                "{listed} bytes of images, as the runtime lists them, were removed, and the image file system has \
                 {after} bytes available, {before} before: something else fills it, or the runtime has not freed \
                 them"
            ),
        );
    }

    /// Says whether the images are known; if not, reports it once, and the pass is incomplete.
    pub(super) fn images_are_known(&mut self, look: &Look) -> bool {
        let Images::Unknown(why) = &look.store else {
            return true;
        };
        if self.config.policy.images.enabled {
            self.report_problem(Target::Images, why);
        }
        false
    }

    /// Hides the images that this pass failed to remove from the next plan, so that a further round goes on
    /// with others, as the kubelet does after a failure. Hides all records of an id, because the cause applies
    /// to all.
    pub(super) fn hide_failed_images(&self, snapshot: &mut Snapshot) {
        if self.tally.stayed.is_empty() {
            return;
        }
        if let Images::Known(store) = &mut snapshot.images {
            hide(&mut store.rows, |key| self.tally.stayed.contains_key(key));
        }
    }

    fn freed_images(&self) -> u64 {
        self.report_of(Target::Images, |report| report.freed_bytes.unwrap_or(0))
    }
}

fn usage(look: &Look) -> Option<FilesystemUsage> {
    look.store.filesystem()
}

fn is_btrfs(look: &Look) -> bool {
    let filesystems = look.filesystems.as_ref().ok();
    filesystems
        .and_then(|it| it.image.first())
        .is_some_and(|it| it.is_btrfs)
}

/// Returns the pauses after which the gain is measured again.
fn pauses(look: &Look) -> &'static [Duration] {
    if is_btrfs(look) {
        &COMMIT_AWAITED
    } else {
        &MEASURED_AGAIN
    }
}

/// Says why the usage of the file system that holds the images is not known; `None` if it is, or if the images are not.
fn unmeasured(look: &Look) -> Option<String> {
    let store = look.store.known()?;
    if store.filesystem.is_some() {
        return None;
    }
    if let Some(other) = &store.other_mount {
        return Some(format!("no image is removed to make room: {}", other.why));
    }
    let why = match &look.filesystems {
        Err(error) => error.to_string(),
        Ok(named) => named.image.first().map_or_else(
            || "the runtime names none".to_owned(),
            |it| format!("statvfs of {} gave no figures", it.mountpoint),
        ),
    };
    Some(format!(
        "the image file system could not be measured ({why}), so no image is removed to make room"
    ))
}

fn before_first_batch(look: &Look) -> Option<BeforeFirstBatch> {
    let store = look.store.known()?;
    let images = store.rows.iter().map(|image| image.id.clone()).collect();
    Some(BeforeFirstBatch {
        usage: store.filesystem?,
        images,
    })
}

/// Says whether images were pulled since; what was freed may be in them.
fn pulled_since(before: &BTreeSet<ImageId>, look: &Look) -> bool {
    let is_new = |image: &Image| !before.contains(&image.id);
    let store = look.store.known();
    store.is_none_or(|store| store.rows.iter().any(is_new))
}

/// Says whether removing images of this listed size gained neither bytes nor inodes.
fn gained_nothing(listed: u64, before: FilesystemUsage, after: FilesystemUsage) -> bool {
    listed >= PROVABLE_LEAST
        && after.available_bytes <= before.available_bytes
        && after.inodes_free <= before.inodes_free
}

fn gained(before: FilesystemUsage, after: FilesystemUsage) -> u64 {
    after.available_bytes.saturating_sub(before.available_bytes)
}

fn hide(rows: &mut Rows<Image>, has_stayed: impl Fn(&str) -> bool) {
    let of_stayed = rows.iter().filter(|image| has_stayed(&image.key()));
    let ids: BTreeSet<ImageId> = of_stayed.map(|image| image.id.clone()).collect();
    rows.retain(|image| !ids.contains(&image.id));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_prove_themselves_by_bytes_or_inodes_from_a_floor_on() {
        let usage = |available_bytes, inodes_free| FilesystemUsage {
            capacity_bytes: 1 << 40,
            available_bytes,
            used_bytes: 0,
            inodes: 100,
            inodes_free,
        };
        let before = usage(1 << 30, 50);
        assert!(gained_nothing(PROVABLE_LEAST, before, before));
        assert!(gained_nothing(u64::MAX, before, usage(1 << 20, 50)));
        // Below the floor the gain is unknown; more room or more inodes are a gain.
        assert!(!gained_nothing(PROVABLE_LEAST - 1, before, before));
        assert!(!gained_nothing(u64::MAX, before, usage((1 << 30) + 1, 50)));
        assert!(!gained_nothing(u64::MAX, before, usage(1 << 20, 51)));
    }

    #[test]
    fn if_one_record_of_an_id_stays_every_record_of_it_is_skipped() {
        let image = |id: &str, handler: &str| Image {
            id: ImageId::new(id).unwrap(),
            repo_tags: Vec::new(),
            repo_digests: Vec::new(),
            size_bytes: 1,
            pinned: false,
            handler: handler.to_owned(),
        };
        let mut rows = vec![image("a", ""), image("a", "kata"), image("b", "")].into();
        hide(&mut rows, |key| ["a,kata", "c"].contains(&key));
        assert_eq!(*rows, [image("b", "")]);
    }
}
