//! What an Event says, and its JSON. Pure.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::evidence::mask::mask_text;
use crate::model::{NodeFigures, Outcome, Pass, PodRef, TriggerInfo, cut, escape};

/// The longest message; the API server refuses longer ones of the newer kind of Events.
const MESSAGE_BYTES_MAX: usize = 1024;
/// The longest error in a message, so that the counts behind it stay.
const WHY_BYTES_MAX: usize = 400;
/// The longest name of an object, and of a namespace.
const NAME_BYTES_MAX: usize = 253;
const NAMESPACE_BYTES_MAX: usize = 63;
/// Where Events of nodes are.
const NODES_NAMESPACE: &str = "default";
/// Who writes them.
const COMPONENT: &str = "crisweep";

/// What happened, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
pub(super) enum Reason {
    GarbageCollected,
    GarbageCollectionFailed,
    ContainerRecordsRemoved,
}

impl Reason {
    fn kind(self) -> &'static str {
        match self {
            Self::GarbageCollected | Self::ContainerRecordsRemoved => "Normal",
            Self::GarbageCollectionFailed => "Warning",
        }
    }
}

/// The object that `kubectl describe` shows an Event with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InvolvedObject {
    /// This node.
    Node,
    /// A pod.
    Pod(Arc<PodRef>),
}

/// The last container of a finished pod, which is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRecord {
    /// Its pod.
    pub pod: Arc<PodRef>,
    /// Its name.
    pub container: String,
    /// Its id.
    pub id: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// How it ended, in a sentence.
    pub ending: String,
    /// Whether its evidence is kept.
    pub has_evidence: bool,
}

/// An Event that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub(super) object: InvolvedObject,
    pub(super) reason: Reason,
    message: String,
    at: Timestamp,
}

impl Event {
    /// Returns the Event of a pass that is over; `None` if it removed nothing and nothing is wrong.
    pub(super) fn of_pass(pass: &Pass) -> Option<Self> {
        let (Some(outcome), Some(_), false) = (pass.outcome, pass.started_at, pass.dry_run) else {
            return None;
        };
        let removed = pass.targets.values().any(|report| report.removed > 0);
        let reason = match outcome {
            Outcome::Partial | Outcome::Aborted | Outcome::Interrupted => {
                Reason::GarbageCollectionFailed
            }
            Outcome::Completed | Outcome::NothingToDo | Outcome::Planned if removed => {
                Reason::GarbageCollected
            }
            Outcome::Completed | Outcome::NothingToDo | Outcome::Planned => return None,
        };
        Some(Self {
            object: InvolvedObject::Node,
            reason,
            message: pass_message(pass, outcome, reason),
            at: pass.finished_at.unwrap_or(pass.queued_at),
        })
    }

    /// Returns the Event of a finished pod whose last container was removed; `None` if the runtime's names are none of
    /// Kubernetes.
    pub(super) fn of_records(record: &LastRecord, node: &str, at: Timestamp) -> Option<Self> {
        let pod = &record.pod;
        let is_in = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let namespace = pod.namespace.as_str();
        // It stands in a path.
        let is_namespace =
            (1..=NAMESPACE_BYTES_MAX).contains(&namespace.len()) && namespace.bytes().all(is_in);
        let is_name = (1..=NAME_BYTES_MAX).contains(&pod.name.as_str().len());
        if !is_namespace || !is_name {
            return None;
        }
        let LastRecord {
            container,
            ending,
            id,
            ..
        } = record;
        let evidence = if record.has_evidence {
            let short = cut(id, 12);
            format!("on node {node}: crisweep evidence show {short}")
        } else {
            "none was kept".to_owned()
        };
        let message = format!(
            "the last container of this finished pod was removed from node {node}: {container} {ending}; its evidence: \
             {evidence}"
        );
        Some(Self {
            object: InvolvedObject::Pod(Arc::clone(pod)),
            reason: Reason::ContainerRecordsRemoved,
            message: mask_text(&message),
            at,
        })
    }

    /// Returns where Events of its object are.
    pub(super) fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/events", self.namespace())
    }

    fn namespace(&self) -> &str {
        match &self.object {
            InvolvedObject::Node => NODES_NAMESPACE,
            InvolvedObject::Pod(pod) => pod.namespace.as_str(),
        }
    }

    /// Returns it as a new object of the API server.
    pub(super) fn new_object(&self, name: &str, node: &str, left_out: u64) -> Value {
        let involved = match &self.object {
            // The kubelet's Events have the node's name as its UID, and `kubectl describe node` looks for that.
            InvolvedObject::Node => json!({ "kind": "Node", "name": node, "uid": node }),
            InvolvedObject::Pod(pod) => json!({
                "apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace.as_str(), "name": pod.name.as_str(),
                "uid": pod.uid.as_str(),
            }),
        };
        let reason: &str = self.reason.into();
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": self.namespace() },
            "involvedObject": involved,
            "reason": reason,
            "message": self.message(left_out),
            "type": self.reason.kind(),
            "count": 1,
            "firstTimestamp": time(self.at),
            "lastTimestamp": time(self.at),
            "source": { "component": COMPONENT, "host": node },
            "reportingComponent": COMPONENT,
            "reportingInstance": node,
        })
    }

    /// Returns what it changes in an earlier one of the same object and reason.
    pub(super) fn repetition(&self, count: u64, left_out: u64) -> Value {
        json!({ "count": count, "lastTimestamp": time(self.at), "message": self.message(left_out) })
    }

    fn message(&self, left_out: u64) -> String {
        let more = if left_out > 0 {
            format!(" ({left_out} earlier Events of this node could not be written)")
        } else {
            String::new()
        };
        let room = MESSAGE_BYTES_MAX - more.len();
        format!("{}{more}", cut(&escape::line(&self.message), room))
    }
}

fn pass_message(pass: &Pass, outcome: Outcome, reason: Reason) -> String {
    let mut parts = Vec::new();
    if reason == Reason::GarbageCollectionFailed {
        let why = pass.last_error().map(mask_text);
        let why = why.unwrap_or_else(|| "not all that was due is gone".to_owned());
        parts.push(format!("{}: {}", outcome.label(), cut(&why, WHY_BYTES_MAX)));
    }
    for (target, report) in &pass.targets {
        let counts = [
            (report.removed, "removed"),
            (report.failed, "failed"),
            (report.skipped, "skipped"),
            (report.remaining, "remaining"),
        ];
        let counts: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !counts.is_empty() {
            parts.push(format!("{target} {}", counts.join(", ")));
        }
    }
    if let (Some(before), Some(after)) = (&pass.before, &pass.after) {
        parts.extend(changes(before, after));
    }
    parts.push(format!("asked by {}", who(&pass.trigger)));
    parts.push(format!("pass {}", pass.id));
    parts.join("; ")
}

fn changes(before: &NodeFigures, after: &NodeFigures) -> Vec<String> {
    let count = |what: &str, before: Option<u64>, after: Option<u64>| {
        Some(format!("{what} {} -> {}", before?, after?))
    };
    let percent = |ratio: Option<f64>| ratio.map(|ratio| format!("{:.0}%", ratio * 100.0));
    let used = percent(before.image_fs_used_ratio).zip(percent(after.image_fs_used_ratio));
    let changes = [
        count(
            "exited containers",
            before.exited_containers,
            after.exited_containers,
        ),
        count(
            "not ready sandboxes",
            before.not_ready_sandboxes,
            after.not_ready_sandboxes,
        ),
        used.map(|(before, after)| format!("image file system {before} -> {after}")),
    ];
    changes.into_iter().flatten().collect()
}

fn who(trigger: &TriggerInfo) -> String {
    let cause = trigger.cause.label();
    let alert = trigger.alert.as_ref().map(|alert| alert.name.clone());
    let by = trigger.by.as_ref().map(ToString::to_string);
    let name = alert.or(by).map(|name| mask_text(&name));
    name.map_or_else(
        || cause.to_owned(),
        |name| format!("{cause} ({})", cut(&name, NAME_BYTES_MAX)),
    )
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
