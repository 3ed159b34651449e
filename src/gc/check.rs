//! A second implementation of the harm rules. It shares no rule with the planner on purpose: for each removal
//! it states what harms (a wrong state, a wrong object, a protected or needed one), and a pass whose plan
//! breaks a rule is aborted before it removes anything.
//!
//! Never checks order, limits or space, which cannot harm a pod. `tests/it/properties` compares them with the
//! kubelet's.

mod id_index;
mod images;
mod logs;
mod node;
mod pods;
mod quiet;
mod superseded;

use std::collections::BTreeSet;

use super::{AgeFrom, Limit, Policy, Removal};
use crate::model::{
    ContainerState, Coverage, PodRef, PodSandboxState, RemoveReason, Snapshot, Target,
};
use node::{CheckedNode, Claim, ContainerRow, PlannedRow, RecordNaming, RowFacts, SandboxRow};

/// A rule that a plan broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{id}: {rule}")]
pub struct Violation {
    /// The object.
    pub id: String,
    /// The broken rule, as a problem.
    pub rule: &'static str,
}

/// Returns every rule that `removals` would break on this node; empty means that they may be carried out.
pub fn check(removals: &[Removal], snapshot: &Snapshot, policy: &Policy) -> Vec<Violation> {
    let node = CheckedNode::of(snapshot, policy, removals);
    let mut broken = rules_beside_records(&node, removals);
    // In the order in which memory holds the records: the order of the removals takes a third more time.
    for (claim, record) in node.planned() {
        if let Some(broken) = broken.get_mut(claim.place) {
            *broken = match record {
                PlannedRow::Container(row) => container_rule(&node, claim, row),
                PlannedRow::Sandbox(row) => sandbox_rule(&node, claim, row),
            };
        }
    }
    let mut violations = Vec::new();
    for (removal, broken) in removals.iter().zip(broken) {
        if let Some(rule) = broken.or_else(|| policy_rule(&node, removal)) {
            let id = removal.subject.id.to_string();
            violations.push(Violation { id, rule });
        }
    }
    violations.extend(quiet::violations(&node, removals));
    violations
}

/// Returns for each removal the rule that it breaks. The first removal of a record breaks one until the record is asked.
fn rules_beside_records(node: &CheckedNode<'_>, removals: &[Removal]) -> Vec<Option<&'static str>> {
    let images = images::ImageIndex::of(node, removals);
    let logs = logs::LogIndex::of(node, removals);
    let mut objects = BTreeSet::new();
    let rules = removals.iter().zip(&node.naming).map(|(removal, naming)| {
        match naming {
            RecordNaming::First => return Some("was not checked"),
            RecordNaming::Again => return Some("is planned twice"),
            RecordNaming::NoRecord => {}
        }
        let (target, id) = (removal.subject.target, removal.subject.id.as_str());
        if !objects.insert((target, id)) {
            return Some("is planned twice");
        }
        match target {
            Target::Containers | Target::Sandboxes => Some("is not on the node"),
            Target::Logs => logs::rule(node, &logs, removal),
            Target::Images => images::rule(node, &images, removal),
        }
    });
    rules.collect()
}

fn container_rule(
    node: &CheckedNode<'_>,
    claim: Claim,
    found: &ContainerRow<'_>,
) -> Option<&'static str> {
    let (policy, rules) = (node.policy, &node.policy.containers);
    let container = found.row;
    if found.facts.id_is_shared {
        return Some("has the id of another record");
    }
    if claim.state != Some(container.state) {
        return Some("is in another state than planned");
    }
    if claim.created_at != container.created_at {
        return Some("is not the object that was planned");
    }
    let died = match container.state {
        ContainerState::Running => return Some("is running"),
        ContainerState::Exited if rules.age_from == AgeFrom::Finished => {
            container.finished_at.map(|at| at.max(container.created_at))
        }
        ContainerState::Unknown if !rules.include_unknown => return Some("is in state unknown"),
        ContainerState::Created if !node.older_than(container.created_at, rules.created_grace) => {
            return Some("was created too recently");
        }
        ContainerState::Exited | ContainerState::Unknown | ContainerState::Created => {
            Some(container.created_at)
        }
    };
    if !died.is_some_and(|at| node.older_than(at, rules.min_age)) {
        return Some("is younger than min_age, or of unknown age");
    }
    let Some(pod) = &container.pod else {
        return Some("is not the kubelet's");
    };
    if is_protected(policy, pod) || policy.protect.has_label_of_container(&container.name) {
        return Some("is protected by its namespace or name");
    }
    let sandbox_protects = || {
        let sandbox = found.sandbox.and_then(|place| node.sandboxes.get(place));
        sandbox.is_none_or(|sandbox| policy.protect.has_label(&sandbox.row.labels))
    };
    if !policy.protect.labels.is_empty()
        && (policy.protect.has_label(&container.labels) || sandbox_protects())
    {
        return Some("bears a protected label, or may: its sandbox is not listed");
    }
    pod_rule(node, claim.reason, &found.facts)
}

fn sandbox_rule(
    node: &CheckedNode<'_>,
    claim: Claim,
    found: &SandboxRow<'_>,
) -> Option<&'static str> {
    let policy = node.policy;
    let sandbox = found.row;
    if found.facts.id_is_shared {
        return Some("has the id of another record");
    }
    if sandbox.state != PodSandboxState::NotReady {
        return Some("is ready");
    }
    if claim.created_at != sandbox.created_at {
        return Some("is not the object that was planned");
    }
    let tried_again = node.snapshot.quarantine.get(&sandbox.id);
    if tried_again.is_some_and(|at| *at > node.snapshot.taken_at) {
        return Some("is quarantined");
    }
    if found.staying > 0 {
        return Some("still has a container");
    }
    if node.astray.contains(&None) || node.astray.contains(&found.facts.pod) {
        return Some("may have a container that does not say which sandbox it is in");
    }
    if node.snapshot.seen.containers < Coverage::Whole {
        return Some("may have a container that was not listed");
    }
    if !node.older_than(sandbox.created_at, policy.sandboxes.min_age) {
        return Some("is younger than min_age");
    }
    let Some(pod) = &sandbox.pod else {
        return Some("is not the kubelet's");
    };
    if is_protected(policy, pod) || policy.protect.has_label(&sandbox.labels) {
        return Some("is protected");
    }
    pod_rule(node, claim.reason, &found.facts)
}

/// Checks what the removal's reason claims about the pod.
fn pod_rule(
    node: &CheckedNode<'_>,
    reason: RemoveReason,
    facts: &RowFacts,
) -> Option<&'static str> {
    let (pod, superseded) = (node.end(facts.pod), facts.superseded);
    match reason {
        RemoveReason::PodDeleted => (!pod.deleted).then_some("its pod is not known to be deleted"),
        RemoveReason::DeadLink
        | RemoveReason::ContainerRemoved
        | RemoveReason::Age
        | RemoveReason::Space => Some("is planned for a reason of another target"),
        RemoveReason::Superseded => {
            (!superseded).then_some("is the newest of a pod that may exist")
        }
        RemoveReason::OverCap => {
            (!superseded && !pod.finished).then_some("is the newest of a pod that may run again")
        }
    }
}

fn is_protected(policy: &Policy, pod: &PodRef) -> bool {
    let namespaces = &policy.protect.namespaces;
    let by_namespace = !namespaces.is_empty()
        && (pod.namespace.is_empty() || namespaces.contains(pod.namespace.as_str()));
    by_namespace || policy.protect.has_label_of_pod(pod)
}

/// A switched-off target loses nothing, and nothing is counted while a part of the node is unseen.
fn policy_rule(node: &CheckedNode<'_>, removal: &Removal) -> Option<&'static str> {
    let policy = node.policy;
    let enabled = match removal.subject.target {
        Target::Containers => policy.containers.enabled,
        Target::Sandboxes => policy.sandboxes.enabled,
        Target::Logs => policy.logs.enabled,
        Target::Images => policy.images.enabled,
    };
    if !enabled {
        return Some("its target is switched off");
    }
    if is_off(policy, removal) {
        return Some("its rule is switched off");
    }
    let counted = removal.reason == RemoveReason::OverCap;
    (counted && !node.snapshot.seen.is_all()).then_some("is counted on an incomplete list")
}

/// Says whether the operator has switched off the rule behind the removal's reason.
fn is_off(policy: &Policy, removal: &Removal) -> bool {
    let (containers, images) = (&policy.containers, &policy.images);
    match (removal.reason, removal.subject.target) {
        (RemoveReason::OverCap, Target::Containers) => containers.max_dead == Limit::None,
        (RemoveReason::OverCap, Target::Sandboxes) => policy.sandboxes.max_dead == Limit::None,
        (RemoveReason::Superseded, Target::Containers) => {
            containers.max_per_container == Limit::None
        }
        (RemoveReason::Space, _) => {
            images.high_threshold_percent >= 100 && images.max_age.is_none()
        }
        (
            RemoveReason::OverCap
            | RemoveReason::Superseded
            | RemoveReason::PodDeleted
            | RemoveReason::DeadLink
            | RemoveReason::ContainerRemoved
            | RemoveReason::Age,
            _,
        ) => false,
    }
}
