//! How passes end, and why some end before their plan does.

use std::collections::BTreeMap;

use super::Run;
use crate::gc::Target;
use crate::report::{Outcome, TargetReport};

/// Why a pass ends before its plan does.
#[derive(Clone, Debug)]
pub(super) enum End {
    Cancelled,
    Shutdown,
    Deadline,
    MaxRemovals,
    Breaker { failed: u64, tries: u64 },
    RuntimeGone,
    NoLook(String),
    BadPlan(String),
}

impl End {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Cancelled | Self::Shutdown | Self::Breaker { .. } | Self::NoLook(_) => {
                Outcome::Aborted
            }
            Self::BadPlan(_) => Outcome::Aborted,
            Self::Deadline | Self::MaxRemovals | Self::RuntimeGone => Outcome::Partial,
        }
    }

    /// Returns the reason in words.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Cancelled => "cancelled".to_owned(),
            Self::Shutdown => "the service is going down".to_owned(),
            Self::Deadline => "the deadline (gc.deadline) is reached".to_owned(),
            Self::MaxRemovals => "max_removals is reached".to_owned(),
            Self::Breaker { failed, tries } => {
                format!("circuit breaker (gc.failure_ratio): {failed} of {tries} removals failed")
            }
            Self::RuntimeGone => "the runtime went away and did not come back in time".to_owned(),
            Self::NoLook(why) => format!("no look at the node was possible: {why}"),
            Self::BadPlan(why) => format!("the plan broke a rule, nothing was removed: {why}"),
        }
    }
}

/// Says how a pass ended.
pub(super) fn outcome(
    end: Option<&End>,
    targets: &BTreeMap<Target, TargetReport>,
    dry_run: bool,
) -> Outcome {
    let planned: u64 = targets.values().map(|report| report.planned).sum();
    let remaining: u64 = targets.values().map(|report| report.remaining).sum();
    match end {
        Some(end) => end.outcome(),
        None if planned == 0 => Outcome::NothingToDo,
        None if dry_run => Outcome::Planned,
        None if remaining == 0 => Outcome::Completed,
        None => Outcome::Partial,
    }
}

impl Run<'_> {
    /// Writes down, once, why the pass could not do all that it was asked for.
    pub(super) fn complain(&mut self, target: Target, why: &str) {
        self.blind = true;
        let error = format!("{target}: {why}");
        if !self.record.pass().errors.contains(&error) {
            tracing::warn!(pass.id = %self.record.id(), target = target.label(), why, "out of reach");
            self.record.error(error);
        }
    }

    /// Nothing is completed while something is out of reach.
    pub(super) fn unless_blind(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Completed | Outcome::Planned | Outcome::NothingToDo if self.blind => {
                Outcome::Partial
            }
            Outcome::Completed
            | Outcome::Planned
            | Outcome::Partial
            | Outcome::Aborted
            | Outcome::Interrupted
            | Outcome::NothingToDo => outcome,
        }
    }
}
