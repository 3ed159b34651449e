//! A plan on a part of a node's records is a part of the plan on all of them: unseen records can add
//! removals, never prevent one.

use std::collections::BTreeSet;
use std::sync::Arc;

use crisweep::gc::check::check;
use crisweep::model::{
    ConfigSource, ContainerState, Coverage, KeepReason, PodRef, PodSandboxState, PodUid, Pods,
    RemoveReason, Snapshot, Target,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::mutations::{forge, may_go};
use super::node::{Node, Oddity, ago, nodes};
use super::{config, ids, plan_of};

fn may_live(state: ContainerState) -> bool {
    matches!(state, ContainerState::Running | ContainerState::Unknown)
}

/// Returns a part of the pods, whose records all stay seen: such as only the API server starts, with a sandbox.
fn some_pods(snapshot: &Snapshot, random: &mut fastrand::Rng) -> BTreeSet<PodUid> {
    let mut pods = BTreeSet::new();
    let mut others = BTreeSet::new();
    for sandbox in &snapshot.sandboxes {
        let Some(pod) = &sandbox.pod else { continue };
        let shape = || ConfigSource::of_shape(&pod.uid);
        if sandbox.config_source.unwrap_or_else(shape) == ConfigSource::Api {
            pods.insert(pod.uid.clone());
        } else {
            others.insert(pod.uid.clone());
        }
    }
    let seen: BTreeSet<_> = snapshot.sandboxes.iter().map(|it| &it.id).collect();
    let astray = snapshot.containers.iter();
    let astray = astray.filter(|it| !seen.contains(&it.sandbox_id));
    others.extend(astray.filter_map(|it| Some(it.pod.as_ref()?.uid.clone())));
    pods.retain(|uid| !others.contains(uid) && random.bool());
    pods
}

/// A node, and the same node with some records unseen.
fn nodes_half_seen() -> impl Strategy<Value = (Node, Node)> {
    let coverage = || select(vec![Coverage::Partial, Coverage::Living, Coverage::Whole]);
    (nodes(Oddity::Any), coverage(), coverage(), any::<u64>()).prop_map(
        |(mut node, containers, sandboxes, seed)| {
            let mut random = fastrand::Rng::with_seed(seed);
            if let Pods::Known(list) = &mut node.snapshot.pods {
                list.as_of = random.bool().then(|| ago(600));
            }
            let mut part = node.clone();
            let mut stays = |coverage, lives| match coverage {
                Coverage::Whole => true,
                Coverage::Living => lives || random.bool(),
                Coverage::Partial => random.bool(),
            };
            let snapshot = &mut part.snapshot;
            let whole = some_pods(snapshot, &mut fastrand::Rng::with_seed(!seed));
            let of_whole =
                |pod: &Option<Arc<PodRef>>| pod.as_ref().is_some_and(|it| whole.contains(&it.uid));
            snapshot
                .containers
                .retain(|it| of_whole(&it.pod) || stays(containers, may_live(it.state)));
            snapshot.sandboxes.retain(|it| {
                of_whole(&it.pod) || stays(sandboxes, it.state == PodSandboxState::Ready)
            });
            snapshot.whole_pods = whole;
            snapshot.seen.containers = containers;
            snapshot.seen.sandboxes = sandboxes;
            (node, part)
        },
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn an_incomplete_look_removes_nothing_that_a_complete_one_keeps((node, part) in nodes_half_seen()) {
        let (whole, planned) = (plan_of(&node), plan_of(&part));
        for target in Target::ALL {
            let goes: BTreeSet<&str> = ids(&whole, target).collect();
            // With more containers removed, another image may free enough: then this one is not needed.
            let spared = whole.kept.iter().filter(|it| it.reason == KeepReason::BelowThreshold);
            let spared: BTreeSet<&str> = spared.map(|it| it.subject.id.as_str()).collect();
            for removal in planned.removals_of(target) {
                let id = removal.subject.id.as_str();
                let for_room = removal.reason == RemoveReason::Space && spared.contains(id);
                prop_assert!(goes.contains(id) || for_room, "{removal:?}");
            }
        }
        prop_assert_eq!(check(&planned.removals, &part.snapshot, &part.policy), []);
        // And for the same reason.
        prop_assert_eq!(check(&planned.removals, &node.snapshot, &node.policy), []);
    }

    #[test]
    fn a_removal_of_an_object_that_must_stay_is_reported_on_an_incomplete_look_too((_, part) in nodes_half_seen()) {
        for kept in plan_of(&part).kept {
            for &reason in RemoveReason::all(kept.subject.target) {
                let broken = check(&[forge(&part, &kept, reason)], &part.snapshot, &part.policy);
                prop_assert!(!broken.is_empty() || may_go(&kept, reason), "{kept:?} {reason:?}");
            }
        }
    }
}
