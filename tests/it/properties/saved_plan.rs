//! Saved plans: a plan within an earlier one removes nothing else, and is as safe as any.

use std::collections::BTreeSet;

use crisweep::gc::check::check;
use crisweep::gc::{self, PlannedObjects};
use crisweep::model::{KeepReason, RemoveReason, Target};
use jiff::SignedDuration;
use proptest::prelude::*;

use super::config;
use super::log_nodes::log_nodes;
use super::node::Node;

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_plan_within_an_earlier_one_removes_nothing_else(
        node in log_nodes(),
        seed in any::<u64>(),
        later in 0..7200_i64,
    ) {
        let all = Target::ALL.into();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut earlier = gc::plan(&node.snapshot, &node.policy, &all);
        earlier.removals.retain(|_| random.bool());
        let key = |it: &gc::Removal| (it.subject.target, it.subject.id.clone(), it.subject.created_at);
        let allowed: BTreeSet<_> = earlier.removals.iter().map(key).collect();
        let Node { mut snapshot, policy } = node;
        snapshot.taken_at += SignedDuration::from_secs(later);
        let whole = gc::plan(&snapshot, &policy, &all);
        let plan = gc::plan_within(&snapshot, &policy, &all, Some(&PlannedObjects::of(&earlier)));
        for removal in &plan.removals {
            let follows = removal.reason == RemoveReason::ContainerRemoved;
            prop_assert!(follows || allowed.contains(&key(removal)), "{removal:?}");
        }
        prop_assert_eq!(check(&plan.removals, &snapshot, &policy), []);
        let judged = |plan: &gc::Plan| plan.removals.len() + plan.kept.len();
        let containers_of = |plan: &gc::Plan| {
            let counts = &plan.summary[&Target::Containers];
            let kept = counts.keep.get(&KeepReason::NotInPlan).copied().unwrap_or_default();
            kept + counts.remove.values().sum::<usize>()
        };
        prop_assert_eq!(containers_of(&plan), containers_of(&whole));
        prop_assert!(judged(&plan) <= judged(&whole));
    }

    #[test]
    fn a_plan_within_itself_is_itself(node in log_nodes()) {
        let all = Target::ALL.into();
        let plan = gc::plan(&node.snapshot, &node.policy, &all);
        let within = gc::plan_within(&node.snapshot, &node.policy, &all, Some(&PlannedObjects::of(&plan)));
        prop_assert_eq!(within, plan);
    }
}

#[test]
fn what_was_created_again_under_an_old_id_stays() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut removed = 0;
    for _ in 0..100 {
        let Node { snapshot, policy } = log_nodes().new_tree(&mut runner).unwrap().current();
        let all = Target::ALL.into();
        let plan = gc::plan(&snapshot, &policy, &all);
        removed += plan.removals.len();
        let a_second = SignedDuration::from_secs(1);
        let subjects = plan.removals.iter().map(|it| &it.subject);
        let older: PlannedObjects = subjects
            .map(|it| (it.target, it.id.clone(), it.created_at - a_second))
            .collect();
        let within = gc::plan_within(&snapshot, &policy, &all, Some(&older));
        let others = within.removals.iter();
        let mut others = others.filter(|it| it.reason != RemoveReason::ContainerRemoved);
        assert_eq!(others.next(), None);
    }
    assert!(removed > 100);
}
