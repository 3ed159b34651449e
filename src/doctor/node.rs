//! What else crisweep knows and someone should look at.

use std::collections::BTreeMap;

use serde_json::json;

use super::report::many;
use super::{DoctorFacts, Finding, NODE_UNREAD, Severity};
use crate::config::Mode;
use crate::model::{ContainerState, FailureClass, PodRef, PodSandboxState, Pods, PodsUnknown};

pub(super) fn findings(facts: &DoctorFacts) -> Vec<Finding> {
    [
        unread(facts),
        teardown(facts),
        pods(facts),
        observes(facts),
        ahead(facts),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn unread(facts: &DoctorFacts) -> Option<Finding> {
    let unread = facts.unread.join("; ");
    let finding = Finding::new(
        NODE_UNREAD,
        Severity::Problem,
        format!("A part of the node could not be read: {unread}."),
        "see whether the runtime is well: crictl version; crisweep check",
        json!({ "unread": facts.unread }),
    );
    (!facts.unread.is_empty()).then(|| finding.costing(u64::MAX))
}

/// Sandboxes that cannot be removed.
fn teardown(facts: &DoctorFacts) -> Option<Finding> {
    let stuck: usize = facts.quarantined.values().sum();
    let (class, most) = facts.quarantined.iter().max_by_key(|(_, count)| **count)?;
    let (why, change) = match class {
        FailureClass::NetworkTeardown => (
            "the CNI plugin's teardown fails",
            "repair the CNI plugin: its own log and its daemon on this node say why DEL fails; then run a pass: crisweep \
             gc --target sandboxes",
        ),
        FailureClass::PluginMissing => (
            "the CNI plugin or its configuration is missing",
            "put the CNI plugin back: its binary in /opt/cni/bin, its configuration in /etc/cni/net.d",
        ),
        FailureClass::Busy => (
            "another removal holds them",
            "find who else removes them (a script, another collector) and stop it",
        ),
        FailureClass::Timeout => (
            "the runtime does not end their removal in time",
            "raise runtime.removal_timeout above the time that the CNI plugin needs",
        ),
        FailureClass::Other => (
            "the runtime refuses",
            "read the runtime's error: crisweep status, or GET /api/v1/status (quarantine)",
        ),
    };
    let (_, row) = facts.row_bytes();
    let classes = facts.quarantined.iter();
    let classes: BTreeMap<_, _> = classes.map(|(it, count)| (it.label(), count)).collect();
    let sandboxes = many(stuck as u64, "sandbox");
    let finding = Finding::new(
        "sandbox-teardown",
        Severity::Problem,
        format!("{sandboxes} cannot be removed; of {most}, {why}."),
        change,
        json!({ "sandboxes": stuck, "classes": classes }),
    );
    Some(finding.costing(row.saturating_mul(stuck as u64)))
}

fn pods(facts: &DoctorFacts) -> Option<Finding> {
    let source = facts.origin.source.label();
    let Pods::Unknown(why) = &facts.pods else {
        let pod = unlisted(facts)?;
        let (namespace, name) = (&pod.namespace, &pod.name);
        return Some(Finding::new(
            "pods-unknown",
            Severity::Problem,
            format!(
                "The pod list is incomplete: pod {namespace}/{name} lives here and is not in it."
            ),
            "find out why the pod source does not list it (docs/pods.md); until then only surplus goes",
            json!({ "source": source, "chosen": facts.origin.why, "why": "incomplete", "pod_uid": pod.uid }),
        ));
    };
    let (severity, change) = match why {
        PodsUnknown::NoSource => (
            Severity::Advice,
            "set pods.source (docs/pods.md says which): without one only surplus goes, and owners are unknown",
        ),
        PodsUnknown::Settling => (Severity::Info, "wait for pods.settle, and ask again"),
        PodsUnknown::Failed(_) => (
            Severity::Problem,
            "repair the pod source (docs/pods.md); until then only surplus goes",
        ),
    };
    Some(Finding::new(
        "pods-unknown",
        severity,
        format!("No pod is known: {why}."),
        change,
        json!({ "source": source, "chosen": facts.origin.why, "why": why.to_string() }),
    ))
}

/// Returns a pod that lives here and that the pod list lacks: the list proves nothing.
pub(super) fn unlisted(facts: &DoctorFacts) -> Option<&PodRef> {
    let list = facts.pods.known()?;
    let unknown_is_dead = facts.config.policy.containers.include_unknown;
    let may_run = |state| match state {
        ContainerState::Running => true,
        ContainerState::Unknown => !unknown_is_dead,
        ContainerState::Created | ContainerState::Exited => false,
    };
    let running = facts.containers.iter().filter(|it| may_run(it.state));
    let ready = facts.sandboxes.iter();
    let ready = ready.filter(|it| it.state == PodSandboxState::Ready);
    let mut living = running.map(|it| &it.pod).chain(ready.map(|it| &it.pod));
    living.find_map(|pod| pod.as_deref().filter(|it| !list.pods.contains_key(&it.uid)))
}

fn observes(facts: &DoctorFacts) -> Option<Finding> {
    let config = &facts.config;
    let (summary, change) = match () {
        () if config.mode == Mode::Observe => (
            "crisweep only observes: it plans and removes nothing.",
            "set mode to enforce",
        ),
        () if config.brakes.pause => (
            "crisweep is paused: it starts no pass by itself.",
            "set brakes.pause to false",
        ),
        () => return None,
    };
    let details = json!({ "mode": config.mode.label(), "pause": config.brakes.pause });
    Some(Finding::new(
        "nothing-is-removed",
        Severity::Advice,
        summary,
        change,
        details,
    ))
}

/// Litter that is young until the clock has come to its time.
fn ahead(facts: &DoctorFacts) -> Option<Finding> {
    let exits = facts
        .dead()
        .map(|it| it.finished_at.unwrap_or(it.created_at));
    let all = exits.chain(facts.not_ready().map(|it| it.created_at));
    let ahead: Vec<_> = all.filter(|at| facts.is_ahead(*at)).collect();
    let last = ahead.iter().max()?;
    let count = ahead.len() as u64;
    let finding = Finding::new(
        "clock-set-back",
        Severity::Advice,
        format!(
            "{} dated in the future, up to {last}: a clock was set back, and they count as young until then.",
            many(count, "dead record"),
        ),
        "set the node's clock right (timedatectl); what must go before that goes only by hand",
        json!({ "ahead": count, "last": last }),
    );
    Some(finding)
}
