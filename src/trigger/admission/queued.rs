//! A pass that waits: the triggers that it answers, joined.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::seen::AlertKey;
use super::{SEEN_MAX, Trigger};
use crate::gc::PassOptions;
use crate::model::{Cause, Target};

/// A pass that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPass {
    /// The pass's id.
    pub id: String,
    /// What it cleans; never empty.
    pub targets: BTreeSet<Target>,
    /// How.
    pub options: PassOptions,
    /// Why, as far as it came by itself: the first such trigger's cause.
    pub automatic: Option<Cause>,
    /// Targets that another pass left for a time: not before that is over.
    pub(super) not_before: BTreeMap<Target, Duration>,
    /// Only another pass asked for it: it asks for no further one.
    pub is_follow_up: bool,
    pub(super) alerts: BTreeSet<AlertKey>,
    /// The targets that a person asked for: brakes do not bind them.
    pub(super) by_hand: BTreeSet<Target>,
    /// Someone wants it who cannot take it back: a person, or an alert beyond `SEEN_MAX`.
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
            None => self.kept = true,
        }
    }

    /// Remembers an alert that wants this pass; of too many it only remembers that there are.
    pub(super) fn name(&mut self, key: &AlertKey) {
        if self.alerts.len() < SEEN_MAX {
            self.alerts.insert(key.clone());
        } else {
            self.kept |= !self.alerts.contains(key);
        }
    }

    /// Keeps the targets that are ready; the others, if any, become a pass of their own, wanted by the same.
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

    /// Takes over what a pass that is over had to leave for a time. A target that already waits here
    /// for another reason does not wait any longer for this one.
    pub(super) fn follow(
        &mut self,
        before: &Self,
        retry_after: &BTreeMap<Target, Duration>,
        now: Duration,
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
    }
}
