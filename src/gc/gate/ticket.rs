//! Who wants a pass, and how: what a trigger asks for, and the pass that triggers have joined to.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Brake, SEEN_MAX};
use crate::gc::Target;
use crate::report::Cause;

/// How a pass is to run. Triggers join only where these are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Only plan.
    pub dry_run: bool,
    /// Remove at most this many; `None`: what the configuration says.
    pub max_removals: Option<u64>,
    /// Overrides the policy's `assume_finished_after`.
    pub assume_finished_after: Option<Duration>,
    /// Run although `brakes.pause` is set, and past the circuit breaker (`gc.failure_ratio`).
    pub force: bool,
}

/// An alert's identity: fingerprint and start.
pub type AlertKey = (String, String);

/// Someone asks for a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Who.
    pub cause: Cause,
    /// For what.
    pub targets: BTreeSet<Target>,
    /// How.
    pub options: Options,
    /// Which alert, where it was one.
    pub alert: Option<AlertKey>,
}

/// A pass that waits or runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The pass's id.
    pub id: String,
    /// What it cleans. Empty if brakes took away, since it was queued, all that alerts had asked for:
    /// then there is nothing to do.
    pub targets: BTreeSet<Target>,
    /// How.
    pub options: Options,
    /// The brake that took targets away when it started.
    pub braked: Option<Brake>,
    pub(super) alerts: BTreeSet<AlertKey>,
    /// The targets that a person asked for: brakes do not bind them.
    pub(super) by_hand: BTreeSet<Target>,
    /// Someone wants it who cannot take it back: a person, or an alert beyond `SEEN_MAX`.
    pub(super) kept: bool,
}

impl Ticket {
    pub(super) fn new(id: &str, trigger: &Trigger) -> Self {
        let mut ticket = Self {
            id: id.to_owned(),
            targets: BTreeSet::new(),
            options: trigger.options.clone(),
            braked: None,
            alerts: BTreeSet::new(),
            by_hand: BTreeSet::new(),
            kept: false,
        };
        ticket.join(trigger);
        ticket
    }

    pub(super) fn join(&mut self, trigger: &Trigger) {
        self.targets.extend(&trigger.targets);
        if !trigger.cause.is_automatic() {
            self.by_hand.extend(&trigger.targets);
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
}
