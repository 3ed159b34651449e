//! What is known of an object's pod, and the times that rules wait for.

use std::time::Duration;

use jiff::Timestamp;

use super::super::containers::counts_from;
use super::super::facts::{PlanFacts, span};
use super::super::{PodKnowledge, Subject, Verdict, at_least};
use super::rules::RuleName;
use crate::model::{KUBELET_SYNCS_IN, Outage, SourcePod, Target};

/// What a rule waits for: that a time is long enough ago.
pub(super) struct AgeBound {
    /// What happened then.
    done: &'static str,
    pub(super) since: Timestamp,
    pub(super) minimum: Duration,
    pub(super) setting: &'static str,
}

impl PlanFacts<'_> {
    /// Returns what a rule waits for; `None` if that is not known, or if time does not help.
    pub(super) fn bound(&self, rule: RuleName, subject: &Subject) -> Option<AgeBound> {
        let policy = self.policy;
        let history = self.history(subject.pod.as_deref());
        let created = subject.created_at;
        let (done, since, minimum, setting) = match (rule, subject.target) {
            (RuleName::CreatedGrace, _) => {
                let grace = policy.containers.created_grace;
                ("created", created, grace, "policy.containers.created_grace")
            }
            (RuleName::MinAge, Target::Containers) => {
                let (_, row) = self.container(&subject.id)?;
                let since = counts_from(policy.containers.age_from, row)?;
                let done = match row.finished_at {
                    Some(at) if at == since && row.exit_undated => {
                        "the runtime gives no time of its exit; first seen exited"
                    }
                    Some(at) if at == since => "exited",
                    _ => "created",
                };
                (
                    done,
                    since,
                    policy.containers.min_age,
                    "policy.containers.min_age",
                )
            }
            (RuleName::MinAge, Target::Sandboxes) => (
                "created",
                created,
                policy.sandboxes.min_age,
                "policy.sandboxes.min_age",
            ),
            (RuleName::MinAge, Target::Images) => (
                "first seen",
                created,
                policy.images.min_age,
                "policy.images.min_age",
            ),
            (RuleName::Settle, _) => (
                "absent",
                history?.absent_since?,
                policy.pods.settle,
                "pods.settle",
            ),
            // A list over its limit ends at no known time.
            (RuleName::PodDeleted | RuleName::MaxDead, _) if self.outage().is_none() => (
                "over",
                history?.over_since?,
                policy.pods.quiet,
                "pods.quiet",
            ),
            (RuleName::Grace, _) => {
                let dir = self.log_dir(subject)?;
                let orphan = dir.orphan_since?;
                let (done, since) = if dir.modified_at > orphan {
                    ("changed", dir.modified_at)
                } else {
                    ("seen to be an orphan", orphan)
                };
                (done, since, policy.logs.grace, "policy.logs.grace")
            }
            _ => return None,
        };
        (since < Timestamp::MAX).then_some(AgeBound {
            done,
            since,
            minimum,
            setting,
        })
    }

    /// Says what became of a container or sandbox at the time that the runtime has not told.
    pub(super) fn untold(&self, subject: &Subject) -> &'static str {
        let age_from = self.policy.containers.age_from;
        match self.container(&subject.id) {
            Some((_, row)) if counts_from(age_from, row).is_none() => "it exited",
            Some(_) | None => "it was created",
        }
    }

    pub(super) fn bound_words(&self, rule: RuleName, subject: &Subject) -> String {
        let Some(bound) = self.bound(rule, subject) else {
            return match subject.target {
                Target::Logs => "it was not seen to be an orphan before".to_owned(),
                Target::Containers | Target::Sandboxes | Target::Images => {
                    let untold = self.untold(subject);
                    format!("the runtime has not told yet when {untold}")
                }
            };
        };
        let (done, minimum) = (self.since(bound.done, bound.since), span(bound.minimum));
        format!("{done}; {} is {minimum}", bound.setting)
    }

    pub(super) fn since(&self, done: &str, then: Timestamp) -> String {
        if self.snapshot.age(then).is_negative() {
            return format!("{done} in the future: a clock was set back");
        }
        format!("{done} {} ago", self.age_words(then))
    }

    /// Describes its pod; for a verdict also why it is absent, deleted or unknown.
    pub(super) fn pod_words(&self, subject: &Subject, said: Option<Verdict>) -> String {
        let state = subject.pod_state;
        if said.is_none() || matches!(state, PodKnowledge::Active | PodKnowledge::Terminated) {
            return format!("its pod is {}", state.word());
        }
        format!("its pod is {}", self.known(subject, "the pod source"))
    }

    /// Returns what is known of its pod, who says so, and since when.
    pub(super) fn known(&self, subject: &Subject, source: &str) -> String {
        let state = subject.pod_state;
        let pod = subject.pod.as_deref();
        let list = self.snapshot.pods.known();
        let listed = pod.and_then(|pod| list?.pods.get(&pod.uid));
        let why = match state {
            PodKnowledge::Active if listed.is_some_and(SourcePod::is_static) => {
                format!("{source} lists it, and the kubelet runs a static pod again")
            }
            PodKnowledge::Active if listed.is_some_and(|it| it.finished) => {
                format!("{source} lists it as finished, but something of it still runs here")
            }
            PodKnowledge::Active => format!("{source} lists it, not finished"),
            PodKnowledge::Terminated => format!("{source} lists it as finished"),
            PodKnowledge::Deleted | PodKnowledge::Absent => format!("{source} does not list it"),
            PodKnowledge::Assumed => format!(
                "assume_finished_after decides, because {}",
                self.doubt_words(subject, source)
            ),
            PodKnowledge::Unknown => self.doubt_words(subject, source),
        };
        let age = |words: &str, since: Option<Timestamp>| {
            since.map(|since| format!(", {words} for {}", self.age_words(since)))
        };
        let history = self.history(pod);
        let absent = age("absent", history.and_then(|it| it.absent_since)).unwrap_or_default();
        let over = age("seen to be over", history.and_then(|it| it.over_since));
        let since = match over {
            _ if state == PodKnowledge::Absent => {
                let settle = span(self.policy.pods.settle);
                format!("{absent}; it counts as deleted after pods.settle ({settle})")
            }
            Some(over) if self.policy.pods.quiet.is_zero() => over,
            Some(over) => format!("{over} (pods.quiet {})", span(self.policy.pods.quiet)),
            None => absent,
        };
        format!("{}: {why}{since}", state.word())
    }

    /// Returns why nothing is known of its pod.
    fn doubt_words(&self, subject: &Subject, source: &str) -> String {
        let Some(pod) = subject.pod.as_deref() else {
            return "it names no pod of the kubelet".to_owned();
        };
        let doubt = self.knowledge.doubt(&pod.uid, subject.created_at);
        doubt.map_or_else(
            || format!("{source} does not list it"),
            |doubt| doubt.words(&self.knowledge),
        )
    }

    /// Describes a pod that counts as deleted, or its end if the object waits for that.
    pub(super) fn end_words(&self, subject: &Subject, said: Option<Verdict>) -> String {
        match said {
            Some(Verdict::Keep(_)) => self.not_quiet(subject),
            Some(Verdict::Remove(_)) | None => self.pod_words(subject, said),
        }
    }

    /// Explains why an old enough object waits: the kubelet may not know that its pod ended.
    pub(super) fn not_quiet(&self, subject: &Subject) -> String {
        if let Some(outage) = self.outage() {
            return format!(
                "a list has been over the kubelet's limit for {}, so the kubelet may not know that the pod ended; \
                 it goes when the lists fit again, or where nothing else makes them fit and the API server confirms its \
                 pod's end",
                self.age_words(outage.first_seen),
            );
        }
        let could_sync = |since: &Timestamp| {
            at_least(
                self.snapshot.age(*since),
                KUBELET_SYNCS_IN.min(self.policy.pods.quiet),
            )
        };
        let fits_since = self.snapshot.outage.and_then(|outage| outage.fits_since);
        if let Some(since) = fits_since.filter(|since| !could_sync(since)) {
            return format!(
                "a list was over the kubelet's limit until {} ago, so the kubelet may not know yet that the pod ended",
                self.age_words(since),
            );
        }
        let known = self.known(subject, "the pod source");
        let history = self.history(subject.pod.as_deref());
        let unseen = match history.and_then(|history| history.over_since) {
            Some(_) => String::new(),
            None => format!(
                ", not seen to be over yet (pods.quiet {})",
                span(self.policy.pods.quiet)
            ),
        };
        format!("its pod is {known}{unseen}; the kubelet may not know yet that it ended")
    }

    /// Returns the outage that keeps the kubelet from knowing of ends.
    pub(super) fn outage(&self) -> Option<Outage> {
        self.snapshot
            .outage
            .filter(|outage| outage.lasts(self.snapshot))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use jiff::SignedDuration;

    use super::super::super::{Policy, plan};
    use super::*;
    use crate::model::{
        ConfigSource, Container, ContainerId, ContainerState, Coverage, KeepReason, Labels,
        ListCoverage, Outage, PodHistory, PodList, PodRef, PodSandbox, PodSandboxId,
        PodSandboxState, PodUid, Pods, Snapshot, SourcePod, Target,
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
            assert!(detail.contains("its pod is unknown: "), "{detail}");
            assert!(detail.contains(why), "{detail}, not: {why}");
        }
        // No doubt here: a list without a date is as young as its answer.
        let fine = detail(&unseen(node(), Coverage::Living));
        assert!(!fine.contains("unknown"), "{fine}");
    }

    #[test]
    fn the_detail_of_a_sandbox_that_a_container_may_be_in_says_that_it_names_none() {
        let astray = Container {
            id: ContainerId::new("c".repeat(64)).unwrap(),
            sandbox_id: PodSandboxId::stand_in(),
            name: "app".into(),
            attempt: 0,
            state: ContainerState::Running,
            created_at: ago(3600),
            finished_at: None,
            exit_undated: false,
            pod: node().sandboxes[0].pod.clone(),
            image: Arc::default(),
            labels: Labels::default(),
        };
        let snapshot = Snapshot {
            containers: vec![astray].into(),
            ..node()
        };
        assert_eq!(
            detail(&snapshot),
            "a container that does not say which sandbox it is in may be in it"
        );
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
            pod_history: history(4, 4).into(),
            ..node()
        };
        assert_eq!(
            detail(&absent),
            "its pod is absent: the pod source does not list it, absent for 4s; it counts as deleted after pods.settle (10s)"
        );
        let loud = Snapshot {
            pod_history: history(20, 20).into(),
            ..node()
        };
        assert_eq!(
            detail(&loud),
            "its pod is deleted: the pod source does not list it, seen to be over for 20s (pods.quiet 1m); the kubelet may \
             not know yet that it ended"
        );
        let mut policy = Policy::default();
        policy.pods.quiet = Duration::ZERO;
        let mut plan = plan(&loud, &policy, &[Target::Sandboxes].into());
        plan.add_details(&loud, &policy);
        assert_eq!(
            &*plan.removals[0].detail,
            "its pod is deleted: the pod source does not list it, seen to be over for 20s"
        );
        let outage = Outage {
            first_seen: ago(120),
            last_seen: now(),
            fits_since: None,
        };
        let blind = Snapshot {
            outage: Some(outage),
            ..loud.clone()
        };
        assert!(
            detail(&blind)
                .starts_with("a list has been over the kubelet's limit for 2m, so the kubelet"),
            "{}",
            detail(&blind)
        );
        let syncs = Snapshot {
            outage: Some(Outage {
                last_seen: ago(5),
                fits_since: Some(ago(4)),
                ..outage
            }),
            ..loud
        };
        assert_eq!(
            detail(&syncs),
            "a list was over the kubelet's limit until 4s ago, so the kubelet may not know yet that the pod ended"
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
