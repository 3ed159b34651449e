//! How passes end, and why some end before their plan does.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Run;
use crate::model::{Container, Outcome, Seen, Target, TargetReport};
use crate::snapshot::Look;

/// How a pass ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// How it ended.
    pub outcome: Outcome,
    /// The targets of which it kept due things only for a time, and how long that lasts from now on. A
    /// pass that came by itself is followed by another one over them, once.
    pub due_again: BTreeMap<Target, Duration>,
}

impl Ran {
    /// Returns that of a pass that kept nothing only for a time.
    pub fn ended(outcome: Outcome) -> Self {
        Self {
            outcome,
            due_again: BTreeMap::new(),
        }
    }
}

/// Why a pass ends before its plan does.
#[derive(Clone, Debug)]
pub(super) enum End {
    Cancelled,
    Shutdown,
    Deadline,
    MaxRemovals,
    RuntimeGone,
    NoLook(String),
    BadPlan(String),
    NotAlone(String),
}

impl End {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Cancelled
            | Self::Shutdown
            | Self::NoLook(_)
            | Self::BadPlan(_)
            | Self::NotAlone(_) => Outcome::Aborted,
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
            Self::RuntimeGone => "the runtime went away and did not come back in time".to_owned(),
            Self::NoLook(why) => format!("no look at the node was possible: {why}"),
            Self::NotAlone(why) => {
                format!("the lock in state.dir was lost, nothing was removed: {why}")
            }
            Self::BadPlan(why) => format!("the plan broke a rule, nothing was removed: {why}"),
        }
    }
}

/// Says how a pass ended that nothing cut short. A quarantined sandbox that failed once more stays
/// quarantined: that alone makes no pass partial.
pub(super) fn outcome(targets: &BTreeMap<Target, TargetReport>, dry_run: bool) -> Outcome {
    let sum = |count: fn(&TargetReport) -> u64| targets.values().map(count).sum::<u64>();
    let due = sum(|report| report.planned.saturating_sub(report.failed_again));
    let remaining = sum(|report| report.remaining.saturating_sub(report.failed_again));
    match (due, remaining) {
        (0, _) => Outcome::NothingToDo,
        _ if dry_run => Outcome::Planned,
        (_, 0) => Outcome::Completed,
        _ => Outcome::Partial,
    }
}

impl Run<'_> {
    /// Says how the pass ended.
    pub(super) fn outcome(&self, end: Option<&End>, dry_run: bool) -> Outcome {
        match end {
            Some(end) => end.outcome(),
            // The target that the circuit breaker ended was the last that had anything to try.
            None if self.given_up => Outcome::Aborted,
            None => self.unless_blind(outcome(&self.record.pass().targets, dry_run)),
        }
    }

    /// Tells how many sandboxes are left alone, and until when.
    pub(super) fn tell_quarantined(&self) {
        if !self.record.pass().targets.contains_key(&Target::Sandboxes) {
            return;
        }
        let (count, next_try) = {
            let quarantine = self.runner.quarantine();
            let all = quarantine.all();
            (all.len(), all.first().map(|(_, known)| known.next_try))
        };
        let Some(next_try) = next_try else { return };
        self.record.update(|pass| {
            let report = pass.targets.entry(Target::Sandboxes).or_default();
            report.next_try = Some(next_try);
        });
        tracing::info!(
            pass.id = %self.record.id(), count, %next_try, "sandboxes that failed to go are left alone"
        );
        self.record.line(format!(
            "sandboxes: {count} failed to go and are left alone; the next is tried again from {next_try} on"
        ));
    }

    pub(super) fn tell_if_incomplete(&self, seen: Seen) {
        if !seen.is_all() {
            let line = "the runtime's lists could not be read whole; only what is certain goes";
            tracing::warn!(pass.id = %self.record.id(), ?seen, "{line}");
            self.record.line(line.to_owned());
        }
    }

    /// Says which rows of the lists keep what they may concern.
    pub(super) fn complain_of_rows(&mut self, look: &Look) {
        let lists = [
            (
                Target::Containers,
                look.containers.as_ref().map(|it| it.malformed),
            ),
            (
                Target::Sandboxes,
                look.sandboxes.as_ref().map(|it| it.malformed),
            ),
        ];
        for (target, malformed) in lists {
            if let Ok(count @ 1..) = malformed {
                let why = format!(
                    "{count} rows of the list have no id or contradict each other; only what is certain without \
                     them goes"
                );
                self.complain(target, &why);
            }
        }
        let Ok(containers) = &look.containers else {
            return;
        };
        let is_odd = |it: &&Container| it.id.is_stand_in() || it.sandbox_id.is_stand_in();
        let mut odd = containers.rows.iter().filter(is_odd);
        let Some(first) = odd.next() else { return };
        let (id, others) = (&first.id, odd.count());
        let why = if first.id.is_stand_in() {
            format!("a container has no id ({id}; {others} more are odd); its sandbox stays")
        } else {
            format!(
                "container {id} does not say which sandbox it is in ({others} more are odd); the sandboxes of its \
                 pod stay"
            )
        };
        self.complain(Target::Containers, &why);
    }

    /// Writes down, once, why the pass could not do all that it was asked for.
    pub(super) fn complain(&mut self, target: Target, why: &str) {
        self.blind = true;
        let error = format!("{target}: {why}");
        if !self.record.pass().errors.contains(&error) {
            tracing::warn!(pass.id = %self.record.id(), target = target.label(), why, "out of reach");
            self.record.error(error);
        }
    }

    /// Nothing is completed while something is out of reach, or stays for want of knowledge.
    fn unless_blind(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Completed | Outcome::NothingToDo if self.ignorant => Outcome::Partial,
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
