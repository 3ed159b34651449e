//! Properties of explanations: they never differ from the plan.

use crisweep::gc::explain::{Explainer, JudgedObject, PlanFacts, RuleResult};
use crisweep::gc::{self, PodKnowledge, Verdict};
use crisweep::model::{KeepReason, PodSourceKind, Target, Targets};
use proptest::prelude::*;

use super::config;
use super::log_nodes::log_nodes;
use super::node::{Node, Oddity, nodes};

/// Holds every explanation of a node to the plan.
fn agree(node: &Node) -> Result<(), TestCaseError> {
    let Node { snapshot, policy } = node;
    let mut plan = gc::plan(snapshot, policy, &Targets::all().0);
    plan.add_details(snapshot, policy);
    let facts = PlanFacts::of(snapshot, policy, &plan);
    let explainer = Explainer::of(&facts, &plan, PodSourceKind::Kubelet);
    let removed = plan.removals.iter().map(|it| &it.detail);
    let details = removed.chain(plan.kept.iter().map(|it| &it.detail));
    for (judged, detail) in explainer.judged().zip(details) {
        let inputs = decides_once(&explainer, judged)?;
        let shown = detail.trim_end_matches('…');
        prop_assert!(!shown.is_empty() && inputs.starts_with(shown), "{}", inputs);
    }
    Ok(())
}

/// Exactly one rule decides, for the plan's reason; all before it pass, all after it are not reached or let it be.
/// Returns its inputs.
fn decides_once(
    explainer: &Explainer<'_>,
    judged: JudgedObject<'_>,
) -> Result<String, TestCaseError> {
    let rules = explainer.rules(judged);
    let (said, reason) = match judged.verdict {
        Verdict::Keep(reason) => (RuleResult::Keeps, reason.label()),
        Verdict::Remove(reason) => (RuleResult::Removes, reason.label()),
    };
    let deciding: Vec<_> = rules.iter().filter(|line| line.decides).collect();
    prop_assert_eq!(deciding.len(), 1, "{:?}: {:#?}", judged, rules);
    prop_assert_eq!(
        (deciding[0].said, deciding[0].reason.as_deref()),
        (said, Some(reason)),
        "{:?}: {:#?}",
        judged,
        rules
    );
    let at = rules.iter().position(|line| line.decides).unwrap();
    for (place, line) in rules.iter().enumerate() {
        prop_assert_eq!(
            line.said == RuleResult::NotReached,
            line.inputs.is_empty(),
            "{:#?}",
            rules
        );
        match line.said {
            RuleResult::NotReached => {
                prop_assert!(place > at || rules[at].said == RuleResult::Keeps);
            }
            RuleResult::Passes => prop_assert!(line.reason.is_none()),
            RuleResult::Keeps => prop_assert_eq!(place, at),
            // A rule that keeps what others remove may follow.
            RuleResult::Removes => prop_assert!(place <= at),
        }
    }
    Ok(rules[at].inputs.clone())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_rules_of_every_object_lead_to_its_verdict(node in nodes(Oddity::Any)) {
        agree(&node)?;
    }

    #[test]
    fn the_rules_of_every_log_lead_to_its_verdict(node in log_nodes()) {
        agree(&node)?;
    }

    #[test]
    fn what_time_alone_brings_is_what_a_later_plan_says(
        node in nodes(Oddity::Any),
        number in any::<prop::sample::Index>(),
    ) {
        let Node { snapshot, policy } = &node;
        let plan = gc::plan(snapshot, policy, &Targets::all().0);
        let facts = PlanFacts::of(snapshot, policy, &plan);
        let explainer = Explainer::of(&facts, &plan, PodSourceKind::Kubelet);
        let all: Vec<_> = explainer.judged().filter(|it| it.subject.target != Target::Logs).collect();
        if all.is_empty() {
            return Ok(());
        }
        let judged = all[number.index(all.len())];
        let explanation = explainer.explain(judged);
        let is_kept = matches!(judged.verdict, Verdict::Keep(_));
        prop_assert!(!explanation.would_change.is_empty(), "{:#?}", explanation);
        prop_assert!(is_kept || explanation.held_by.is_empty());
        let waits = explanation.would_change.iter().filter_map(|change| change.in_seconds);
        for seconds in waits {
            prop_assert!(is_kept);
            let mut later = snapshot.clone();
            later.taken_at += std::time::Duration::from_secs(seconds);
            let plan = gc::plan(&later, policy, &Targets::all().0);
            let goes = plan.removals.iter().any(|it| {
                it.subject.target == judged.subject.target && it.subject.id == judged.subject.id
            });
            prop_assert!(goes, "{:#?}", explanation);
        }
    }

    #[test]
    fn the_cap_that_is_named_is_the_highest_that_helps(
        node in nodes(Oddity::Any),
        number in any::<prop::sample::Index>(),
    ) {
        let Node { snapshot, policy } = &node;
        let plan = gc::plan(snapshot, policy, &Targets::all().0);
        let facts = PlanFacts::of(snapshot, policy, &plan);
        let explainer = Explainer::of(&facts, &plan, PodSourceKind::Kubelet);
        let may_go = |it: &JudgedObject<'_>| {
            let state = it.subject.pod_state;
            let over = matches!(state, PodKnowledge::Terminated | PodKnowledge::Assumed);
            it.verdict == Verdict::Keep(KeepReason::WithinLimits)
                || over && matches!(it.verdict, Verdict::Keep(_))
        };
        let all: Vec<_> = explainer.judged().filter(may_go).collect();
        if all.is_empty() {
            return Ok(());
        }
        let judged = all[number.index(all.len())];
        let subject = judged.subject;
        let words = format!("set policy.{}.max_dead to ", subject.target);
        let changes = explainer.explain(judged).would_change;
        let Some(named) = changes.iter().find_map(|it| it.what.strip_prefix(&words)) else {
            return Ok(());
        };
        let named: usize = named.split(' ').next().unwrap().parse().unwrap();
        for most in 0..=snapshot.containers.len().max(snapshot.sandboxes.len()) {
            let (mut policy, most_dead) = (policy.clone(), gc::Limit::AtMost(most));
            if subject.target == Target::Containers {
                (policy.containers.enabled, policy.containers.max_dead) = (true, most_dead);
            } else {
                (policy.sandboxes.enabled, policy.sandboxes.max_dead) = (true, most_dead);
            }
            let plan = gc::plan(snapshot, &policy, &Targets::all().0);
            let goes = plan.removals.iter().any(|it| {
                it.subject.target == subject.target && it.subject.id == subject.id
            });
            prop_assert_eq!(goes, most <= named, "{:?} {} of {}", subject, most, named);
        }
    }
}
