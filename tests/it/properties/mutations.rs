//! The check must find forged removals: a check that never disagrees is useless.

use std::sync::Arc;
use std::time::Duration;

use crisweep::gc::check::check;
use crisweep::gc::{Expected, KeptObject, Limit, PodKnowledge, Policy, Removal};
use crisweep::model::{
    ConfigSource, Container, ContainerId, ContainerState, Coverage, Image, Images, KeepReason,
    Outage, PodSandbox, PodSandboxId, Pods, PodsUnknown, RemoveReason, Snapshot, Target,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::belief::is_newest_container;
use super::node::{Node, Oddity, ago, nodes};
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
            let own = RemoveReason::all(removal.subject.target);
            for reason in RemoveReason::ALL.into_iter().filter(|it| !own.contains(it)) {
                let forged = Removal { reason, ..removal.clone() };
                prop_assert!(!broken(&forged).is_empty(), "{forged:?}");
            }
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
    fn what_an_incomplete_list_may_hide_is_reported(node in nodes(Oddity::Any)) {
        let removals = plan_of(&node).removals;
        let mut unseen = [node.snapshot.clone(), node.snapshot.clone()];
        unseen[0].seen.containers = Coverage::Living;
        unseen[1].seen.sandboxes = Coverage::Partial;
        for part in unseen {
            let broken = check(&removals, &part, &node.policy);
            let by_containers = part.seen.containers != Coverage::Whole;
            for removal in &removals {
                let target = removal.subject.target;
                let needs_it = target == Target::Images
                    || target == Target::Sandboxes && by_containers
                    || removal.reason == RemoveReason::OverCap;
                let id = removal.subject.id.as_str();
                prop_assert!(!needs_it || broken.iter().any(|it| it.id == id), "{removal:?}");
            }
        }
    }

    #[test]
    fn a_pod_that_only_seems_to_be_seen_whole_is_not_deleted(mut node in nodes(Oddity::Any)) {
        node.policy.pods.quiet = Duration::ZERO;
        let removals = plan_of(&node).removals;
        let of_containers = |it: &&Removal| {
            it.subject.target == Target::Containers && it.reason == RemoveReason::PodDeleted
        };
        for removal in removals.iter().filter(of_containers) {
            let uid = &removal.subject.pod.as_ref().expect("a deleted pod").uid;
            let mut part = node.snapshot.clone();
            part.seen.containers = Coverage::Living;
            part.whole_pods = [uid.clone()].into();
            if let Pods::Known(list) = &mut part.pods {
                list.as_of = Some(part.taken_at);
            }
            let broken = |part: &Snapshot| {
                check(std::slice::from_ref(removal), part, &node.policy)
            };
            let mut changed = part.clone();
            for sandbox in changed.sandboxes.iter_mut() {
                sandbox.pod = sandbox.pod.take().filter(|pod| pod.uid != *uid);
            }
            prop_assert!(!broken(&changed).is_empty(), "without a sandbox: {removal:?}");
            for container in part.containers.iter_mut() {
                container.sandbox_id = PodSandboxId::new("unseen").unwrap();
            }
            prop_assert!(!broken(&part).is_empty(), "in an unseen sandbox: {removal:?}");
        }
    }

    #[test]
    fn a_pod_that_exited_at_an_unknown_time_outlives_the_list(mut node in nodes(Oddity::Any)) {
        node.policy.pods.quiet = Duration::ZERO;
        let removals = plan_of(&node).removals;
        let deleted = removals.iter().filter(|it| it.reason == RemoveReason::PodDeleted);
        for removal in deleted {
            let uid = removal.subject.pod.as_ref().map(|pod| &pod.uid);
            let mut changed = node.snapshot.clone();
            let mut containers = changed.containers.iter_mut();
            let other = containers.find(|it| {
                it.pod.as_ref().map(|pod| &pod.uid) == uid
                    && it.state == ContainerState::Exited
                    && it.id.as_str() != removal.subject.id.as_str()
            });
            if let (Some(other), Pods::Known(list)) = (other, &mut changed.pods) {
                other.finished_at = None;
                list.as_of = Some(changed.taken_at);
                let broken = check(std::slice::from_ref(removal), &changed, &node.policy);
                prop_assert!(!broken.is_empty(), "{removal:?}");
            }
        }
    }

    #[test]
    fn a_pod_whose_source_is_not_sure_is_not_deleted(mut node in nodes(Oddity::Any)) {
        node.policy.pods.quiet = Duration::ZERO;
        let removals = plan_of(&node).removals;
        for removal in removals.iter().filter(|it| it.reason == RemoveReason::PodDeleted) {
            let uid = &removal.subject.pod.as_ref().expect("a deleted pod").uid;
            let of_pod = |it: &PodSandbox| it.pod.as_ref().is_some_and(|pod| pod.uid == *uid);
            let changed = |by_sandboxes, by_history| {
                let mut changed = node.snapshot.clone();
                for sandbox in changed.sandboxes.iter_mut().filter(|it| of_pod(it)) {
                    sandbox.config_source = by_sandboxes;
                }
                let history = Arc::make_mut(&mut changed.pod_history).entry(uid.clone()).or_default();
                history.config_source = by_history;
                changed
            };
            let broken = |changed: &Snapshot| {
                !check(std::slice::from_ref(removal), changed, &node.policy).is_empty()
            };
            let mut unnamed = changed(None, None);
            unnamed.sandboxes.retain(|it| !of_pod(it));
            unnamed.seen.sandboxes = Coverage::Living;
            prop_assert!(broken(&unnamed), "none is named: {removal:?}");
            if node.snapshot.sandboxes.iter().any(of_pod) {
                let contradicted = changed(Some(ConfigSource::Api), Some(ConfigSource::File));
                prop_assert!(broken(&contradicted), "two are named: {removal:?}");
                let mut mirrored = changed(Some(ConfigSource::File), None);
                if let Pods::Known(list) = &mut mirrored.pods {
                    list.by_mirrors = true;
                }
                prop_assert!(broken(&mirrored), "the list has mirror pods: {removal:?}");
            }
        }
    }

    #[test]
    fn the_newest_record_stays_while_the_kubelet_may_not_know_the_end(mut node in nodes(Oddity::Any)) {
        node.policy.pods.quiet = Duration::from_secs(60);
        node.policy.assume_finished_after = None;
        node.snapshot.outage = None;
        for history in Arc::make_mut(&mut node.snapshot.pod_history).values_mut() {
            history.over_since = None;
        }
        let newest = |it: &&Container| is_newest_container(&node.snapshot, it);
        let newest: Vec<&Container> = node.snapshot.containers.iter().filter(newest).collect();
        for removal in plan_of(&node).removals {
            let id = removal.subject.id.as_str();
            let Some(newest) = newest.iter().find(|it| it.id.as_str() == id) else { continue };
            if removal.reason != RemoveReason::PodDeleted {
                continue;
            }
            let early = |changed: &Snapshot, policy: &Policy| {
                !check(std::slice::from_ref(&removal), changed, policy).is_empty()
            };
            let mut changed = node.snapshot.clone();
            changed.seen.containers = Coverage::Living;
            prop_assert!(early(&changed, &node.policy), "a later exit was not seen: {removal:?}");

            let mut changed = node.snapshot.clone();
            let undated = Container {
                id: ContainerId::new("undated").unwrap(),
                name: "other".into(),
                state: ContainerState::Exited,
                finished_at: None,
                ..(*newest).clone()
            };
            changed.containers.push(undated);
            prop_assert!(early(&changed, &node.policy), "an exit has no time: {removal:?}");

            let mut changed = node.snapshot.clone();
            let ended = Outage {
                first_seen: Timestamp::UNIX_EPOCH,
                last_seen: ago(30),
                fits_since: Some(ago(20)),
            };
            changed.outage = Some(ended);
            let assuming = Policy {
                assume_finished_after: Some(Duration::from_secs(1)),
                ..node.policy.clone()
            };
            prop_assert!(early(&changed, &assuming), "the lists did not fit: {removal:?}");
            prop_assert!(early(&changed, &node.policy), "the lists did not fit: {removal:?}");

            changed.outage = Some(Outage { fits_since: Some(ago(14)), ..ended });
            let uid = &removal.subject.pod.as_ref().expect("a deleted pod").uid;
            let history = Arc::make_mut(&mut changed.pod_history).entry(uid.clone()).or_default();
            history.over_since = Some(ago(3600));
            prop_assert!(early(&changed, &node.policy), "the lists have just fit: {removal:?}");
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
