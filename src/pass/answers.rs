//! What people ask about a look: the plan of a pass, and why an object stays or goes. Starts no pass.

use std::collections::BTreeSet;

use super::{Runner, at_risk};
use crate::gc::explain::{ExplainAnswer, Explainer, NotFound, PlanFacts};
use crate::gc::{self, Plan, Policy};
use crate::model::{PodSandboxId, Target};
use crate::snapshot::{Look, NoSnapshot};

impl Runner {
    /// Plans what a pass would do under a policy, with all that people may want to know of it.
    ///
    /// # Errors
    /// If a list could not be read.
    pub fn plan(
        &self,
        look: &Look,
        policy: &Policy,
        targets: &BTreeSet<Target>,
    ) -> Result<Plan, NoSnapshot> {
        let snapshot = self.snapshot(look)?;
        let mut plan = gc::plan(&snapshot, policy, targets);
        plan.at_risk = at_risk(look, &snapshot, policy, targets);
        plan.add_doubts(&snapshot, policy, look.doubts().collect());
        plan.add_details(&snapshot, policy);
        let quarantine = self.quarantine.lock();
        plan.add_quarantine(|id| quarantine.get(&PodSandboxId::new(id)?).cloned());
        Ok(plan)
    }

    /// Explains one object. Plans anew: explanation and verdict must come from one snapshot and one policy.
    ///
    /// # Errors
    /// If a list could not be read.
    pub fn explain(
        &self,
        look: &Look,
        policy: &Policy,
        id: &str,
    ) -> Result<Result<ExplainAnswer, NotFound>, NoSnapshot> {
        let (next_attempts, quarantine) = {
            let mut quarantine = self.quarantine.lock();
            (quarantine.next_attempts(look.taken_at), quarantine.clone())
        };
        let snapshot = look.snapshot(next_attempts)?;
        let plan = gc::plan(&snapshot, policy, &Target::ALL.into());
        let facts = PlanFacts::of(&snapshot, policy, &plan);
        let explainer = Explainer::of(&facts, &plan, look.pod_origin.source);
        let failures = |id: &str| quarantine.get(&PodSandboxId::new(id)?).cloned();
        Ok(explainer.answer(id, failures))
    }
}
