//! Properties of logs on every node.

use std::collections::BTreeSet;
use std::sync::Arc;

use crisweep::gc::check::check;
use crisweep::gc::{self, Expected, KeptObject, Plan, Removal, Verdict};
use crisweep::model::{
    Container, Coverage, Labels, LinkTarget, LinkedContainer, PodSandbox, PodSandboxId,
    PodSandboxState, PodUid, Pods, RemoveReason, RemovedContainer, Snapshot, Target, Targets,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::belief::is_deleted;
use super::log_nodes::{log_nodes, state_of};
use super::node::Node;
use super::{config, is_older};
use crate::cases::keep_reasons::keep_reasons;
use crate::kubelet_model::logs::{Status, removes_dir, removes_link};

fn plan_of(node: &Node) -> Plan {
    gc::plan(&node.snapshot, &node.policy, &[Target::Logs].into())
}

/// The runtime has something of the pod, in any state.
fn is_shown(snapshot: &Snapshot, uid: &PodUid) -> bool {
    let of_containers = snapshot.containers.iter().filter_map(|it| it.pod.as_ref());
    let of_sandboxes = snapshot.sandboxes.iter().filter_map(|it| it.pod.as_ref());
    of_containers.chain(of_sandboxes).any(|pod| pod.uid == *uid)
}

/// The list is newer than everything known of the pod.
fn is_surely_deleted(node: &Node, uid: &PodUid, youngest: Timestamp) -> bool {
    let Node { snapshot, policy } = node;
    let Pods::Known(list) = &snapshot.pods else {
        return false;
    };
    let outlives = list.as_of.is_some_and(|as_of| youngest >= as_of);
    is_deleted(snapshot, policy, uid) && !outlives
}

fn dir_may_go(node: &Node, path: &str) -> Result<(), TestCaseError> {
    let Node { snapshot, policy } = node;
    let dir = snapshot
        .logs
        .dirs
        .iter()
        .find(|dir| dir.path == path)
        .unwrap();
    let [namespace, name, uid] = dir.name.split('_').collect::<Vec<_>>()[..] else {
        return Err(TestCaseError::fail(dir.name.clone()));
    };
    let uid = PodUid::new(uid).unwrap();
    prop_assert!(dir.is_dir && !name.is_empty() && [32, 36].contains(&uid.as_str().len()));
    prop_assert!(!policy.protect.namespaces.contains(namespace));
    prop_assert!(!is_shown(snapshot, &uid), "{dir:?}");
    prop_assert!(is_surely_deleted(node, &uid, dir.modified_at), "{dir:?}");
    prop_assert!(is_older(snapshot, dir.modified_at, policy.logs.grace));
    prop_assert!(is_older(
        snapshot,
        dir.orphan_since.unwrap(),
        policy.logs.grace
    ));
    Ok(())
}

fn link_may_go(node: &Node, path: &str) -> Result<(), TestCaseError> {
    let Node { snapshot, policy } = node;
    let link = snapshot
        .logs
        .links
        .iter()
        .find(|link| link.path == path)
        .unwrap();
    let (start, id) = link
        .name
        .strip_suffix(".log")
        .unwrap()
        .rsplit_once('-')
        .unwrap();
    prop_assert!(link.is_link && id.len() == 64);
    prop_assert_eq!(link.target, LinkTarget::Missing);
    prop_assert!(
        !policy
            .protect
            .namespaces
            .iter()
            .any(|ns| start.contains(ns.as_str()))
    );
    match state_of(snapshot, id) {
        Some(state) => prop_assert_eq!(state, crisweep::model::ContainerState::Exited),
        None => prop_assert!(matches!(
            link.container,
            LinkedContainer::NotFound | LinkedContainer::Exited
        )),
    }
    Ok(())
}

fn container_log_may_go(
    node: &Node,
    it: &RemovedContainer,
    going: &BTreeSet<&str>,
) -> Result<(), TestCaseError> {
    let Node { snapshot, policy } = node;
    let uid = &it.pod.uid;
    prop_assert!(
        !policy
            .protect
            .namespaces
            .contains(it.pod.namespace.as_str())
    );
    let dir = format!("/var/log/pods/{}_{}_{uid}/", it.pod.namespace, it.pod.name);
    prop_assert!(
        it.log_path.starts_with(&dir) && !it.log_path.contains(".."),
        "{it:?}"
    );
    // No remaining container writes to it.
    let mut records = snapshot.containers.iter();
    let is_same = |other: &Container| {
        let pod = other.pod.as_ref().map(|pod| &pod.uid);
        (pod, &other.name, other.attempt) == (Some(uid), &it.name, it.attempt)
    };
    prop_assert!(
        records.all(|other| going.contains(other.id.as_str()) || !is_same(other)),
        "{it:?}"
    );
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_removed_log_has_no_owner(node in log_nodes()) {
        for targets in [Targets::all().0, [Target::Logs].into()] {
            let plan = gc::plan(&node.snapshot, &node.policy, &targets);
            let going: BTreeSet<&str> = super::ids(&plan, Target::Containers).collect();
            for removal in plan.removals_of(Target::Logs) {
                prop_assert!(node.policy.logs.enabled);
                match &removal.expected {
                    Expected::PodLogDir { .. } => dir_may_go(&node, &removal.subject.id)?,
                    Expected::LogLink(_) => link_may_go(&node, &removal.subject.id)?,
                    Expected::ContainerLog(it) => container_log_may_go(&node, it, &going)?,
                    Expected::Container(_) | Expected::Sandbox | Expected::Image { .. } => {
                        prop_assert!(false, "{removal:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_kubelet_would_remove_it_too(node in log_nodes()) {
        let snapshot = &node.snapshot;
        let is_deleted = |uid: &str| {
            PodUid::new(uid).is_none_or(|uid| is_deleted(snapshot, &node.policy, &uid))
        };
        for removal in plan_of(&node).removals {
            let path = removal.subject.id.as_str();
            let name = removal.subject.name.as_str();
            match &removal.expected {
                Expected::PodLogDir { .. } => prop_assert!(removes_dir(name, true, &is_deleted)),
                Expected::LogLink(id) => {
                    // A container missing from the list was not found, or had exited; either is enough.
                    let status = |asked: &str| {
                        assert_eq!(asked, id.as_str());
                        state_of(snapshot, asked).map_or(Status::Fails, Status::Is)
                    };
                    prop_assert!(removes_link(path, true, &status), "{removal:?}");
                }
                // The kubelet removes the log of each container that it removes; these were removed.
                Expected::ContainerLog(it) => prop_assert!(snapshot.removed.contains(it)),
                Expected::Container(_) | Expected::Sandbox | Expected::Image { .. } => {
                        prop_assert!(false, "{removal:?}");
                    }
            }
        }
    }

    #[test]
    fn any_order_of_the_entries_gives_the_same_plan(node in log_nodes(), seed in any::<u64>()) {
        let mut shuffled = node.clone();
        let mut random = fastrand::Rng::with_seed(seed);
        random.shuffle(&mut shuffled.snapshot.logs.dirs);
        random.shuffle(&mut shuffled.snapshot.logs.links);
        random.shuffle(&mut shuffled.snapshot.containers);
        prop_assert_eq!(plan_of(&node), plan_of(&shuffled));
    }

    #[test]
    fn every_plan_passes_the_check(node in log_nodes()) {
        for targets in [Targets::all().0, [Target::Logs].into()] {
            let plan = gc::plan(&node.snapshot, &node.policy, &targets);
            prop_assert_eq!(check(&plan.removals, &node.snapshot, &node.policy), []);
        }
    }

    #[test]
    fn every_entry_has_one_verdict(node in log_nodes()) {
        let plan = plan_of(&node);
        let mut judged: Vec<&str> = plan.removals.iter().map(|it| it.subject.id.as_str()).collect();
        judged.extend(plan.kept.iter().map(|it| it.subject.id.as_str()));
        judged.sort_unstable();
        let logs = &node.snapshot.logs;
        let removed = node.snapshot.removed.iter().filter(|_| node.policy.logs.enabled);
        let removed: BTreeSet<&str> = removed.map(|it| it.log_path.as_str()).collect();
        let mut all: Vec<&str> = logs.dirs.iter().map(|it| it.path.as_str()).collect();
        all.extend(logs.links.iter().map(|it| it.path.as_str()));
        all.extend(removed);
        all.sort_unstable();
        prop_assert_eq!(judged, all);
    }

    #[test]
    fn a_removal_of_an_object_that_must_stay_is_reported(node in log_nodes()) {
        for kept in plan_of(&node).kept {
            for forged in forgeries(&node.snapshot, &kept) {
                let broken = check(std::slice::from_ref(&forged), &node.snapshot, &node.policy);
                prop_assert!(!broken.is_empty(), "{kept:?} {forged:?}");
            }
        }
    }

    #[test]
    fn a_corrupted_removal_is_reported(node in log_nodes()) {
        let Node { snapshot, policy } = &node;
        for removal in plan_of(&node).removals {
            let broken = |forged: &Removal| check(std::slice::from_ref(forged), snapshot, policy);
            prop_assert_eq!(broken(&removal), []);
            let mut forged = removal.clone();
            forged.subject.id = format!("{}x", forged.subject.id).into();
            prop_assert_eq!(broken(&forged)[0].rule, "is not on the node");
            let mut forged = removal.clone();
            forged.subject.created_at -= SignedDuration::from_secs(1);
            prop_assert_eq!(broken(&forged)[0].rule, "is not the object that was planned");
            for reason in RemoveReason::ALL {
                let forged = Removal { reason, ..removal.clone() };
                prop_assert_eq!(broken(&forged).is_empty(), reason == removal.reason);
            }
            let forged = Removal { expected: Expected::Sandbox, ..removal.clone() };
            prop_assert!(!broken(&forged).is_empty());
            let mut forged = removal.clone();
            if let Expected::PodLogDir { inode, .. } = &mut forged.expected {
                *inode += 1;
                prop_assert_eq!(broken(&forged)[0].rule, "is not the object that was planned");
            }
        }
    }

    #[test]
    fn a_log_that_found_an_owner_is_reported(node in log_nodes()) {
        for removal in plan_of(&node).removals_of(Target::Logs) {
            let broken = |changed: &Snapshot| {
                !check(std::slice::from_ref(removal), changed, &node.policy).is_empty()
            };
            let mut part = node.snapshot.clone();
            part.seen.containers = Coverage::Living;
            let is_link = removal.reason == RemoveReason::DeadLink;
            prop_assert!(is_link || broken(&part), "not all is seen: {removal:?}");
            if !matches!(removal.expected, Expected::PodLogDir { .. }) {
                continue;
            }
            let mut owned = node.snapshot.clone();
            owned.sandboxes.push(PodSandbox {
                id: PodSandboxId::new("dead").unwrap(),
                pod: removal.subject.pod.clone(),
                attempt: 0,
                state: PodSandboxState::NotReady,
                created_at: Timestamp::UNIX_EPOCH,
                config_source: None,
                labels: Labels::default(),
            });
            prop_assert!(broken(&owned), "its pod has a sandbox: {removal:?}");
            let mut younger = node.snapshot.clone();
            if let Pods::Known(list) = &mut younger.pods {
                list.as_of = Some(removal.subject.created_at);
            }
            prop_assert!(broken(&younger), "the list is as old: {removal:?}");
        }
    }
}

/// Forged removals of the entry, one for each removal reason of logs.
fn forgeries(snapshot: &Snapshot, kept: &KeptObject) -> Vec<Removal> {
    let id = &kept.subject.id;
    let dir = snapshot.logs.dirs.iter().find(|it| it.path == *id);
    let link = snapshot.logs.links.iter().find(|it| it.path == *id);
    let removed = snapshot.removed.iter().find(|it| it.log_path == *id);
    let uid = kept.subject.pod.as_ref().map(|pod| pod.uid.clone());
    let any_uid = || PodUid::new("0d5f6a2c-1111-4222-8333-0123456789ab").unwrap();
    let expected = match (dir, link, removed) {
        (Some(dir), _, _) => Expected::PodLogDir {
            uid: uid.unwrap_or_else(any_uid),
            inode: dir.inode,
            modified_at: dir.modified_at,
        },
        (_, Some(link), _) => {
            let end = link.name.trim_end_matches(".log").rsplit('-').next();
            Expected::LogLink(super::log_nodes::id(end.unwrap()))
        }
        (_, _, Some(removed)) => Expected::ContainerLog(Box::new(removed.clone())),
        (None, None, None) => Expected::Sandbox,
    };
    RemoveReason::all(Target::Logs)
        .iter()
        .map(|reason| Removal {
            subject: kept.subject.clone(),
            reason: *reason,
            detail: Box::default(),
            expected: expected.clone(),
            superseded_by: Arc::default(),
        })
        .collect()
}

/// The generator must produce the relevant states, or the properties prove nothing.
#[test]
fn the_trees_show_every_reason() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen: Vec<Verdict> = Vec::new();
    for _ in 0..500 {
        let plan = plan_of(&log_nodes().new_tree(&mut runner).unwrap().current());
        seen.extend(plan.removals.iter().map(|it| Verdict::Remove(it.reason)));
        seen.extend(plan.kept.iter().map(|it| Verdict::Keep(it.reason)));
    }
    for reason in RemoveReason::all(Target::Logs) {
        assert!(
            seen.contains(&Verdict::Remove(*reason)),
            "{reason:?} was never seen"
        );
    }
    for reason in keep_reasons(Target::Logs) {
        assert!(
            seen.contains(&Verdict::Keep(*reason)),
            "{reason:?} was never seen"
        );
    }
}
