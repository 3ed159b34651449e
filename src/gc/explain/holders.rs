//! Finds who holds an object: the containers and sandboxes that need it, each with its own verdict, and the pod at
//! the end of the chain.

use std::collections::BTreeSet;

use super::super::facts::span;
use super::super::{PodKnowledge, Subject, Verdict};
use super::{Explainer, JudgedObject, ObjectHolder, PodFacts, RuleLine, decided, label, title};
use crate::model::{Container, KeepReason, PodRef, PodSandboxState, SourcePod, Target};

/// Holders that an answer names.
const HOLDERS_MAX: usize = 20;

impl<'a> Explainer<'a> {
    /// Returns the holders of a kept object, the first ones, and how many more there are.
    pub(super) fn held_by(
        &self,
        judged: JudgedObject<'a>,
        rules: &[RuleLine],
    ) -> (Vec<ObjectHolder>, usize) {
        let Verdict::Keep(reason) = judged.verdict else {
            return (Vec::new(), 0);
        };
        let subject = judged.subject;
        let ids: Vec<(Target, &str)> = match (subject.target, reason) {
            (Target::Sandboxes, KeepReason::HasContainers) => {
                let sandbox = self.facts.sandbox(&subject.id).into_iter();
                let containers_in = sandbox.flat_map(|(_, row)| self.facts.containers_in(row));
                containers_in.copied().map(container_key).collect()
            }
            (Target::Images, KeepReason::InUse) => {
                let image = self.facts.image(&subject.id).into_iter();
                let users = image.flat_map(|image| self.facts.users(image));
                users.map(container_key).collect()
            }
            (Target::Logs, KeepReason::HasContainers | KeepReason::TargetExists) => {
                self.log_holders(judged)
            }
            _ if is_by_pod(reason, rules) => {
                let pod = subject.pod.as_deref();
                let holder = pod.map(|pod| self.pod_holder(pod, subject));
                return (holder.into_iter().collect(), 0);
            }
            _ => return (Vec::new(), 0),
        };
        let holders = self.holders(&ids);
        let more = ids.len().saturating_sub(holders.len());
        (holders, more)
    }

    fn log_holders(&self, judged: JudgedObject<'a>) -> Vec<(Target, &'a str)> {
        let subject = judged.subject;
        let (facts, pod) = (&self.facts, subject.pod.as_deref());
        if let Some(link) = facts.log_link(subject) {
            return facts.linked(link).map(container_key).into_iter().collect();
        }
        let containers = facts.containers_of(pod).map(container_key);
        let sandboxes = facts
            .sandboxes_of(pod)
            .map(|row| (Target::Sandboxes, row.id.as_str()));
        containers.chain(sandboxes).collect()
    }

    /// Returns the first holders with their verdicts in the plan.
    fn holders(&self, ids: &[(Target, &str)]) -> Vec<ObjectHolder> {
        let wanted: BTreeSet<(Target, &str)> = ids.iter().copied().collect();
        let is_wanted =
            |it: &JudgedObject<'_>| wanted.contains(&(it.subject.target, it.subject.id.as_str()));
        let mut kept: Vec<JudgedObject<'_>> = self.judged().filter(is_wanted).collect();
        // Holders that the same pass removes come last: they explain least.
        kept.sort_by_key(|it| matches!(it.verdict, Verdict::Remove(_)));
        let first = kept.into_iter().take(HOLDERS_MAX);
        first.map(|judged| self.holder(judged)).collect()
    }

    fn holder(&self, judged: JudgedObject<'_>) -> ObjectHolder {
        let subject = judged.subject;
        let (verdict, reason) = label(judged.verdict);
        let pod = subject.pod.as_deref();
        ObjectHolder {
            kind: subject.target.noun().into(),
            id: subject.id.to_string(),
            name: title(subject),
            verdict: Some(verdict.into()),
            reason: Some(reason.into()),
            detail: self.detail(judged),
            pod: pod.map(|pod| self.pod_facts(pod, subject)),
        }
    }

    fn pod_holder(&self, pod: &PodRef, subject: &Subject) -> ObjectHolder {
        let facts = self.pod_facts(pod, subject);
        ObjectHolder {
            kind: "pod".into(),
            id: facts.uid.clone(),
            name: format!("pod {}/{}", pod.namespace, pod.name),
            verdict: None,
            reason: None,
            detail: facts.words.clone(),
            pod: Some(facts),
        }
    }

    /// Returns what is known of a pod, and from where; `subject` is one of its objects.
    pub(super) fn pod_facts(&self, pod: &PodRef, subject: &Subject) -> PodFacts {
        let list = self.facts.snapshot.pods.known();
        let listed = list.and_then(|list| list.pods.get(&pod.uid));
        let ready = self.facts.sandboxes_of(Some(pod));
        let ready = ready.filter(|row| row.state == PodSandboxState::Ready);
        let history = self.facts.history(Some(pod));
        let mut facts = PodFacts {
            uid: pod.uid.to_string(),
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            state: subject.pod_state,
            source: self.source_words().into(),
            listed: listed.map(|pod| {
                let word = if pod.finished {
                    "finished"
                } else {
                    "running-or-pending"
                };
                word.into()
            }),
            ready_since: ready.map(|row| row.created_at).max(),
            absent_since: history.and_then(|history| history.absent_since),
            over_since: history.and_then(|history| history.over_since),
            words: String::new(),
        };
        let is_static = listed.is_some_and(SourcePod::is_static);
        facts.words = self.facts_words(&facts, is_static, subject);
        facts
    }

    fn facts_words(&self, facts: &PodFacts, is_static: bool, subject: &Subject) -> String {
        let source = &facts.source;
        let known = match (facts.state, facts.listed.as_deref()) {
            (PodKnowledge::Active, _) if is_static => {
                format!("{source} lists it, and the kubelet runs a static pod again")
            }
            (PodKnowledge::Active, Some("finished")) => {
                format!("{source} lists it as finished, but something of it still runs here")
            }
            (PodKnowledge::Active, _) => format!("{source} lists it, not finished"),
            (PodKnowledge::Terminated, _) => format!("{source} lists it as finished"),
            (PodKnowledge::Deleted, _) => format!("{source} does not list it"),
            (PodKnowledge::Absent, _) => format!(
                "{source} does not list it; it counts as deleted after pods.settle ({})",
                span(self.facts.policy.pods.settle)
            ),
            (PodKnowledge::Assumed, _) => {
                format!(
                    "assume_finished_after decides, because {}",
                    self.facts.doubt_words(subject)
                )
            }
            (PodKnowledge::Unknown, _) => self.facts.doubt_words(subject),
        };
        let since = |words: &str, at: Option<jiff::Timestamp>| {
            at.map_or_else(String::new, |at| {
                format!(", {words} for {}", self.facts.age_words(at))
            })
        };
        let over = if facts.absent_since.is_none() {
            let quiet = span(self.facts.policy.pods.quiet);
            let over = since("seen to be over", facts.over_since);
            if over.is_empty() {
                over
            } else {
                format!("{over} (pods.quiet {quiet})")
            }
        } else {
            String::new()
        };
        format!(
            "pod {}/{} is {}: {known}{}{}{over}",
            facts.namespace,
            facts.name,
            facts.state.word(),
            since("its sandbox ready", facts.ready_since),
            since("absent", facts.absent_since),
        )
    }
}

fn container_key(container: &Container) -> (Target, &str) {
    (Target::Containers, container.id.as_str())
}

/// Says whether an object's pod keeps it, not its own age.
fn is_by_pod(reason: KeepReason, rules: &[RuleLine]) -> bool {
    match reason {
        KeepReason::Running
        | KeepReason::Starting
        | KeepReason::Ready
        | KeepReason::Newest
        | KeepReason::PodExists
        | KeepReason::PodsUnknown => true,
        KeepReason::TooYoung => !matches!(decided(rules), Some("min-age" | "grace")),
        KeepReason::StateUnknown
        | KeepReason::HasContainers
        | KeepReason::Unmanaged
        | KeepReason::Protected
        | KeepReason::WithinLimits
        | KeepReason::NotInPlan
        | KeepReason::Quarantined
        | KeepReason::InUse
        | KeepReason::UnknownUser
        | KeepReason::Pinned
        | KeepReason::SandboxImage
        | KeepReason::Keep
        | KeepReason::BelowThreshold
        | KeepReason::ForeignName
        | KeepReason::TargetExists
        | KeepReason::NotAsked => false,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::super::{Policy, plan};
    use super::*;
    use crate::model::{PodHistory, PodSourceKind, PodUid, Snapshot};

    #[test]
    fn what_is_known_of_a_pod_is_said_once() {
        let pod = PodRef {
            uid: PodUid::new("0d5f6a2c-1111-4222-8333-0123456789ab").unwrap(),
            namespace: "shop".into(),
            name: "web".into(),
        };
        let history = PodHistory {
            absent_since: Timestamp::from_second(97).ok(),
            ..PodHistory::default()
        };
        let snapshot = Snapshot {
            pod_history: [(pod.uid.clone(), history)].into(),
            ..Snapshot::empty(Timestamp::from_second(100).unwrap())
        };
        let policy = Policy::default();
        let plan = plan(&snapshot, &policy, &[Target::Containers].into());
        let explainer = Explainer::of(&snapshot, &policy, &plan, PodSourceKind::Kubelet);
        for (pod_state, words) in [
            (
                PodKnowledge::Absent,
                "pod shop/web is absent: the kubelet does not list it; it counts as deleted after pods.settle (10s), \
                 absent for 3s",
            ),
            (
                PodKnowledge::Unknown,
                "pod shop/web is unknown: no pod source is configured or found (pods.source), absent for 3s",
            ),
        ] {
            let subject = Subject {
                target: Target::Containers,
                id: "c".into(),
                name: "app".into(),
                pod: Some(pod.clone().into()),
                pod_state,
                attempt: 0,
                created_at: Timestamp::UNIX_EPOCH,
                age_seconds: 0,
                image: None,
            };
            assert_eq!(explainer.pod_facts(&pod, &subject).words, words);
        }
    }
}
