//! What a pass over logs needs that others do not: where they are, and whether they can be reached.

use super::{Rules, Run};
use crate::gc::Plan;
use crate::logs::Roots;
use crate::observe::Look;
use crate::report::Outcome;

impl Rules {
    /// Returns where logs are.
    pub fn log_roots(&self) -> Roots {
        Roots {
            host_root: self.host_root.clone(),
            pods: self.policy.logs.pods_root.clone(),
            containers: self.policy.logs.containers_root.clone(),
        }
    }
}

impl Run<'_> {
    /// Says what of the logs is out of reach; returns whether what is planned can go. The other targets
    /// do not suffer by it.
    pub(super) fn can_reach_logs(&mut self, look: &Look, plan: &Plan) -> bool {
        self.complain(&look.logs.unread);
        let can_write = look.logs.unwritable.is_empty() || plan.removals.is_empty();
        if !can_write {
            self.complain(&look.logs.unwritable);
        }
        can_write
    }

    /// Writes down why the pass could not do all that it was asked for.
    pub(super) fn complain(&mut self, whys: &[String]) {
        for why in whys {
            self.blind = true;
            tracing::warn!(pass.id = %self.record.id(), why, "logs are out of reach");
            self.record.error(format!("logs: {why}"));
        }
    }

    /// Nothing is completed while something is out of reach.
    pub(super) fn unless_blind(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Completed | Outcome::NothingToDo if self.blind => Outcome::Partial,
            outcome => outcome,
        }
    }
}
