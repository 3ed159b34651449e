//! A second opinion on a plan. Shares no code with the planner on purpose: it states, removal by
//! removal, what must be true before anything goes, in the plainest way, and a pass whose plan breaks
//! one of these rules is aborted before it touches anything.

mod images;
mod logs;
mod pods;
mod quiet;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::{AgeFrom, Expected, Limit, Policy, Removal, RemoveReason, Target};
use crate::model::{
    Container, ContainerState, Coverage, PodRef, PodSandbox, PodSandboxState, PodUid, Snapshot,
};

/// A rule that a plan broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The object.
    pub id: String,
    /// The rule, as what is wrong.
    pub rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.rule)
    }
}

/// Returns every rule that `removals` would break on this node; empty means that they may go.
pub fn check(removals: &[Removal], snapshot: &Snapshot, policy: &Policy) -> Vec<Violation> {
    let node = Node::index(snapshot, policy);
    let going: BTreeSet<&str> = removals
        .iter()
        .filter(|removal| removal.subject.target == Target::Containers)
        .map(|removal| removal.subject.id.as_str())
        .collect();
    let mut seen = BTreeSet::new();
    let mut violations = Vec::new();
    for removal in removals {
        let id = removal.subject.id.as_str();
        let broken = if seen.insert((removal.subject.target, id)) {
            match removal.subject.target {
                Target::Containers => container_rule(&node, policy, removal),
                Target::Sandboxes => sandbox_rule(&node, policy, removal, &going),
                Target::Logs => logs::rule(&node, policy, removal, &going),
                Target::Images => images::rule(&node, policy, removal, &going),
            }
        } else {
            Some("is planned twice")
        };
        violations.extend(broken.map(|rule| Violation {
            id: id.to_owned(),
            rule,
        }));
    }
    violations.extend(images::room_rule(&node, policy, removals));
    violations.extend(quiet::violations(removals, snapshot, policy));
    if !snapshot.outage.is_some_and(|outage| outage.lasts(snapshot)) {
        violations.extend(order_rule(removals));
    }
    violations.extend(
        removals
            .iter()
            .filter_map(|removal| limit_rule(&node, policy, removal)),
    );
    violations
}

/// The snapshot, indexed the plain way.
struct Node<'a> {
    snapshot: &'a Snapshot,
    policy: &'a Policy,
    containers: BTreeMap<&'a str, &'a Container>,
    sandboxes: BTreeMap<&'a str, &'a PodSandbox>,
    by_pod: BTreeMap<&'a PodUid, (Vec<&'a Container>, Vec<&'a PodSandbox>)>,
    by_sandbox: BTreeMap<&'a str, Vec<&'a Container>>,
    images: images::Index<'a>,
    alive: BTreeSet<&'a PodUid>,
    /// Pods with a container in state unknown: it may run.
    doubtful: BTreeSet<&'a PodUid>,
    logs: logs::Index<'a>,
    /// How many of each target do not run. Counted once: there may be a removal for each.
    dead: BTreeMap<Target, usize>,
    /// The pod source's list has every living pod; false without a list.
    whole: bool,
}

impl<'a> Node<'a> {
    fn index(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let mut node = Self {
            snapshot,
            policy,
            containers: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            by_pod: BTreeMap::new(),
            by_sandbox: BTreeMap::new(),
            images: images::Index::of(snapshot),
            alive: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            logs: logs::Index::of(snapshot),
            dead: BTreeMap::new(),
            whole: false,
        };
        for container in &snapshot.containers {
            node.containers.insert(container.id.as_str(), container);
            node.by_sandbox
                .entry(container.sandbox_id.as_str())
                .or_default()
                .push(container);
            if let Some(pod) = &container.pod {
                node.by_pod.entry(&pod.uid).or_default().0.push(container);
                match container.state {
                    ContainerState::Running => node.alive.insert(&pod.uid),
                    ContainerState::Unknown => node.doubtful.insert(&pod.uid),
                    ContainerState::Created | ContainerState::Exited => false,
                };
            }
            let dead = container.state != ContainerState::Running;
            *node.dead.entry(Target::Containers).or_default() += usize::from(dead);
        }
        for sandbox in &snapshot.sandboxes {
            node.sandboxes.insert(sandbox.id.as_str(), sandbox);
            if let Some(pod) = &sandbox.pod {
                node.by_pod.entry(&pod.uid).or_default().1.push(sandbox);
                if sandbox.state == PodSandboxState::Ready {
                    node.alive.insert(&pod.uid);
                }
            }
            let dead = sandbox.state == PodSandboxState::NotReady;
            *node.dead.entry(Target::Sandboxes).or_default() += usize::from(dead);
        }
        node.whole = node.list_is_whole();
        node
    }

    /// Counts the records of a container's name that were created after it.
    fn later_ones(&self, id: &str) -> usize {
        let Some(this) = self.containers.get(id) else {
            return 0;
        };
        let pod = this.pod.as_ref().and_then(|pod| self.by_pod.get(&pod.uid));
        let records = pod.map(|pod| pod.0.as_slice()).unwrap_or_default().iter();
        let later = records.filter(|other| {
            other.name == this.name
                && (other.created_at, other.attempt, &other.id)
                    > (this.created_at, this.attempt, &this.id)
        });
        later.count()
    }

    fn older_than(&self, then: Timestamp, minimum: Duration) -> bool {
        let age = self.snapshot.taken_at.as_nanosecond() - then.as_nanosecond();
        u128::try_from(age).is_ok_and(|age| age >= minimum.as_nanos())
    }
}

fn container_rule(node: &Node<'_>, policy: &Policy, removal: &Removal) -> Option<&'static str> {
    let rules = &policy.containers;
    let Some(container) = node.containers.get(removal.subject.id.as_str()) else {
        return Some("is not on the node");
    };
    if removal.expected != Expected::Container(container.state) {
        return Some("is in another state than planned");
    }
    if removal.subject.created_at != container.created_at {
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
    let sandbox = node.sandboxes.get(container.sandbox_id.as_str());
    let sandbox_protects = sandbox.is_none_or(|sandbox| policy.protect.has_label(&sandbox.labels));
    if !policy.protect.labels.is_empty()
        && (policy.protect.has_label(&container.labels) || sandbox_protects)
    {
        return Some("bears a protected label, or may bear one");
    }
    let records = node
        .by_pod
        .get(&pod.uid)
        .map(|pod| pod.0.as_slice())
        .unwrap_or_default();
    let others = records
        .iter()
        .filter(|other| other.name == container.name && other.id != container.id)
        .map(|other| (other.attempt, other.created_at, other.id.as_str()));
    let rank = (
        container.attempt,
        container.created_at,
        container.id.as_str(),
    );
    pod_rule(node, policy, removal.reason, pod, outdone(rank, others))
}

fn sandbox_rule(
    node: &Node<'_>,
    policy: &Policy,
    removal: &Removal,
    going: &BTreeSet<&str>,
) -> Option<&'static str> {
    let Some(sandbox) = node.sandboxes.get(removal.subject.id.as_str()) else {
        return Some("is not on the node");
    };
    if sandbox.state != PodSandboxState::NotReady {
        return Some("is ready");
    }
    if removal.subject.created_at != sandbox.created_at {
        return Some("is not the object that was planned");
    }
    let tried_again = node.snapshot.quarantine.get(&sandbox.id);
    if tried_again.is_some_and(|at| *at > node.snapshot.taken_at) {
        return Some("is quarantined");
    }
    let mut holds = node
        .by_sandbox
        .get(sandbox.id.as_str())
        .into_iter()
        .flatten();
    if holds.any(|container| !going.contains(container.id.as_str())) {
        return Some("still has a container");
    }
    let pod = sandbox.pod.as_ref().map(|pod| &pod.uid);
    let mut astray = node.snapshot.containers.iter().filter(|it| {
        let of = it.pod.as_ref().map(|pod| &pod.uid);
        it.sandbox_id.is_stand_in() && (of.is_none() || of == pod)
    });
    if astray.any(|container| !going.contains(container.id.as_str())) {
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
    let siblings = node
        .by_pod
        .get(&pod.uid)
        .map(|pod| pod.1.as_slice())
        .unwrap_or_default();
    let others = siblings
        .iter()
        .filter(|other| other.id != sandbox.id)
        .map(|other| (other.attempt, other.created_at, other.id.as_str()));
    let rank = (sandbox.attempt, sandbox.created_at, sandbox.id.as_str());
    pod_rule(node, policy, removal.reason, pod, outdone(rank, others))
}

/// What makes a record newer than another: attempt, creation, id.
type Rank<'a> = (u32, Timestamp, &'a str);

/// There is one of a higher attempt, and one created later (it may be another).
fn outdone<'a>(rank: Rank<'a>, mut others: impl Iterator<Item = Rank<'a>> + Clone) -> bool {
    let by_creation = |(attempt, created_at, id): Rank<'a>| (created_at, attempt, id);
    others.clone().any(|other| other > rank)
        && others.any(|other| by_creation(other) > by_creation(rank))
}

/// What the removal's reason claims of the pod must hold.
fn pod_rule(
    node: &Node<'_>,
    policy: &Policy,
    reason: RemoveReason,
    pod: &PodRef,
    outdone: bool,
) -> Option<&'static str> {
    match reason {
        RemoveReason::PodDeleted => {
            (!node.is_deleted(&pod.uid)).then_some("its pod is not known to be deleted")
        }
        RemoveReason::DeadLink
        | RemoveReason::ContainerRemoved
        | RemoveReason::Age
        | RemoveReason::Unused
        | RemoveReason::Space => Some("is planned for a reason of another target"),
        RemoveReason::Superseded => (!outdone).then_some("is the newest of a pod that may exist"),
        RemoveReason::OverCap => (!outdone && !node.is_finished(&pod.uid, policy))
            .then_some("is the newest of a pod that may run again"),
    }
}

fn is_protected(policy: &Policy, pod: &PodRef) -> bool {
    let namespaces = &policy.protect.namespaces;
    let by_namespace = !namespaces.is_empty()
        && (pod.namespace.is_empty() || namespaces.contains(pod.namespace.as_str()));
    by_namespace || policy.protect.has_label_of_pod(pod)
}

/// Target by target, each oldest creation first; images least recently used first.
fn order_rule(removals: &[Removal]) -> Option<Violation> {
    removals.windows(2).find_map(|pair| {
        let [a, b] = pair else { return None };
        let key = |removal: &Removal| {
            let subject = &removal.subject;
            (subject.target, subject.last_used_at, subject.created_at)
        };
        (key(a) > key(b)).then(|| Violation {
            id: b.subject.id.to_string(),
            rule: "is older than its predecessor",
        })
    })
}

/// What is switched off loses nothing, and what a limit takes must lie beyond that limit.
fn limit_rule(node: &Node<'_>, policy: &Policy, removal: &Removal) -> Option<Violation> {
    let Policy {
        containers,
        sandboxes,
        ..
    } = policy;
    let id = removal.subject.id.as_str();
    let target = removal.subject.target;
    let (enabled, cap) = match target {
        Target::Containers => (containers.enabled, containers.max_dead),
        Target::Sandboxes => (sandboxes.enabled, sandboxes.max_dead),
        Target::Logs => (policy.logs.enabled, Limit::None),
        Target::Images => (policy.images.enabled, Limit::None),
    };
    let dead = node.dead.get(&target).copied().unwrap_or(0);
    let later = node.later_ones(id);
    let rule = match removal.reason {
        _ if !enabled => "its target is switched off",
        RemoveReason::OverCap if !node.snapshot.seen.is_all() => "is counted on an incomplete list",
        RemoveReason::OverCap if !exceeds(dead, cap) => "the node is within max_dead",
        RemoveReason::Superseded
            if target == Target::Containers
                && !exceeds(later + 1, containers.max_per_container) =>
        {
            "is within max_per_container"
        }
        RemoveReason::OverCap
        | RemoveReason::Superseded
        | RemoveReason::PodDeleted
        | RemoveReason::DeadLink
        | RemoveReason::ContainerRemoved
        | RemoveReason::Age
        | RemoveReason::Unused
        | RemoveReason::Space => return None,
    };
    Some(Violation {
        id: id.to_owned(),
        rule,
    })
}

fn exceeds(count: usize, limit: Limit) -> bool {
    matches!(limit, Limit::AtMost(limit) if count > limit)
}
