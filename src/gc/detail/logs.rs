//! Explains a verdict on a log in words.

use super::super::Subject;
use super::super::age::at_least;
use super::super::explain::{keep_text, remove_text};
use super::super::facts::{PlanFacts, short};
use super::record;
use crate::model::{KeepReason, RemoveReason, container_id_of};

impl PlanFacts<'_> {
    pub(super) fn kept_log(&self, subject: &Subject, reason: KeepReason) -> String {
        match reason {
            KeepReason::PodExists | KeepReason::PodsUnknown if self.log_link(subject).is_none() => {
                self.log_pod_words(subject)
            }
            KeepReason::HasContainers => self.log_holder(subject),
            KeepReason::TooYoung => self.young_dir(subject),
            KeepReason::NotAsked if !self.policy.logs.enabled => {
                "policy.logs.enabled is off".to_owned()
            }
            KeepReason::NotAsked => {
                let id = self
                    .log_link(subject)
                    .and_then(|link| container_id_of(&link.name));
                let id = id.map_or_else(String::new, |id| format!(" {}", short(id.as_str())));
                format!("the runtime has not said what became of container{id}")
            }
            KeepReason::Protected => self.protection(subject.pod.as_deref(), None),
            other => keep_text(other).to_owned(),
        }
    }

    pub(super) fn removed_log(&self, subject: &Subject, reason: RemoveReason) -> String {
        match reason {
            RemoveReason::PodDeleted => self.pod_words(subject),
            other => remove_text(other).to_owned(),
        }
    }

    fn log_pod_words(&self, subject: &Subject) -> String {
        if self.snapshot.seen.is_all() {
            self.pod_words(subject)
        } else {
            "a list of the runtime is incomplete: something unseen of its pod may be there"
                .to_owned()
        }
    }

    fn log_holder(&self, subject: &Subject) -> String {
        if let Some(link) = self.log_link(subject) {
            return self.linked(link).map_or_else(
                || "its container is there, and is not known to have exited".to_owned(),
                |container| format!("{} is there", record(container)),
            );
        }
        let pod = subject.pod.as_deref();
        if let Some(container) = self.containers_of(pod).next() {
            return format!("{} of its pod is there", record(container));
        }
        self.sandboxes_of(pod).next().map_or_else(
            || "the list of containers is incomplete: an unseen one may write to it".to_owned(),
            |sandbox| format!("sandbox {} of its pod is there", short(sandbox.id.as_str())),
        )
    }

    fn young_dir(&self, subject: &Subject) -> String {
        let grace = self.policy.logs.grace;
        let (key, changed) = ("policy.logs.grace", subject.created_at);
        if !at_least(self.snapshot.age(changed), grace) {
            return self.young("changed", changed, key, grace);
        }
        match self.log_dir(subject).and_then(|dir| dir.orphan_since) {
            Some(since) => self.young("seen to be an orphan", since, key, grace),
            None => "it was not seen to be an orphan before".to_owned(),
        }
    }
}
