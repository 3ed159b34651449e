//! Explains what is known of an object's pod, and what its removal waits for.

use jiff::SignedDuration;

use super::super::facts::{PlanFacts, span};
use super::super::knowledge::{AFTER_REBOOT, is_rebooted};
use super::super::{PodKnowledge, Subject};
use crate::model::{Pods, short_duration};

impl PlanFacts<'_> {
    /// Describes what is known of its pod.
    pub(super) fn pod_words(&self, subject: &Subject) -> String {
        match (subject.pod_state, &self.snapshot.pods) {
            (PodKnowledge::Active, _) => "its pod is active".to_owned(),
            (PodKnowledge::Terminated, _) => "its pod finished".to_owned(),
            (PodKnowledge::Assumed, _) => {
                "its pod counts as finished (assume_finished_after)".to_owned()
            }
            (PodKnowledge::Deleted, _) => {
                "its pod is deleted: a complete pod list does not have it".to_owned()
            }
            (PodKnowledge::Absent, _) => self.absent_pod(subject),
            (PodKnowledge::Unknown, Pods::Unknown(why)) => {
                format!("nothing is known of its pod: {why}")
            }
            (PodKnowledge::Unknown, Pods::Known(_)) => {
                format!("nothing is known of its pod: {}", self.doubt())
            }
        }
    }

    /// Explains why the pod's absence from the list does not make it deleted.
    fn doubt(&self) -> String {
        let snapshot = self.snapshot;
        if let Some(doubt) = &self.source_doubt {
            return doubt.clone();
        }
        if !snapshot.seen.is_all_that_lives() {
            return "the runtime's lists are incomplete, so a pod that the pod list lacks may live here"
                .to_owned();
        }
        if is_rebooted(snapshot) {
            return format!(
                "the machine started {} ago and no pod is up yet; a pod that the pod list lacks counts as \
                 deleted when a sandbox is ready, or {} after the start",
                span(snapshot.uptime),
                span(AFTER_REBOOT),
            );
        }
        "the pod list holds no other pod of the same source, or is older than this object"
            .to_owned()
    }

    fn absent_pod(&self, subject: &Subject) -> String {
        let history = self.history(subject.pod.as_deref());
        let since = history.and_then(|history| history.absent_since);
        let since = since.map_or_else(
            || "since the latest answer".to_owned(),
            |since| format!("for {}", age_words(self.snapshot.age(since))),
        );
        let settle = span(self.policy.pods.settle);
        format!(
            "the pod list has lacked its pod {since}; it counts as deleted after pods.settle ({settle})"
        )
    }

    /// Explains why an old enough object waits: since when its pod has been finished, and that the kubelet
    /// may not know it.
    pub(super) fn not_quiet(&self, subject: &Subject) -> String {
        if subject.pod_state == PodKnowledge::Absent {
            return self.absent_pod(subject);
        }
        let (snapshot, quiet) = (self.snapshot, self.policy.pods.quiet);
        if let Some(outage) = snapshot.outage.filter(|outage| outage.lasts(snapshot)) {
            return format!(
                "a list has been over the kubelet's limit for {}, so the kubelet may not know that the pod ended; \
                 it goes when the lists fit again",
                age_words(snapshot.age(outage.first_seen)),
            );
        }
        let history = self.history(subject.pod.as_deref());
        let seen = history.and_then(|history| history.over_since).map_or_else(
            || "crisweep has not seen its pod to be over yet".to_owned(),
            |since| {
                let age = age_words(snapshot.age(since));
                format!("crisweep has seen its pod to be over for {age}")
            },
        );
        format!(
            "{seen}; its newest records stay until that is pods.quiet ({}) ago",
            span(quiet)
        )
    }
}

/// After a clock step back, ages are not negative.
fn age_words(age: SignedDuration) -> String {
    short_duration(age.max(SignedDuration::ZERO))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::super::super::{Policy, plan};
    use super::*;
    use crate::model::{
        ConfigSource, KeepReason, Labels, Outage, PodHistory, PodList, PodRef, PodSandbox,
        PodSandboxId, PodSandboxState, PodUid, Snapshot, SourcePod, Target,
    };

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    fn ago(seconds: i64) -> Timestamp {
        now() - SignedDuration::from_secs(seconds)
    }

    /// A dead sandbox of pod `a` and what the pod list says: that pod `b` is there.
    fn node() -> Snapshot {
        let uid = |name: &str| PodUid::new(format!("00000000-0000-0000-0000-00000000000{name}"));
        let pod = PodRef {
            uid: uid("a").unwrap(),
            namespace: "default".into(),
            name: "a".into(),
        };
        let sandbox = PodSandbox {
            id: PodSandboxId::new("s".repeat(64)).unwrap(),
            pod: Some(pod.into()),
            attempt: 0,
            state: PodSandboxState::NotReady,
            created_at: ago(3600),
            config_source: None,
            labels: Labels::default(),
        };
        let other = SourcePod {
            finished: false,
            config_source: ConfigSource::Api,
        };
        let list = PodList {
            pods: BTreeMap::from([(uid("b").unwrap(), other)]),
            ..PodList::default()
        };
        Snapshot {
            sandboxes: vec![sandbox].into(),
            pods: Pods::Known(list),
            ..Snapshot::empty(now())
        }
    }

    fn detail(snapshot: &Snapshot) -> String {
        let policy = Policy::default();
        let mut plan = plan(snapshot, &policy, &[Target::Sandboxes].into());
        plan.add_details(snapshot, &policy);
        plan.kept.first().unwrap().detail.to_string()
    }

    #[test]
    fn the_detail_of_what_a_switched_off_target_keeps_names_the_switch() {
        let mut policy = Policy::default();
        policy.sandboxes.enabled = false;
        let newer = PodSandbox {
            id: PodSandboxId::new("t".repeat(64)).unwrap(),
            attempt: 1,
            created_at: ago(1800),
            ..node().sandboxes[0].clone()
        };
        let snapshot = Snapshot {
            sandboxes: vec![node().sandboxes[0].clone(), newer].into(),
            ..node()
        };
        let mut plan = plan(&snapshot, &policy, &[Target::Sandboxes].into());
        plan.add_details(&snapshot, &policy);
        let superseded = plan.kept.first().unwrap();
        assert_eq!(superseded.reason, KeepReason::WithinLimits);
        assert_eq!(&*superseded.detail, "policy.sandboxes.enabled is off");
    }

    #[test]
    fn the_detail_of_a_pod_in_waiting_names_its_start_and_end() {
        let uid = node().sandboxes[0].pod.as_ref().unwrap().uid.clone();
        let history = |absent, over| {
            let history = PodHistory {
                absent_since: Some(ago(absent)),
                over_since: Some(ago(over)),
                config_source: None,
            };
            BTreeMap::from([(uid.clone(), history)])
        };
        let absent = Snapshot {
            pod_history: history(4, 4),
            ..node()
        };
        assert_eq!(
            detail(&absent),
            "the pod list has lacked its pod for 4s; it counts as deleted after pods.settle (10s)"
        );
        let loud = Snapshot {
            pod_history: history(20, 20),
            ..node()
        };
        assert_eq!(
            detail(&loud),
            "crisweep has seen its pod to be over for 20s; its newest records stay until that is pods.quiet (1m) ago"
        );
        let outage = Outage {
            first_seen: ago(120),
            last_seen: now(),
            fits_since: None,
        };
        let blind = Snapshot {
            outage: Some(outage),
            ..loud
        };
        assert!(
            detail(&blind)
                .starts_with("a list has been over the kubelet's limit for 2m, so the kubelet"),
            "{}",
            detail(&blind)
        );
        let rebooted = Snapshot {
            uptime: Duration::from_secs(300),
            ..node()
        };
        assert!(
            detail(&rebooted).contains("the machine started 5m ago and no pod is up yet"),
            "{}",
            detail(&rebooted)
        );
    }
}
