//! Finds the cap at which an object of a finished pod goes, by planning with lower ones.

use super::super::policy::Limit;
use super::super::{Subject, plan};
use super::Explainer;
use crate::model::{Target, Targets};

impl Explainer<'_> {
    /// Says which `max_dead` lets an object go; `None` if none does.
    pub(super) fn lower_cap(&self, subject: &Subject) -> Option<String> {
        let dead = match subject.target {
            Target::Containers => self.facts.snapshot.containers.len(),
            Target::Sandboxes => self.facts.snapshot.sandboxes.len(),
            Target::Logs | Target::Images => return None,
        };
        if !self.goes_at(subject, 0) {
            return None;
        }
        let (mut goes, mut stays) = (0, dead);
        while stays - goes > 1 {
            let between = goes + (stays - goes) / 2;
            if self.goes_at(subject, between) {
                goes = between;
            } else {
                stays = between;
            }
        }
        let section = subject.target.label();
        let enable = match self.facts.policy.off(subject.target) {
            None => String::new(),
            Some(_) => format!(", and set policy.{section}.enabled: true"),
        };
        Some(format!(
            "set policy.{section}.max_dead to {goes} (the oldest go first){enable}"
        ))
    }

    fn goes_at(&self, subject: &Subject, max_dead: usize) -> bool {
        let mut policy = self.facts.policy.clone();
        match subject.target {
            Target::Containers => {
                policy.containers.enabled = true;
                policy.containers.max_dead = Limit::AtMost(max_dead);
            }
            Target::Sandboxes => {
                policy.sandboxes.enabled = true;
                policy.sandboxes.max_dead = Limit::AtMost(max_dead);
            }
            Target::Logs | Target::Images => return false,
        }
        let plan = plan(self.facts.snapshot, &policy, &Targets::all().0);
        let mut gone = plan.removals.iter().map(|removal| &removal.subject);
        gone.any(|it| it.target == subject.target && it.id == subject.id)
    }
}
