//! A waiting pass: the triggers that it answers, merged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::seen::AlertKey;
use super::{SEEN_MAX, Trigger};
use crate::gc::PassOptions;
use crate::model::{Caller, Cause, Target};

/// A waiting or running pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPass {
    /// The pass's id.
    pub id: String,
    /// Its targets; never empty.
    pub targets: BTreeSet<Target>,
    /// Its options.
    pub options: PassOptions,
    /// A person asked for it, so that no brake but pause binds it.
    pub by_hand: bool,
    /// Who asked first over HTTP, where that is known.
    pub(super) by: Option<Caller>,
    /// The cause of the first automatic trigger, if there is one.
    pub automatic: Option<Cause>,
    /// What automatic triggers ask for.
    pub(super) automatic_targets: BTreeSet<Target>,
    /// Targets that another pass postponed, and the earliest start of each.
    pub(super) not_before: BTreeMap<Target, Duration>,
    /// When the first automatic trigger asked, and the random part of its jitter.
    pub(super) asked: Option<(Duration, u32)>,
    /// Its targets that need a slot among all nodes, from its beginning on; a budget that comes later asks for none.
    pub budgeted: BTreeSet<Target>,
    /// It exists only as a follow-up of another pass, so it gets no follow-up itself.
    pub is_follow_up: bool,
    pub(super) alerts: BTreeSet<AlertKey>,
    /// An automatic trigger wants it that cannot be withdrawn: one without an alert, or an alert beyond `SEEN_MAX`.
    pub(super) kept: bool,
}

impl QueuedPass {
    pub(super) fn empty(id: &str, options: PassOptions) -> Self {
        Self {
            id: id.to_owned(),
            targets: BTreeSet::new(),
            options,
            by_hand: false,
            by: None,
            automatic: None,
            automatic_targets: BTreeSet::new(),
            not_before: BTreeMap::new(),
            asked: None,
            budgeted: BTreeSet::new(),
            is_follow_up: false,
            alerts: BTreeSet::new(),
            kept: false,
        }
    }

    /// Returns an empty pass for the first trigger that asks for it.
    pub(super) fn of(id: &str, trigger: &Trigger) -> Self {
        Self {
            by_hand: !trigger.cause.is_automatic(),
            by: trigger.by.clone(),
            ..Self::empty(id, trigger.options.clone())
        }
    }

    /// Says whether a trigger may join this waiting pass. A person joins no automatic pass, and extends no other person's:
    /// its record says who asked, and for what. An alert that a person's pass covers needs none of its own.
    pub(super) fn takes(&self, trigger: &Trigger) -> bool {
        let covers = trigger.targets.is_subset(&self.targets);
        self.options == trigger.options
            && match (trigger.cause.is_automatic(), self.by_hand) {
                (true, false) => true,
                (true, true) => covers,
                (false, false) => false,
                (false, true) => covers || self.by == trigger.by,
            }
    }

    /// Adds a trigger; `asked`: now, and the random part of its jitter.
    pub(super) fn join(
        &mut self,
        trigger: &Trigger,
        key: Option<&AlertKey>,
        asked: (Duration, u32),
    ) {
        self.targets.extend(&trigger.targets);
        self.is_follow_up = false;
        if trigger.cause.is_automatic() {
            self.automatic.get_or_insert(trigger.cause);
            self.automatic_targets.extend(&trigger.targets);
            self.asked.get_or_insert(asked);
        }
        for target in &trigger.targets {
            self.not_before.remove(target);
        }
        match key {
            Some(key) => self.name(key),
            None => self.kept |= trigger.cause.is_automatic(),
        }
    }

    /// Forgets a resolved alert. Without another automatic trigger only a person's pass stays.
    pub(super) fn forget(&mut self, key: &AlertKey) {
        self.alerts.remove(key);
        if !self.kept && self.alerts.is_empty() {
            if !self.by_hand {
                self.targets.clear();
            }
            self.automatic_targets.clear();
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

    /// Returns the targets that the brakes bind: all, unless a person asked.
    pub fn bound(&self) -> BTreeSet<Target> {
        if self.by_hand || self.options.force || self.options.dry_run {
            return BTreeSet::new();
        }
        self.targets.clone()
    }

    /// Keeps the targets that are ready; moves the others to a pass of their own, for the same triggers.
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
        self.automatic_targets.extend(retry_after.keys());
        self.automatic = self.automatic.or(before.automatic);
        self.asked = self.asked.or(Some((now, draw)));
    }
}
