//! The check must find forged removals: a check that never disagrees is useless.

use std::sync::Arc;
use std::time::Duration;

use crisweep::gc::check::check;
use crisweep::gc::{Expected, KeptObject, Limit, PodKnowledge, Removal};
use crisweep::model::{
    ContainerState, Image, Images, KeepReason, Pods, PodsUnknown, RemoveReason, Target,
};
use jiff::SignedDuration;
use proptest::prelude::*;

use super::node::{Node, Oddity, nodes};
use super::{config, images_of, plan_of};

pub(super) fn forge(node: &Node, kept: &KeptObject, reason: RemoveReason) -> Removal {
    let container = node
        .snapshot
        .containers
        .iter()
        .find(|container| container.id.as_str() == kept.subject.id.as_str());
    let mut images = images_of(&node.snapshot).iter();
    let image = images.find(|image| image.key() == kept.subject.id.as_str());
    let expected = match (kept.subject.target, container, image) {
        (Target::Containers, Some(container), _) => Expected::Container(container.state),
        (Target::Images, _, Some(image)) => as_it_is(image),
        _ => Expected::Sandbox,
    };
    Removal {
        subject: kept.subject.clone(),
        reason,
        detail: Box::default(),
        expected,
        superseded_by: Arc::default(),
    }
}

fn as_it_is(image: &Image) -> Expected {
    let names = image.repo_tags.iter().chain(&image.repo_digests).cloned();
    Expected::Image {
        handler: image.handler.clone(),
        names: [image.id.to_string()].into_iter().chain(names).collect(),
    }
}

/// Within its limits the object may be removed or kept: no promise forbids it. The same holds for the newest
/// record of a finished pod under a cap.
pub(super) fn may_go(kept: &KeptObject, reason: RemoveReason) -> bool {
    let over = matches!(
        kept.subject.pod_state,
        PodKnowledge::Terminated | PodKnowledge::Assumed
    );
    // Others free the space; alone it might.
    let for_room = kept.reason == KeepReason::BelowThreshold && reason == RemoveReason::Space;
    kept.reason == KeepReason::WithinLimits
        || for_room
        || kept.reason == KeepReason::Newest && over && reason == RemoveReason::OverCap
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_removal_of_an_object_that_must_stay_is_reported(node in nodes(Oddity::Any)) {
        for kept in plan_of(&node).kept {
            for &reason in RemoveReason::all(kept.subject.target) {
                let broken = check(&[forge(&node, &kept, reason)], &node.snapshot, &node.policy);
                prop_assert!(!broken.is_empty() || may_go(&kept, reason), "{kept:?} {reason:?}");
            }
        }
    }

    #[test]
    fn a_corrupted_removal_is_reported(node in nodes(Oddity::Any)) {
        let Node { snapshot, policy } = &node;
        let plan = plan_of(&node);
        for removal in &plan.removals {
            let alone = removal.subject.target == Target::Containers;
            let broken = |removal: &Removal| check(std::slice::from_ref(removal), snapshot, policy);
            if alone {
                prop_assert_eq!(broken(removal), []);
            }
            let mut forged = removal.clone();
            forged.subject.id = format!("{}x", forged.subject.id).into();
            prop_assert_eq!(broken(&forged)[0].rule, "is not on the node");
            let mut forged = removal.clone();
            forged.subject.created_at -= SignedDuration::from_secs(1);
            prop_assert_eq!(broken(&forged)[0].rule, "is not the object that was planned");
            let mut forged = removal.clone();
            forged.expected = Expected::Container(ContainerState::Running);
            if alone {
                prop_assert_eq!(broken(&forged)[0].rule, "is in another state than planned");
            }
            if removal.reason != RemoveReason::PodDeleted {
                let forged = Removal { reason: RemoveReason::PodDeleted, ..removal.clone() };
                prop_assert!(!broken(&forged).is_empty());
            }
        }
    }

    #[test]
    fn a_removal_for_a_rule_that_is_off_is_reported(node in nodes(Oddity::Any)) {
        let removals = plan_of(&node).removals;
        let mut policy = node.policy.clone();
        policy.containers.max_dead = Limit::None;
        policy.containers.max_per_container = Limit::None;
        policy.sandboxes.max_dead = Limit::None;
        policy.images.high_threshold_percent = 100;
        policy.images.max_age = None;
        let can_be_off = |it: &&Removal| {
            let of_containers = it.subject.target == Target::Containers;
            matches!(it.reason, RemoveReason::OverCap | RemoveReason::Space)
                || it.reason == RemoveReason::Superseded && of_containers
        };
        for removal in removals.iter().filter(can_be_off) {
            let broken = check(std::slice::from_ref(removal), &node.snapshot, &policy);
            prop_assert!(!broken.is_empty(), "{removal:?}");
        }
    }

    #[test]
    fn a_pod_with_a_container_that_may_start_is_not_assumed_finished(mut node in nodes(Oddity::Any)) {
        node.snapshot.pods = Pods::Unknown(PodsUnknown::NoSource);
        node.policy.assume_finished_after = Some(Duration::from_secs(1));
        for container in node.snapshot.containers.iter_mut().step_by(5) {
            (container.state, container.finished_at) = (ContainerState::Created, None);
        }
        for kept in plan_of(&node).kept {
            let reason = RemoveReason::OverCap;
            let broken = check(&[forge(&node, &kept, reason)], &node.snapshot, &node.policy);
            prop_assert!(!broken.is_empty() || may_go(&kept, reason), "{kept:?}");
        }
    }

    #[test]
    fn an_object_planned_twice_is_reported(node in nodes(Oddity::Any)) {
        let Node { snapshot, policy } = &node;
        let removals = plan_of(&node).removals;
        let rules = |removals: &[Removal]| -> Vec<&'static str> {
            check(removals, snapshot, policy).iter().map(|violation| violation.rule).collect()
        };
        if let Some(first) = removals.first() {
            let twice: Vec<Removal> = [first].into_iter().chain(&removals).cloned().collect();
            prop_assert_eq!(rules(&twice), ["is planned twice"]);
        }
    }

    #[test]
    fn a_duplicate_id_is_reported(node in nodes(Oddity::Any)) {
        let removals = plan_of(&node).removals;
        for removal in &removals {
            let mut changed = node.snapshot.clone();
            let id = removal.subject.id.as_str();
            let twin = changed.containers.iter().find(|it| it.id.as_str() == id).cloned();
            changed.containers.extend(twin);
            let twin = changed.sandboxes.iter().find(|it| it.id.as_str() == id).cloned();
            changed.sandboxes.extend(twin);
            let of_runtime = [Target::Containers, Target::Sandboxes];
            if of_runtime.contains(&removal.subject.target) {
                let broken = check(std::slice::from_ref(removal), &changed, &node.policy);
                prop_assert!(broken.iter().any(|it| it.rule == "has the id of another record"));
            }
        }
    }

    #[test]
    fn a_list_from_before_an_exit_deletes_no_pod(node in nodes(Oddity::Any)) {
        let removals = plan_of(&node).removals;
        let deleted = removals.iter().filter(|it| it.reason == RemoveReason::PodDeleted);
        for removal in deleted {
            let mut containers = node.snapshot.containers.iter();
            let container = containers.find(|it| it.id.as_str() == removal.subject.id.as_str());
            let exited_at = container.filter(|it| it.pod.is_some()).and_then(|it| it.finished_at);
            let mut changed = node.snapshot.clone();
            if let (Some(exited_at), Pods::Known(list)) = (exited_at, &mut changed.pods) {
                list.as_of = Some(exited_at);
                let broken = check(std::slice::from_ref(removal), &changed, &node.policy);
                prop_assert!(!broken.is_empty(), "{removal:?}");
            }
        }
    }

    #[test]
    fn a_stale_plan_is_reported(node in nodes(Oddity::Any)) {
        let removals = plan_of(&node).removals;
        let mut changed = node.snapshot.clone();
        for container in changed.containers.iter_mut() {
            container.state = ContainerState::Running;
        }
        let broken = check(&removals, &changed, &node.policy);
        let containers =
            removals.iter().filter(|removal| removal.subject.target == Target::Containers);
        prop_assert!(broken.len() >= containers.count());
        changed.containers.clear();
        changed.sandboxes.clear();
        changed.images = Images::default();
        prop_assert!(check(&removals, &changed, &node.policy).len() >= removals.len());
    }
}
