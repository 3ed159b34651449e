//! Finds who holds an object: the containers and sandboxes that need it, each with its own verdict, and the pod at
//! the end of the chain.

use std::collections::BTreeSet;

use super::super::{Subject, Verdict};
use super::{Explainer, JudgedObject, ObjectHolder, PodFacts, RuleLine, RuleName, decided, title};
use crate::model::{Container, KeepReason, PodRef, PodSandboxState, Target};

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
        let (verdict, reason) = judged.verdict.label();
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
        let ready_since = ready.map(|row| row.created_at).max();
        let ready = ready_since.map_or_else(String::new, |at| {
            format!(", its sandbox ready for {}", self.facts.age_words(at))
        });
        let known = self.facts.known(subject, self.source_words());
        PodFacts {
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
            ready_since,
            absent_since: history.and_then(|history| history.absent_since),
            over_since: history.and_then(|history| history.over_since),
            words: format!("pod {}/{} is {known}{ready}", pod.namespace, pod.name),
        }
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
        KeepReason::TooYoung => !matches!(decided(rules), Some(RuleName::MinAge | RuleName::Grace)),
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
