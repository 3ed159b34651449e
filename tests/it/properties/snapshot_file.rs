//! Snapshot files: a plan on what was read of a file is the plan on what was written to it.

use std::collections::BTreeSet;

use crisweep::gc;
use crisweep::gc::check::check;
use crisweep::model::Target;
use crisweep::snapshot_file::{SnapshotOrigin, decode, encode};
use proptest::prelude::*;
use proptest::sample::select;

use super::config;
use super::log_nodes::log_nodes;
use super::node::Node;

/// Every set of targets.
fn target_sets() -> Vec<BTreeSet<Target>> {
    let sets = (1..1_u32 << Target::ALL.len()).map(|set| {
        let numbered = (0..).zip(Target::ALL);
        let chosen = numbered.filter(|(number, _)| set & (1 << number) > 0);
        chosen.map(|(_, target)| target).collect()
    });
    sets.collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_plan_on_a_file_is_the_plan_on_the_node(node in log_nodes(), targets in select(target_sets())) {
        let Node { snapshot, policy } = &node;
        let file = decode(&*encode(&SnapshotOrigin::default(), policy, snapshot).unwrap()).unwrap();
        prop_assert_eq!(&file.snapshot, snapshot);
        prop_assert_eq!(&file.policy, policy);
        let plan = gc::plan(snapshot, policy, &targets);
        prop_assert_eq!(&gc::plan(&file.snapshot, &file.policy, &targets), &plan);
        let broken = check(&plan.removals, snapshot, policy);
        prop_assert_eq!(check(&plan.removals, &file.snapshot, &file.policy), broken);
    }
}

#[test]
fn every_set_of_targets_is_planned() {
    let sets: BTreeSet<_> = target_sets().into_iter().collect();
    assert_eq!(sets.len(), 15);
}
