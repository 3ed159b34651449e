//! What a pass over logs needs that others do not: where they are, and whether they can be reached.

use super::{Rules, Run};
use crate::gc::{Plan, Target};
use crate::logs::Roots;
use crate::observe::Look;

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
        self.complain_of_logs(look);
        let can_write = look.logs.unwritable.is_empty() || plan.removals.is_empty();
        if !can_write {
            for why in &look.logs.unwritable {
                self.complain(Target::Logs, why);
            }
        }
        can_write
    }

    /// Says what of the logs could not be read.
    pub(super) fn complain_of_logs(&mut self, look: &Look) {
        for why in &look.logs.unread {
            self.complain(Target::Logs, why);
        }
    }
}
