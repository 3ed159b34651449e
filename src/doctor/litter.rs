//! Which namespaces and owners leave the litter, and how fast it grows.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

use super::node::unlisted;
use super::owners::{Controller, Owners};
use super::report::{many, percent, share};
use super::{Counts, DoctorFacts, Finding, Others, ROWS_MAX, Severity, Top, TopRow};
use crate::config::Thresholds;
use crate::model::{PodRef, PodUid, Pods, PodsUnknown, Target, short_size};

/// Less litter than this is none to speak of.
const LITTER_MIN: u64 = 20;

/// The litter of each owner, or of each namespace, which has no kind.
type Groups = BTreeMap<Controller, Counts>;

/// The litter by namespace and owner.
#[derive(Debug, Default)]
pub(super) struct Litter {
    pub(super) total: Counts,
    namespaces: Groups,
    owners: Groups,
}

impl Litter {
    pub(super) fn of(facts: &DoctorFacts, owners: &Owners<'_>) -> Self {
        let (container_bytes, sandbox_bytes) = facts.row_bytes();
        // If a list was read, every group has a figure of it, also a group of which nothing is left on the node.
        let nothing = Counts {
            dead_containers: facts.lists_read.containers.then_some(0),
            not_ready_sandboxes: facts.lists_read.sandboxes.then_some(0),
            ..Counts::default()
        };
        let mut sum = Self {
            total: nothing,
            ..Self::default()
        };
        for row in facts.dead() {
            let mut counts = came(facts, nothing, row.finished_at.unwrap_or(row.created_at));
            counts.dead_containers = Some(1);
            counts.list_bytes = container_bytes;
            sum.add(owners, row.pod.as_deref(), row.created_at, &counts);
        }
        for row in facts.not_ready() {
            let mut counts = came(facts, nothing, row.created_at);
            counts.not_ready_sandboxes = Some(1);
            counts.list_bytes = sandbox_bytes;
            sum.add(owners, row.pod.as_deref(), row.created_at, &counts);
        }
        for removed in facts.past.iter().flat_map(|past| &past.removed) {
            let is_litter = [Target::Containers, Target::Sandboxes].map(Target::label);
            if !is_litter.contains(&removed.target.as_str()) {
                continue;
            }
            let (came_1h, came_24h) = (removed.came_1h, removed.came_24h);
            let counts = Counts {
                came_1h,
                came_24h,
                ..nothing
            };
            let uid = removed.pod_uid.as_deref().and_then(PodUid::new);
            let pod = uid.map(|uid| PodRef {
                uid,
                namespace: removed.namespace.as_str().into(),
                name: "".into(),
            });
            sum.add(owners, pod.as_ref(), facts.taken_at, &counts);
        }
        sum
    }

    fn add(&mut self, owners: &Owners<'_>, pod: Option<&PodRef>, at: Timestamp, counts: &Counts) {
        let owner = match pod {
            Some(pod) => owners.owner(&pod.uid, &pod.namespace, at),
            None => Controller::new("", "unknown", ""),
        };
        let namespace = Controller::new(&owner.namespace, "", "");
        self.total.add(counts);
        self.namespaces.entry(namespace).or_default().add(counts);
        self.owners.entry(owner).or_default().add(counts);
    }

    pub(super) fn top(&self) -> Top {
        let (namespaces, other_namespaces) = self.cut(&self.namespaces);
        let (owners, other_owners) = self.cut(&self.owners);
        Top {
            namespaces,
            other_namespaces,
            owners,
            other_owners,
        }
    }

    fn cut(&self, groups: &Groups) -> (Vec<TopRow>, Others) {
        let groups = ordered(groups);
        let rows = groups.iter().take(ROWS_MAX);
        let rows = rows.map(|(owner, counts)| TopRow {
            namespace: owner.namespace.clone(),
            kind: (!owner.kind.is_empty()).then(|| owner.kind.clone()),
            name: (!owner.kind.is_empty()).then(|| owner.name.clone()),
            derived: owner.derived,
            share: share(counts.objects(), self.total.objects()),
            counts: **counts,
        });
        let mut others = Others::default();
        others.counts.dead_containers = self.total.dead_containers.map(|_| 0);
        others.counts.not_ready_sandboxes = self.total.not_ready_sandboxes.map(|_| 0);
        for (_, counts) in groups.iter().skip(ROWS_MAX) {
            others.groups += 1;
            others.counts.add(counts);
        }
        (rows.collect(), others)
    }

    /// Says whether it is worth a change: from the number on at which it is worth a pass.
    fn is_much(&self, marks: &Thresholds) -> bool {
        let total = &self.total;
        [
            (total.dead_containers, marks.exited_containers),
            (total.not_ready_sandboxes, marks.not_ready_sandboxes),
        ]
        .into_iter()
        .any(|(is, mark)| is.zip(mark).is_some_and(|(is, mark)| is >= u64::from(mark)))
    }

    /// Names who leaves most.
    pub(super) fn finding(&self, facts: &DoctorFacts) -> Option<Finding> {
        let total = self.total.objects();
        let (owner, counts) = *ordered(&self.owners).first()?;
        if total < LITTER_MIN || counts.objects() == 0 {
            return None;
        }
        let part = percent(share(counts.objects(), total));
        let mut words = owner.words();
        if let Some(first) = words.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let has = if owner.name.is_empty() || owner.kind == "Node" {
            "have"
        } else {
            "has"
        };
        let finding = Finding::new(
            "litter",
            Severity::of_much(self.is_much(&facts.config.thresholds)),
            format!(
                "{words} {has} {} of {} and not-ready sandboxes ({part} %, {} of the lists); {} came in the last \
                 hour, {} in 24 h.",
                counts.objects(),
                many(total, "dead container"),
                short_size(counts.list_bytes),
                counts.came_1h,
                counts.came_24h,
            ),
            change(owner, facts),
            json!({
                "namespace": owner.namespace, "kind": owner.kind, "name": owner.name,
                "counts": counts, "total": self.total,
                "removed_counted": facts.past.is_ok(),
                "removed_unread": facts.past.as_ref().err(),
            }),
        );
        Some(finding.costing(counts.list_bytes))
    }
}

fn came(facts: &DoctorFacts, nothing: Counts, at: Timestamp) -> Counts {
    Counts {
        came_1h: u64::from(facts.is_within(at, 1)),
        came_24h: u64::from(facts.is_within(at, 24)),
        ..nothing
    }
}

/// Sorts groups: the most objects on the node first, then the most that came in a day.
fn ordered(groups: &Groups) -> Vec<(&Controller, &Counts)> {
    let mut groups: Vec<_> = groups.iter().collect();
    groups.sort_by_key(|(_, it)| std::cmp::Reverse((it.objects(), it.came_24h)));
    groups
}

/// Returns the one change for what an owner's pods leave.
pub(super) fn change(owner: &Controller, facts: &DoctorFacts) -> String {
    let (namespace, kind, name) = (&*owner.namespace, &*owner.kind, &*owner.name);
    let patch = |patch: &str| {
        if is_plain(namespace) && is_plain(name) {
            let kind = kind.to_lowercase();
            format!(": kubectl -n {namespace} patch {kind} {name} --type merge -p '{patch}'")
        } else {
            String::new()
        }
    };
    match kind {
        "CronJob" => {
            let command =
                patch(r#"{"spec":{"jobTemplate":{"spec":{"ttlSecondsAfterFinished":300}}}}"#);
            format!("set spec.jobTemplate.spec.ttlSecondsAfterFinished to 300{command}")
        }
        "Job" => {
            let command = patch(r#"{"spec":{"ttlSecondsAfterFinished":300}}"#);
            format!("set spec.ttlSecondsAfterFinished to 300{command}")
        }
        "Node" => {
            "correct or delete the manifest in the kubelet's staticPodPath: its pod ends again and again"
                .to_owned()
        }
        "unknown" if namespace.is_empty() => {
            "find the tool that made them (crictl ps -a, ctr -n k8s.io containers ls); it must remove them itself"
                .to_owned()
        }
        "unknown" => match &facts.pods {
            Pods::Unknown(PodsUnknown::NoSource) => {
                "set pods.source, so that crisweep knows the pods and their owners"
            }
            Pods::Unknown(PodsUnknown::Settling) => "wait for pods.settle, and ask again",
            Pods::Known(_) if unlisted(facts).is_none() => {
                "find what makes them by their names, for the pods are gone: crisweep plan --all"
            }
            Pods::Unknown(_) | Pods::Known(_) => {
                "repair the pod source, so that crisweep knows the pods and their owners"
            }
        }
        .to_owned(),
        _ if is_plain(namespace) => format!(
            "stop what ends these containers: crisweep evidence --namespace {namespace} shows how removed ones ended"
        ),
        _ => "stop what ends these containers: crisweep evidence shows how removed ones ended".to_owned(),
    }
}

/// Says whether a name is one of Kubernetes: only such a name is put into a command.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
    !name.is_empty() && name.len() <= 253 && !name.starts_with('-') && name.bytes().all(plain)
}
