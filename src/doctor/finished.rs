//! Finished pods that the cluster still keeps: as long as it does, their newest records stay on the node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::litter::is_plain;
use super::owners::{Controller, Owners};
use super::report::many;
use super::{DoctorFacts, Finding, ROWS_MAX, Severity};
use crate::model::{PodSourceKind, PodUid, short_size};

/// Finished pods from which on they are worth a change.
const PODS_MUCH: u64 = 50;
/// How many finished pods a cluster keeps by default (`--terminated-pod-gc-threshold`).
const CLUSTER_KEEPS: u32 = 12_500;

#[derive(Debug, Default)]
struct FinishedPods<'a> {
    pods: BTreeSet<&'a PodUid>,
    containers: u64,
    sandboxes: u64,
    bytes: u64,
}

/// Counts the finished pods and what they cost on this node.
pub(super) fn finding(facts: &DoctorFacts, owners: &Owners<'_>) -> Option<Finding> {
    let finished: BTreeSet<&PodUid> = facts
        .pods
        .known()?
        .pods
        .iter()
        .filter(|(_, pod)| pod.finished && !pod.is_static())
        .map(|(uid, _)| uid)
        .collect();
    let (container_bytes, sandbox_bytes) = facts.row_bytes();
    let sandboxes = facts.sandboxes.iter();
    let sandboxes = sandboxes.map(|it| (&it.pod, it.created_at, [0, 1], sandbox_bytes));
    let containers = facts.containers.iter();
    let containers = containers.map(|it| (&it.pod, it.created_at, [1, 0], container_bytes));
    let mut owner_of: BTreeMap<&PodUid, Controller> = BTreeMap::new();
    let mut groups: BTreeMap<Controller, FinishedPods<'_>> = BTreeMap::new();
    for (pod, at, [containers, sandboxes], bytes) in sandboxes.chain(containers) {
        let uid = pod.as_ref().and_then(|pod| finished.get(&pod.uid));
        let (Some(pod), Some(&uid)) = (pod, uid) else {
            continue;
        };
        let owner = owner_of.entry(uid);
        let owner = owner.or_insert_with(|| owners.owner(uid, &pod.namespace, at));
        let group = groups.entry(owner.clone()).or_default();
        group.pods.insert(uid);
        group.containers += containers;
        group.sandboxes += sandboxes;
        group.bytes += bytes;
    }
    build(facts, finished.len() as u64, groups)
}

fn build(
    facts: &DoctorFacts,
    finished: u64,
    groups: BTreeMap<Controller, FinishedPods<'_>>,
) -> Option<Finding> {
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse((group.bytes, group.pods.len())));
    let (owner, first) = groups.first()?;
    let sum =
        |of: fn(&FinishedPods<'_>) -> u64| groups.iter().map(|(_, group)| of(group)).sum::<u64>();
    let pods = sum(|group| group.pods.len() as u64);
    let bytes = sum(|group| group.bytes);
    let look = look(owner);
    let rows: Vec<_> = groups
        .iter()
        .take(ROWS_MAX)
        .map(|(owner, group)| {
            json!({
                "namespace": owner.namespace, "kind": owner.kind, "name": owner.name, "pods": group.pods.len(),
                "containers": group.containers, "sandboxes": group.sandboxes, "list_bytes": group.bytes,
            })
        })
        .collect();
    let finding = Finding::new(
        "finished-pods",
        Severity::of_much(pods >= PODS_MUCH),
        format!(
            "The cluster still keeps {}, which cost this node {}, {} and {} of the lists; {} of them {} of {}.",
            many(pods, "finished pod"),
            many(sum(|group| group.containers), "container"),
            many(sum(|group| group.sandboxes), "sandbox"),
            short_size(bytes),
            first.pods.len(),
            if first.pods.len() == 1 { "is" } else { "are" },
            owner.words(),
        ),
        change(facts, owner, &look),
        json!({
            "pods": pods, "list_bytes": bytes, "owners": rows,
            "other_owners": groups.len().saturating_sub(ROWS_MAX),
            "without_records_here": finished.saturating_sub(pods),
            "look": look,
            "jobs_specs_read": false,
            "cluster_keeps_by_default": CLUSTER_KEEPS,
            "cluster_flag": "kube-controller-manager --terminated-pod-gc-threshold",
        }),
    );
    Some(finding.costing(bytes))
}

/// Returns the command that shows what crisweep cannot read: it has no right to Jobs.
fn look(owner: &Controller) -> String {
    let (namespace, kind, name) = (&*owner.namespace, &*owner.kind, &*owner.name);
    if !is_plain(namespace) {
        return "kubectl get pods --field-selector=status.phase!=Running".to_owned();
    }
    match kind {
        "CronJob" if is_plain(name) => format!(
            "kubectl -n {namespace} get cronjob {name} -o jsonpath='{{.spec.successfulJobsHistoryLimit}} \
             {{.spec.failedJobsHistoryLimit}} {{.spec.jobTemplate.spec.ttlSecondsAfterFinished}}'"
        ),
        "Job" if is_plain(name) => format!(
            "kubectl -n {namespace} get job {name} -o jsonpath='{{.spec.ttlSecondsAfterFinished}}'"
        ),
        _ => format!("kubectl -n {namespace} get pods --field-selector=status.phase!=Running"),
    }
}

fn change(facts: &DoctorFacts, owner: &Controller, look: &str) -> String {
    let namespace = owner.namespace.as_str();
    match owner.kind.as_str() {
        "CronJob" | "Job" => {
            let change = super::litter::change(owner, facts);
            format!("{change} (what it is now: {look})")
        }
        "unknown" if facts.origin.source == PodSourceKind::File => {
            format!("have the pods file name owners, or look yourself: {look}")
        }
        _ if is_plain(namespace) => format!(
            "delete the finished pods of this node in {namespace}, also those of other owners: kubectl -n {namespace} \
             delete pods --field-selector=status.phase==Failed,spec.nodeName={node} (and ==Succeeded); the cluster itself begins at {CLUSTER_KEEPS} pods (kube-controller-manager \
             --terminated-pod-gc-threshold)",
            node = facts.config.node.name
        ),
        _ => format!("delete them; {look}"),
    }
}
