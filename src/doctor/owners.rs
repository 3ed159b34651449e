//! Who controls a pod: by the pod source, else by what was kept of the pod's removed containers; else it is unknown.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::DoctorFacts;
use crate::model::{ConfigSource, PodOwner, PodUid};

/// The label that a Deployment puts on its pods: the end of the `ReplicaSet`'s name.
const TEMPLATE_HASH: &str = "pod-template-hash";
/// How far a Job's scheduled time may lie from its pods' creation.
const SCHEDULED_WITHIN: SignedDuration = SignedDuration::from_hours(48);

/// What controls pods of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Controller {
    /// Its namespace; empty: not the kubelet's.
    pub(super) namespace: String,
    /// `Deployment`, `CronJob`, ..., `Node`, `none` or `unknown`.
    pub(super) kind: String,
    /// Its name; empty for `none` and `unknown`.
    pub(super) name: String,
    /// It is one further up than the pod's controller.
    pub(super) derived: bool,
}

impl Controller {
    pub(super) fn new(namespace: &str, kind: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            derived: false,
        }
    }

    /// Says whether each of its pods stands for itself: nothing that is known controls them.
    pub(super) fn is_pod_itself(&self) -> bool {
        ["none", "unknown", "Node"].contains(&self.kind.as_str())
    }

    /// Names it in a sentence.
    pub(super) fn words(&self) -> String {
        let namespace = self.namespace.as_str();
        match self.kind.as_str() {
            "none" => format!("pods without an owner in namespace {namespace}"),
            "unknown" if namespace.is_empty() => "containers of no pod".to_owned(),
            "unknown" => format!("pods of unknown owners in namespace {namespace}"),
            "Node" => format!("static pods in namespace {namespace}"),
            kind => format!("{kind} {namespace}/{}", self.name),
        }
    }
}

/// The owners of the node's pods.
#[derive(Debug)]
pub(super) struct Owners<'a> {
    facts: &'a DoctorFacts,
    /// Of each sandbox's pod: the Deployment's name by the `ReplicaSet`'s namespace and name.
    deployments: BTreeMap<(String, String), String>,
    /// The kubelet's source of each pod, by its sandbox.
    sources: BTreeMap<&'a PodUid, ConfigSource>,
}

impl<'a> Owners<'a> {
    pub(super) fn of(facts: &'a DoctorFacts) -> Self {
        let mut owners = Self {
            facts,
            deployments: BTreeMap::new(),
            sources: BTreeMap::new(),
        };
        for sandbox in &facts.sandboxes {
            let Some(pod) = &sandbox.pod else { continue };
            if let Some(source) = sandbox.config_source {
                owners.sources.insert(&pod.uid, source);
            }
            let hash = sandbox.labels.get(TEMPLATE_HASH);
            let set = owners
                .controller(&pod.uid)
                .filter(|it| it.kind == "ReplicaSet");
            if let Some((hash, set)) = hash.zip(set)
                && let Some(name) = set
                    .name
                    .strip_suffix(hash)
                    .and_then(|it| it.strip_suffix('-'))
            {
                let key = (pod.namespace.to_string(), set.name.clone());
                let name = name.to_owned();
                owners.deployments.insert(key, name);
            }
        }
        owners
    }

    /// Returns who controls the pod; `at` is a time near its creation.
    pub(super) fn owner(&self, uid: &PodUid, namespace: &str, at: Timestamp) -> Controller {
        if let Some(controller) = self.controller(uid) {
            return self.further_up(controller, namespace, at);
        }
        let listed = self.facts.pods.known();
        let listed = listed.and_then(|list| list.pods.get(uid));
        let source = self.sources.get(uid).copied();
        let source = source.or(listed.map(|pod| pod.config_source));
        let (kind, name) = match (source, listed) {
            (Some(ConfigSource::File | ConfigSource::Http), _) => {
                ("Node", self.facts.config.node.name.as_str())
            }
            (_, Some(_)) => ("none", ""),
            (_, None) => ("unknown", ""),
        };
        Controller::new(namespace, kind, name)
    }

    fn controller(&self, uid: &PodUid) -> Option<&'a PodOwner> {
        let listed = self.facts.pods.known();
        let listed = listed.and_then(|list| list.owners.get(uid));
        let past = self.facts.past.as_ref().ok();
        listed.or_else(|| past?.owners.get(uid.as_str()))
    }

    fn further_up(&self, controller: &PodOwner, namespace: &str, at: Timestamp) -> Controller {
        let PodOwner { kind, name } = controller;
        let derived = match kind.as_str() {
            "ReplicaSet" => {
                let deployment = self.deployments.get(&(namespace.to_owned(), name.clone()));
                deployment.map(|name| ("Deployment", name.as_str()))
            }
            "Job" => cron_job(name, at).map(|name| ("CronJob", name)),
            _ => None,
        };
        let (kind, name, derived) = match derived {
            Some((kind, name)) => (kind, name, true),
            None => (kind.as_str(), name.as_str(), false),
        };
        Controller {
            derived,
            ..Controller::new(namespace, kind, name)
        }
    }
}

/// Returns the `CronJob` of a Job, if the Job's name ends in the minute for which it was scheduled (Kubernetes 1.21 and
/// later) and the pod is from about then.
fn cron_job(job: &str, at: Timestamp) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    let digits = minute.len() == 8 && minute.bytes().all(|it| it.is_ascii_digit());
    let minute: i64 = minute.parse().ok().filter(|_| digits && !name.is_empty())?;
    let scheduled = Timestamp::from_second(minute * 60).ok()?;
    let apart = at.duration_since(scheduled).abs();
    (apart <= SCHEDULED_WITHIN).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_name_that_ends_in_its_minute_names_the_cron_job() {
        let at: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let minute = at.as_second() / 60;
        let name = |minute: i64| format!("report-{minute}");
        assert_eq!(cron_job(&name(minute), at), Some("report"));
        assert_eq!(cron_job(&name(minute - 48 * 60), at), Some("report"));
        for other in [
            name(minute - 48 * 60 - 1),
            name(minute * 60),
            format!("-{minute}"),
            "report-abcdefgh".into(),
            "report".into(),
            "report-+2949800".into(),
        ] {
            assert_eq!(cron_job(&other, at), None, "{other}");
        }
    }
}
