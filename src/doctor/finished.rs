//! Finished pods that the cluster still keeps: as long as it does, their newest records stay on the node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::json;

use super::litter::is_plain;
use super::owners::{Controller, Owners};
use super::report::many;
use super::{DoctorFacts, Finding, ROWS_MAX, Severity};
use crate::model::{PodRef, PodSourceKind, PodUid, short_size};

/// Finished pods from which on they are worth a change.
const PODS_MUCH: u64 = 50;
/// How many finished pods a cluster keeps by default (`--terminated-pod-gc-threshold`).
const CLUSTER_KEEPS: u32 = 12_500;

#[derive(Debug, Default)]
struct FinishedPods {
    pods: BTreeSet<PodUid>,
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
    let mut owner_of: BTreeMap<&PodUid, (String, Controller)> = BTreeMap::new();
    let mut groups: BTreeMap<(String, Controller), FinishedPods> = BTreeMap::new();
    let mut count = |pod: &PodRef, at: Timestamp, add: fn(&mut FinishedPods), bytes: u64| {
        let Some(&uid) = finished.get(&pod.uid) else {
            return;
        };
        let owner = owner_of.entry(uid).or_insert_with(|| {
            let owner = owners.owner(uid, &pod.namespace, at);
            (pod.namespace.to_string(), owner)
        });
        let group = groups.entry(owner.clone()).or_default();
        group.pods.insert(uid.clone());
        group.bytes += bytes;
        add(group);
    };
    for row in &facts.sandboxes {
        if let Some(pod) = &row.pod {
            let add = |group: &mut FinishedPods| group.sandboxes += 1;
            count(pod, row.created_at, add, sandbox_bytes);
        }
    }
    for row in &facts.containers {
        if let Some(pod) = &row.pod {
            let add = |group: &mut FinishedPods| group.containers += 1;
            count(pod, row.created_at, add, container_bytes);
        }
    }
    build(facts, finished.len() as u64, groups)
}

fn build(
    facts: &DoctorFacts,
    finished: u64,
    groups: BTreeMap<(String, Controller), FinishedPods>,
) -> Option<Finding> {
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse((group.bytes, group.pods.len())));
    let ((namespace, owner), first) = groups.first()?;
    let sum = |of: fn(&FinishedPods) -> u64| groups.iter().map(|(_, group)| of(group)).sum::<u64>();
    let pods = sum(|group| group.pods.len() as u64);
    let bytes = sum(|group| group.bytes);
    let look = look(namespace, owner);
    let rows: Vec<_> = groups
        .iter()
        .take(ROWS_MAX)
        .map(|((namespace, owner), group)| {
            json!({
                "namespace": namespace, "kind": owner.kind, "name": owner.name, "pods": group.pods.len(),
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
            owner.words(namespace),
        ),
        change(facts, namespace, owner, &look),
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
fn look(namespace: &str, owner: &Controller) -> String {
    let (kind, name) = (owner.kind.as_str(), owner.name.as_str());
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

fn change(facts: &DoctorFacts, namespace: &str, owner: &Controller, look: &str) -> String {
    match owner.kind.as_str() {
        "CronJob" | "Job" => {
            let change = super::litter::change(owner, namespace, facts);
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
