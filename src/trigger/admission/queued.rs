//! A waiting pass: the triggers that it answers, merged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::seen::AlertKey;
use super::{SEEN_MAX, Trigger};
use crate::gc::PassOptions;
use crate::model::{Cause, Target};

/// A waiting or running pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPass {
    /// The pass's id.
    pub id: String,
    /// Its targets; never empty.
    pub targets: BTreeSet<Target>,
    /// Its options.
    pub options: PassOptions,
    /// The cause of the first automatic trigger, if there is one.
    pub automatic: Option<Cause>,
    /// Targets that another pass postponed, and the earliest start of each.
    pub(super) not_before: BTreeMap<Target, Duration>,
    /// When the first automatic trigger asked, and the random part of its jitter.
    pub(super) asked: Option<(Duration, u32)>,
    /// It exists only as a follow-up of another pass, so it gets no follow-up itself.
    pub is_follow_up: bool,
    pub(super) alerts: BTreeSet<AlertKey>,
    /// The targets of manual triggers: brakes do not bind them.
    pub(super) by_hand: BTreeSet<Target>,
    /// An automatic trigger wants it that cannot be withdrawn: one without an alert, or an alert beyond `SEEN_MAX`.
    pub(super) kept: bool,
}

impl QueuedPass {
    pub(super) fn empty(id: &str, options: PassOptions) -> Self {
        Self {
            id: id.to_owned(),
            targets: BTreeSet::new(),
            options,
            automatic: None,
            not_before: BTreeMap::new(),
            asked: None,
            is_follow_up: false,
            alerts: BTreeSet::new(),
            by_hand: BTreeSet::new(),
            kept: false,
        }
    }

    pub(super) fn join(&mut self, trigger: &Trigger, key: Option<&AlertKey>) {
        self.targets.extend(&trigger.targets);
        self.is_follow_up = false;
        if trigger.cause.is_automatic() {
            self.automatic.get_or_insert(trigger.cause);
        } else {
            self.by_hand.extend(&trigger.targets);
        }
        for target in &trigger.targets {
            self.not_before.remove(target);
        }
        match key {
            Some(key) => self.name(key),
            None => self.kept |= trigger.cause.is_automatic(),
        }
    }

    /// Forgets a resolved alert. Without another automatic trigger only a person's targets stay.
    pub(super) fn forget(&mut self, key: &AlertKey) {
        self.alerts.remove(key);
        if !self.kept && self.alerts.is_empty() {
            self.targets.clone_from(&self.by_hand);
            self.not_before.clear();
            (self.automatic, self.asked) = (None, None);
        }
    }

    /// Remembers an alert that wants this pass; above the limit it remembers only that there are more.
    pub(super) fn name(&mut self, key: &AlertKey) {
        if self.alerts.len() < SEEN_MAX {
            self.alerts.insert(key.clone());
        } else {
            self.kept |= !self.alerts.contains(key);
        }
    }

    /// Returns the targets that the brakes bind: those that no person asked for.
    pub fn bound(&self) -> BTreeSet<Target> {
        if self.options.force || self.options.dry_run {
            return BTreeSet::new();
        }
        self.targets.difference(&self.by_hand).copied().collect()
    }

    /// Keeps the targets that are ready; moves the others to a pass of their own, for the same automatic
    /// triggers: no person asked for these.
    pub(super) fn split_off(
        &mut self,
        ready: &BTreeSet<Target>,
        free_id: impl FnOnce() -> String,
    ) -> Option<Self> {
        let others: BTreeSet<Target> = self.targets.difference(ready).copied().collect();
        if others.is_empty() {
            return None;
        }
        self.targets.clone_from(ready);
        Some(Self {
            id: free_id(),
            targets: others,
            by_hand: BTreeSet::new(),
            ..self.clone()
        })
    }

    /// Takes over the targets that an ended pass postponed. A target that already waits here for another reason
    /// does not wait longer because of this.
    pub(super) fn follow(
        &mut self,
        before: &Self,
        retry_after: &BTreeMap<Target, Duration>,
        (now, draw): (Duration, u32),
    ) {
        for (target, after) in retry_after {
            if self.targets.insert(*target) {
                self.not_before.insert(*target, now.saturating_add(*after));
            }
        }
        for key in &before.alerts {
            self.name(key);
        }
        self.kept |= before.kept;
        self.automatic = self.automatic.or(before.automatic);
        self.asked = self.asked.or(Some((now, draw)));
    }
}
