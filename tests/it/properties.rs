//! Properties of every node. `PROPTEST_CASES` sets the number of nodes per property; findings are printed,
//! never written to files: a counterexample becomes a case file.

mod belief;
mod explain;
mod images;
mod log_nodes;
mod logs;
mod mutations;
mod node;
mod order;
mod saved_plan;
mod snapshot_file;
mod store;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crisweep::gc::check::check;
use crisweep::gc::knowledge::Knowledge;
use crisweep::gc::plan::still_due;
use crisweep::gc::{self, Limit, Plan, Policy, Removal};
use crisweep::model::{
    Container, ContainerState, Image, Images, KeepReason, Labels, PodSandbox, PodSandboxState,
    PodUid, RemoveReason, Snapshot, Target, Targets,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::cases::keep_reasons::keep_reasons;
use crate::kubelet_model::Kubelet;
use belief::{is_deleted, is_finished, is_newest_container, is_newest_sandbox};
use node::{Node, Oddity, nodes};

/// Nodes per property; two dozen properties see more than 20,000.
const NODES: u32 = 1000;

fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    Config {
        cases: cases.unwrap_or(NODES),
        failure_persistence: None,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_removed_container_was_dead_old_and_not_needed(node in nodes(Oddity::Any)) {
        let Node { snapshot, policy } = &node;
        for (container, reason) in removed_containers(&plan_of(&node), snapshot) {
            let rules = &policy.containers;
            prop_assert!(rules.enabled, "{container:?}");
            prop_assert_ne!(container.state, ContainerState::Running);
            if container.state == ContainerState::Unknown {
                prop_assert!(rules.include_unknown);
            }
            if container.state == ContainerState::Created {
                prop_assert!(is_older(snapshot, container.created_at, rules.created_grace));
            }
            prop_assert!(is_older(snapshot, container.created_at, rules.min_age));
            if container.state == ContainerState::Exited && rules.age_from == gc::AgeFrom::Finished {
                prop_assert!(is_older(snapshot, container.finished_at.unwrap(), rules.min_age));
            }
            let pod = container.pod.as_ref().expect("managed");
            let over = is_deleted(snapshot, policy, &pod.uid)
                || reason == RemoveReason::OverCap && is_finished(snapshot, policy, &pod.uid);
            prop_assert!(over || !is_newest_container(snapshot, container), "{container:?}");
            let sandbox = snapshot.sandboxes.iter().find(|it| it.id == container.sandbox_id);
            let labels = sandbox.map(|sandbox| sandbox.labels.clone());
            prop_assert!(!is_protected(policy, &pod.namespace, labels.as_ref()), "{container:?}");
            prop_assert!(!is_protected(policy, &pod.namespace, Some(&container.labels)));
        }
    }

    #[test]
    fn a_removed_sandbox_was_dead_empty_old_and_not_needed(node in nodes(Oddity::Any)) {
        let Node { snapshot, policy } = &node;
        let plan = plan_of(&node);
        let gone: BTreeSet<&str> = ids(&plan, Target::Containers).collect();
        for (sandbox, reason) in removed_sandboxes(&plan, snapshot) {
            prop_assert!(policy.sandboxes.enabled);
            prop_assert_eq!(sandbox.state, PodSandboxState::NotReady);
            prop_assert!(is_older(snapshot, sandbox.created_at, policy.sandboxes.min_age));
            let mut inside = snapshot.containers.iter().filter(|it| it.sandbox_id == sandbox.id);
            prop_assert!(inside.all(|it| gone.contains(it.id.as_str())), "{sandbox:?}");
            let pod = sandbox.pod.as_ref().expect("managed");
            let over = is_deleted(snapshot, policy, &pod.uid)
                || reason == RemoveReason::OverCap && is_finished(snapshot, policy, &pod.uid);
            prop_assert!(over || !is_newest_sandbox(snapshot, sandbox), "{sandbox:?}");
            let dead = snapshot.sandboxes.iter().filter(|it| it.state == PodSandboxState::NotReady).count();
            let is_over = matches!(policy.sandboxes.max_dead, Limit::AtMost(most) if dead > most);
            prop_assert!(is_over || reason != RemoveReason::OverCap, "{sandbox:?}");
            prop_assert!(!is_protected(policy, &pod.namespace, Some(&sandbox.labels)));
            let until = snapshot.quarantine.get(&sandbox.id);
            prop_assert!(until.is_none_or(|until| *until <= snapshot.taken_at));
        }
    }

    #[test]
    fn the_kubelet_would_remove_it_too(node in nodes(Oddity::Any), synced in any::<bool>()) {
        let (plan, kubelet) = (plan_of(&node), kubelets(&node, synced));
        for removal in plan.removals_of(Target::Containers) {
            prop_assert!(kubelet.0.contains(removal.subject.id.as_str()), "{removal:?}");
        }
        for removal in plan.removals_of(Target::Sandboxes) {
            // The one cap that the kubelet does not have.
            let cap = removal.reason == RemoveReason::OverCap;
            prop_assert!(cap || kubelet.1.contains(removal.subject.id.as_str()), "{removal:?}");
        }
    }

    #[test]
    fn where_nothing_asks_for_care_it_is_the_kubelet(node in nodes(Oddity::None)) {
        let Node { snapshot, policy } = &node;
        let (plan, (mut containers, sandboxes)) = (plan_of(&node), kubelets(&node, true));
        // One exception: the newest of a pod that may exist.
        containers.retain(|id| {
            let it = snapshot.containers.iter().find(|it| it.id.as_str() == id).unwrap();
            let uid = &it.pod.as_ref().unwrap().uid;
            let over = is_deleted(snapshot, policy, uid) || is_finished(snapshot, policy, uid);
            over || !is_newest_container(snapshot, it)
        });
        let ours: BTreeSet<String> = ids(&plan, Target::Containers).map(str::to_owned).collect();
        prop_assert_eq!(&ours, &containers);
        let left: Vec<Container> =
            snapshot.containers.iter().filter(|it| !ours.contains(it.id.as_str())).cloned().collect();
        let theirs = with_kubelet(&node, true, |kubelet| kubelet.sandboxes(&snapshot.sandboxes, &left));
        let ours: BTreeSet<String> = ids(&plan, Target::Sandboxes).map(str::to_owned).collect();
        let unused_id = |id: &String| !young_sandbox(snapshot, id);
        prop_assert_eq!(&ours, &theirs.into_iter().filter(unused_id).collect::<BTreeSet<_>>());
        prop_assert!(ours.is_subset(&sandboxes));
    }

    #[test]
    fn every_plan_passes_the_check(node in nodes(Oddity::Any)) {
        let each = Target::ALL.into_iter().map(|target| [target].into());
        for targets in each.chain([Targets::all().0]) {
            let plan = gc::plan(&node.snapshot, &node.policy, &targets);
            prop_assert_eq!(check(&plan.removals, &node.snapshot, &node.policy), []);
        }
    }

    #[test]
    fn every_object_has_one_verdict_in_order(node in nodes(Oddity::Any)) {
        let plan = plan_of(&node);
        let removals = plan.removals.iter().map(|it| (it.subject.target, it.subject.id.to_string()));
        let kept = plan.kept.iter().map(|it| (it.subject.target, it.subject.id.to_string()));
        let mut judged: Vec<_> = removals.chain(kept).collect();
        let containers = node.snapshot.containers.iter().map(|it| (Target::Containers, it.id.to_string()));
        let sandboxes = node.snapshot.sandboxes.iter().map(|it| (Target::Sandboxes, it.id.to_string()));
        let images = images_of(&node.snapshot).iter().map(|it| (Target::Images, it.key().into_owned()));
        let mut all: Vec<_> = containers.chain(sandboxes).chain(images).collect();
        judged.sort();
        all.sort();
        prop_assert_eq!(judged, all);
        let keys: Vec<_> = plan.removals.iter().map(order_on(&node.snapshot)).collect();
        prop_assert!(keys.is_sorted(), "{keys:?}");
        let counted: usize = plan
            .summary
            .values()
            .map(|it| it.remove.values().sum::<usize>() + it.keep.values().sum::<usize>())
            .sum();
        prop_assert_eq!(counted, plan.removals.len() + plan.kept.len());
    }

    #[test]
    fn a_plan_after_its_own_pass_wants_nothing_more(node in nodes(Oddity::Any)) {
        let after = without(&node, &plan_of(&node));
        // Without a record of unknown state or exit its pod may count as finished.
        let before = known(&node);
        // Without the last unknown exit the other records may count as quiet.
        let is_same = exits_unknown(&node) == exits_unknown(&after);
        if is_same && known(&after).iter().all(|(uid, state)| before.get(uid) == Some(state)) {
            prop_assert_eq!(plan_of(&after).removals, []);
        } else {
            let after = without(&after, &plan_of(&after));
            prop_assert_eq!(plan_of(&after).removals, []);
        }
    }

    #[test]
    fn a_plan_carried_out_in_part_never_grows(
        node in nodes(Oddity::Any),
        seed in any::<u64>(),
        later in 0..7200_i64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        for target in Target::ALL {
            let first = gc::plan(&node.snapshot, &node.policy, &[target].into());
            let (done, due): (Vec<_>, Vec<_>) =
                first.removals.clone().into_iter().partition(|_| random.bool());
            let mut fresh = without(&node, &Plan { removals: done, ..first.clone() });
            fresh.snapshot.taken_at += SignedDuration::from_secs(later);
            let plan = gc::plan(&fresh.snapshot, &fresh.policy, &[target].into());
            let (still, _) = still_due(due.clone(), &plan);
            let is_due = |it: &Removal| due.iter().any(|due| due.subject == it.subject);
            prop_assert!(still.iter().all(is_due));
            let wanted: BTreeSet<&str> = ids(&plan, target).collect();
            prop_assert!(still.iter().all(|removal| wanted.contains(removal.subject.id.as_str())));
            prop_assert!(still.is_sorted_by_key(order_on(&node.snapshot)));
        }
    }

    #[test]
    fn a_shown_age_never_begins_before_the_creation(mut node in nodes(Oddity::Any)) {
        for container in node.snapshot.containers.iter_mut() {
            // The clock stepped back while it ran.
            let before = container.created_at - SignedDuration::from_hours(1);
            container.finished_at = container.finished_at.map(|_| before);
        }
        let plan = plan_of(&node);
        let planned = plan.removals.iter().map(|it| &it.subject);
        for shown in planned.chain(plan.kept.iter().map(|it| &it.subject)) {
            let since = node.snapshot.taken_at.duration_since(shown.created_at);
            let is_container = shown.target == Target::Containers;
            prop_assert!(!is_container || shown.age_seconds <= since.as_secs().max(0));
        }
    }

    #[test]
    fn a_container_that_runs_again_is_not_still_due(node in nodes(Oddity::Any)) {
        let first = plan_of(&node);
        let mut fresh = node.clone();
        for container in fresh.snapshot.containers.iter_mut() {
            if container.state == ContainerState::Created {
                container.state = ContainerState::Running;
            }
        }
        for sandbox in fresh.snapshot.sandboxes.iter_mut() {
            sandbox.state = PodSandboxState::Ready;
        }
        for removal in still_due(first.removals, &plan_of(&fresh)).0 {
            prop_assert_ne!(removal.subject.target, Target::Sandboxes);
            prop_assert_ne!(&removal.expected, &gc::Expected::Container(ContainerState::Created));
        }
    }
}

fn plan_of(node: &Node) -> Plan {
    gc::plan(&node.snapshot, &node.policy, &Targets::all().0)
}

/// The knowledge of each pod that is still on the node.
fn known(node: &Node) -> BTreeMap<&PodUid, gc::PodKnowledge> {
    let knowledge = Knowledge::of(&node.snapshot, &node.policy);
    let pods = node
        .snapshot
        .containers
        .iter()
        .filter_map(|it| it.pod.as_ref());
    pods.map(|pod| (&pod.uid, knowledge.get(&pod.uid)))
        .collect()
}

/// The pods with a container of unknown exit time.
fn exits_unknown(node: &Node) -> BTreeSet<&PodUid> {
    let rows = node.snapshot.containers.iter();
    let unknown = rows.filter(|it| it.state == ContainerState::Exited && it.finished_at.is_none());
    unknown
        .filter_map(|it| it.pod.as_ref())
        .map(|pod| &pod.uid)
        .collect()
}

fn ids(plan: &Plan, target: Target) -> impl Iterator<Item = &str> {
    plan.removals_of(target)
        .map(|removal| removal.subject.id.as_str())
}

/// The expected order: target by target, oldest first; images least recently used first. While a list is over
/// its limit, containers are ordered by their exits, those without one last.
type RemovalOrder = (
    Target,
    (bool, Option<Timestamp>),
    Option<Timestamp>,
    Timestamp,
);

fn order_on(snapshot: &Snapshot) -> impl Fn(&Removal) -> RemovalOrder {
    let lasts = snapshot
        .outage
        .is_some_and(|outage| outage.last_seen >= snapshot.taken_at);
    let exits = snapshot.containers.iter().filter(|_| lasts);
    let exits = exits.map(|it| (it.id.to_string(), it.finished_at));
    let exits: BTreeMap<String, Option<Timestamp>> = exits.collect();
    move |removal| {
        let subject = &removal.subject;
        let is_container = subject.target == Target::Containers;
        let exit = exits.get(subject.id.as_str()).filter(|_| is_container);
        let exit = exit.copied().flatten();
        (
            subject.target,
            (exit.is_none(), exit),
            subject.last_used_at(),
            subject.created_at,
        )
    }
}

fn images_of(snapshot: &Snapshot) -> &[Image] {
    match &snapshot.images {
        Images::Known(store) => &store.rows,
        Images::Unknown(_) => &[],
    }
}

fn removed_containers<'a>(
    plan: &'a Plan,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a Container, RemoveReason)> {
    plan.removals_of(Target::Containers).map(|removal| {
        let found = snapshot
            .containers
            .iter()
            .find(|it| it.id.as_str() == removal.subject.id.as_str());
        (found.unwrap(), removal.reason)
    })
}

fn removed_sandboxes<'a>(
    plan: &'a Plan,
    snapshot: &'a Snapshot,
) -> impl Iterator<Item = (&'a PodSandbox, RemoveReason)> {
    plan.removals_of(Target::Sandboxes).map(|removal| {
        let found = snapshot
            .sandboxes
            .iter()
            .find(|it| it.id.as_str() == removal.subject.id.as_str());
        (found.unwrap(), removal.reason)
    })
}

fn is_older(snapshot: &Snapshot, then: Timestamp, minimum: std::time::Duration) -> bool {
    let age = snapshot.taken_at.duration_since(then);
    age >= SignedDuration::ZERO && age >= SignedDuration::try_from(minimum).unwrap()
}

fn young_sandbox(snapshot: &Snapshot, id: &str) -> bool {
    let found = snapshot
        .sandboxes
        .iter()
        .find(|it| it.id.as_str() == id)
        .unwrap();
    found.created_at > snapshot.taken_at
}

/// `labels` is `None` if they are unknown.
fn is_protected(policy: &Policy, namespace: &str, labels: Option<&Labels>) -> bool {
    let protect = &policy.protect;
    let by_namespace = !protect.namespaces.is_empty()
        && (namespace.is_empty() || protect.namespaces.contains(namespace));
    let by_label = protect.labels.iter().any(|(key, value)| match labels {
        None => true,
        Some(labels) => labels
            .get(key)
            .is_some_and(|is| value.as_deref().is_none_or(|value| value == is)),
    });
    by_namespace || by_label
}

/// Runs a kubelet model with the same policy on the node. `synced`: objects without a pod are orphans.
fn with_kubelet<T>(node: &Node, synced: bool, ask: impl FnOnce(&Kubelet<'_>) -> T) -> T {
    let number = |limit| match limit {
        Limit::None => -1,
        Limit::AtMost(limit) => i64::try_from(limit).unwrap(),
    };
    let is_deleted = |uid: &str| match PodUid::new(uid) {
        Some(uid) => is_deleted(&node.snapshot, &node.policy, &uid),
        None => synced,
    };
    ask(&Kubelet {
        now: node.snapshot.taken_at,
        minimum_age: node.policy.containers.min_age,
        per_container: number(node.policy.containers.max_per_container),
        dead_containers: number(node.policy.containers.max_dead),
        is_deleted: &is_deleted,
    })
}

fn kubelets(node: &Node, synced: bool) -> (BTreeSet<String>, BTreeSet<String>) {
    with_kubelet(node, synced, |kubelet| {
        let gone = kubelet.containers(&node.snapshot.containers);
        let mut left = node.snapshot.containers.to_vec();
        left.retain(|container| !gone.contains(container.id.as_str()));
        let sandboxes = kubelet.sandboxes(&node.snapshot.sandboxes, &left);
        (gone, sandboxes)
    })
}

/// The node after the plan: removed objects are gone, their exits are remembered.
fn without(node: &Node, plan: &Plan) -> Node {
    let mut after = node.clone();
    let gone: BTreeSet<&str> = ids(plan, Target::Containers).collect();
    for container in &node.snapshot.containers {
        let (Some(pod), Some(at)) = (&container.pod, container.finished_at) else {
            continue;
        };
        let last_exits = Arc::make_mut(&mut after.snapshot.last_exits);
        let last = last_exits.entry(pod.uid.clone()).or_insert(at);
        *last = at.max(*last);
    }
    after
        .snapshot
        .containers
        .retain(|it| !gone.contains(it.id.as_str()));
    let gone: BTreeSet<&str> = ids(plan, Target::Sandboxes).collect();
    after
        .snapshot
        .sandboxes
        .retain(|it| !gone.contains(it.id.as_str()));
    images::remove(&mut after.snapshot, plan);
    after
}

/// The generator must produce the relevant states, or the properties prove nothing.
#[test]
fn the_nodes_show_every_reason() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut removed, mut kept) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..500 {
        let plan = plan_of(&nodes(Oddity::Any).new_tree(&mut runner).unwrap().current());
        removed.extend(
            plan.removals
                .iter()
                .map(|it| (it.subject.target, it.reason)),
        );
        kept.extend(plan.kept.iter().map(|it| (it.subject.target, it.reason)));
    }
    // Logs have their own nodes and their own test like this one.
    for target in Target::ALL.into_iter().filter(|it| *it != Target::Logs) {
        for reason in RemoveReason::all(target).iter().copied() {
            assert!(
                removed.contains(&(target, reason)),
                "{target}: {reason:?} was never seen"
            );
        }
        for reason in keep_reasons(target) {
            let never = (target, *reason) == (Target::Containers, KeepReason::Quarantined);
            assert!(
                never || kept.contains(&(target, *reason)),
                "{target}: {reason:?} never seen"
            );
        }
    }
}
