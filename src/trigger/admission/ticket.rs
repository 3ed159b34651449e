//! Who wants a pass, and how: what a trigger asks for, and the pass that triggers have joined to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::SEEN_MAX;
use super::seen::{AlertKey, Ended};
use crate::gc::PassOptions;
use crate::model::{Cause, Outcome, Target};

/// Someone asks for a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Who.
    pub cause: Cause,
    /// For what.
    pub targets: BTreeSet<Target>,
    /// How.
    pub options: PassOptions,
    /// Which alert, where it was one.
    pub alert: Option<AlertKey>,
}

/// What the gate must know of a pass that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it only planned: as asked, or because of `mode: observe`.
    pub dry_run: bool,
    /// The targets of which it tried to remove something.
    pub tried: BTreeSet<Target>,
    /// The targets of which it kept due things only for a time, and how long that lasts from its end on.
    pub due_again: BTreeMap<Target, Duration>,
}

impl Over {
    /// Says what it means to the alerts that asked. A dry run answers none.
    pub(super) fn answers(&self) -> Ended {
        match self.outcome {
            Outcome::Completed | Outcome::NothingToDo if !self.dry_run => Ended::Answered,
            Outcome::Completed
            | Outcome::Planned
            | Outcome::NothingToDo
            | Outcome::Partial
            | Outcome::Aborted
            | Outcome::Interrupted => Ended::Unanswered,
        }
    }
}

/// A pass that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
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

impl Ticket {
    pub(super) fn new(id: &str, trigger: &Trigger) -> Self {
        let mut ticket = Self::empty(id, trigger.options.clone());
        ticket.join(trigger);
        ticket
    }

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

    pub(super) fn join(&mut self, trigger: &Trigger) {
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
        match &trigger.alert {
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
        due_again: &BTreeMap<Target, Duration>,
        now: Duration,
    ) {
        for (target, after) in due_again {
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
