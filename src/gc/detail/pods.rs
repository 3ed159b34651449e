//! Explains what is known of an object's pod, and what its removal waits for.

use jiff::SignedDuration;

use super::super::facts::{PlanFacts, span};
use super::super::{PodKnowledge, Subject};
use crate::model::short_duration;

impl PlanFacts<'_> {
    /// Describes what is known of its pod.
    pub(in super::super) fn pod_words(&self, subject: &Subject) -> String {
        match subject.pod_state {
            PodKnowledge::Active => "its pod is active".to_owned(),
            PodKnowledge::Terminated => "its pod finished".to_owned(),
            PodKnowledge::Assumed => {
                "its pod counts as finished (assume_finished_after)".to_owned()
            }
            PodKnowledge::Deleted => {
                "its pod is deleted: a complete pod list does not have it".to_owned()
            }
            PodKnowledge::Absent => self.absent_pod(subject),
            PodKnowledge::Unknown => {
                format!("nothing is known of its pod: {}", self.doubt_words(subject))
            }
        }
    }

    /// Returns why nothing is known of its pod.
    pub(in super::super) fn doubt_words(&self, subject: &Subject) -> String {
        let Some(pod) = subject.pod.as_deref() else {
            return "it names no pod of the kubelet".to_owned();
        };
        let doubt = self.knowledge.doubt(&pod.uid, subject.created_at);
        doubt.map_or_else(String::new, |doubt| doubt.words(&self.knowledge))
    }

    fn absent_pod(&self, subject: &Subject) -> String {
        let history = self.history(subject.pod.as_deref());
        let since = history.and_then(|history| history.absent_since);
        let age = since.map(|since| self.snapshot.age(since));
        let since = age.filter(|age| age.as_secs() > 0).map_or_else(
            || "since the latest answer".to_owned(),
            |age| format!("for {}", age_words(age)),
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
        ConfigSource, Coverage, KeepReason, Labels, ListCoverage, Outage, PodHistory, PodList,
        PodRef, PodSandbox, PodSandboxId, PodSandboxState, PodUid, Pods, Snapshot, SourcePod,
        Target,
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
        detail_by(snapshot, &Policy::default())
    }

    fn detail_by(snapshot: &Snapshot, policy: &Policy) -> String {
        let mut plan = plan(snapshot, policy, &[Target::Sandboxes].into());
        plan.add_details(snapshot, policy);
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
    fn the_detail_of_what_an_unknown_pod_keeps_says_why_the_list_proves_nothing() {
        let list = |change: fn(&mut PodList)| {
            let mut snapshot = node();
            let Pods::Known(list) = &mut snapshot.pods else {
                unreachable!("node() has a list");
            };
            change(list);
            snapshot
        };
        let sandbox = |config_source| {
            let sandbox = PodSandbox {
                config_source: Some(config_source),
                ..node().sandboxes[0].clone()
            };
            vec![sandbox].into()
        };
        let unseen = |snapshot: Snapshot, sandboxes| Snapshot {
            seen: ListCoverage {
                sandboxes,
                ..ListCoverage::default()
            },
            ..snapshot
        };
        let mirrors = list(|list| list.by_mirrors = true);
        let dated = |seconds: i64| {
            let mut snapshot = node();
            if let Pods::Known(list) = &mut snapshot.pods {
                list.as_of = Some(ago(seconds));
            }
            snapshot
        };
        let cases = [
            (
                list(|list| list.pods.clear()),
                "holds no other pod of the same source",
            ),
            (
                Snapshot {
                    sandboxes: sandbox(ConfigSource::Other),
                    ..node()
                },
                "names the pod's one source",
            ),
            (
                Snapshot {
                    sandboxes: sandbox(ConfigSource::File),
                    ..mirrors
                },
                "that a static pod is gone",
            ),
            (unseen(node(), Coverage::Partial), "may live here"),
            (unseen(dated(60), Coverage::Living), "may lack the record"),
            (dated(3601), "older than the pod's last container"),
        ];
        for (snapshot, why) in cases {
            let detail = detail(&snapshot);
            assert!(detail.contains("nothing is known of its pod: "), "{detail}");
            assert!(detail.contains(why), "{detail}, not: {why}");
        }
        // No doubt here: a list without a date is as young as its answer.
        let fine = detail(&unseen(node(), Coverage::Living));
        assert!(!fine.contains("nothing is known"), "{fine}");
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
        let mut policy = Policy::default();
        policy.pods.settle = Duration::from_millis(500);
        let just_now = Snapshot {
            pod_history: history(0, 0),
            ..node()
        };
        assert_eq!(
            detail_by(&just_now, &policy),
            "the pod list has lacked its pod since the latest answer; it counts as deleted after pods.settle (500ms)"
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
