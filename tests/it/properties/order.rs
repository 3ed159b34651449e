//! The runtime lists its records in any order: every order gives the same plan, in the same words.

use std::collections::BTreeMap;

use crisweep::gc::{self, Plan};
use crisweep::model::{Images, PodLogDir, PodRef, Targets};
use jiff::Timestamp;
use proptest::prelude::*;

use super::config;
use super::node::{Node, Oddity, nodes};

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_order_of_the_lists_gives_the_same_plan(node in nodes(Oddity::Any), seed in any::<u64>()) {
        let mut random = fastrand::Rng::with_seed(seed);
        let node = if random.bool() { with_shared_logs(node) } else { node };
        let mut shuffled = node.clone();
        random.shuffle(&mut shuffled.snapshot.containers);
        random.shuffle(&mut shuffled.snapshot.sandboxes);
        if let Images::Known(store) = &mut shuffled.snapshot.images {
            random.shuffle(&mut store.rows);
        }
        prop_assert_eq!(plan_in_words(&node), plan_in_words(&shuffled));
    }
}

/// The plan with the facts behind each verdict.
fn plan_in_words(node: &Node) -> Plan {
    let mut plan = gc::plan(&node.snapshot, &node.policy, &Targets::all().0);
    plan.add_details(&node.snapshot, &node.policy);
    plan
}

/// Gives each pod a log directory, and attempts that occur twice: their containers write to one log.
fn with_shared_logs(mut node: Node) -> Node {
    let snapshot = &mut node.snapshot;
    for container in snapshot.containers.iter_mut() {
        container.attempt /= 2;
    }
    let pods = snapshot.containers.iter().filter_map(|it| it.pod.clone());
    let dirs: BTreeMap<_, _> = pods.map(|pod| (pod.uid.clone(), dir_of(&pod))).collect();
    snapshot.logs.dirs = dirs.into_values().collect::<Vec<_>>().into();
    node.policy.logs.enabled = true;
    node
}

fn dir_of(pod: &PodRef) -> PodLogDir {
    let name = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
    PodLogDir {
        path: format!("/var/log/pods/{name}").into(),
        name,
        is_dir: true,
        inode: 0,
        modified_at: Timestamp::UNIX_EPOCH,
        orphan_since: None,
    }
}
