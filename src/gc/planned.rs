//! The objects that an earlier plan removes: a later plan can be limited to them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Plan, Verdict};
use crate::model::{KeepReason, RemoveReason, Target, Text};

/// Objects by target, id and creation: what was created again under an old id is another object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedObjects(BTreeSet<(Target, Text, Timestamp)>);

impl FromIterator<(Target, Text, Timestamp)> for PlannedObjects {
    fn from_iter<I: IntoIterator<Item = (Target, Text, Timestamp)>>(objects: I) -> Self {
        Self(objects.into_iter().collect())
    }
}

impl PlannedObjects {
    /// Returns what a plan removes.
    pub fn of(plan: &Plan) -> Self {
        let removals = plan.removals.iter().map(|removal| &removal.subject);
        removals
            .map(|it| (it.target, it.id.clone(), it.created_at))
            .collect()
    }

    /// Keeps an object that the earlier plan does not remove. The logs of a removed container go with it, as in any
    /// pass.
    pub(super) fn keep_others(
        &self,
        verdict: &mut Verdict,
        object: impl FnOnce() -> (Target, Text, Timestamp),
    ) {
        let Verdict::Remove(reason) = *verdict else {
            return;
        };
        if reason != RemoveReason::ContainerRemoved && !self.0.contains(&object()) {
            *verdict = Verdict::Keep(KeepReason::NotInPlan);
        }
    }
}
