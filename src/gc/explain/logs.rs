//! The facts that the rules for logs look at.

use super::super::facts::{PlanFacts, short};
use super::super::logs::{ContainerLogRule, LogDirRule, LogLinkRule};
use super::super::{Subject, Verdict};
use super::records::record;
use super::rules::RuleName;
use crate::model::{LinkTarget, LinkedContainer, LogLink};

impl PlanFacts<'_> {
    pub(super) fn log_dir_words(
        &self,
        rule: LogDirRule,
        subject: &Subject,
        said: Option<Verdict>,
    ) -> String {
        use LogDirRule as Rule;
        let words = match (rule, said) {
            (Rule::ForeignName, _) => made_by(said),
            (Rule::Protect, _) => return self.protection(subject, None, said),
            (Rule::Containers, None) => "the runtime has nothing of its pod",
            (Rule::Containers, Some(_)) => return self.log_holder(subject),
            (Rule::ListsComplete, None) => "the runtime's lists are complete",
            (Rule::ListsComplete, Some(_)) => {
                "a list of the runtime is incomplete: something unseen of its pod may be there"
            }
            (Rule::PodExists | Rule::PodUnknown | Rule::Settle | Rule::PodDeleted, _) => {
                return self.pod_words(subject, said);
            }
            (Rule::Grace, _) => return self.bound_words(RuleName::Grace, subject),
        };
        words.to_owned()
    }

    pub(super) fn log_link_words(
        &self,
        rule: LogLinkRule,
        link: &LogLink,
        subject: &Subject,
        said: Option<Verdict>,
    ) -> String {
        use LogLinkRule as Rule;
        let words = match (rule, said) {
            (Rule::ForeignName, _) => made_by(said),
            (Rule::Protect, _) => return self.protection(subject, None, said),
            (Rule::TargetExists, _) => match link.target {
                LinkTarget::Exists => "its log exists",
                LinkTarget::Missing => "its log does not exist",
                LinkTarget::Unknown => "its log cannot be checked",
            },
            (Rule::ContainerAsked | Rule::Containers, _) => return self.linked_words(link),
            (Rule::DeadLink, _) => {
                return format!("its log does not exist; {}", self.linked_words(link));
            }
        };
        words.to_owned()
    }

    fn linked_words(&self, link: &LogLink) -> String {
        if let Some(container) = self.linked(link) {
            return format!("the runtime lists {}", record(container));
        }
        let words = match link.container {
            LinkedContainer::NotAsked => "the runtime has not said what became of its container",
            LinkedContainer::NotFound => "the runtime has no such container",
            LinkedContainer::Exited => "its container exited",
            LinkedContainer::Lives => "its container is not known to have exited",
        };
        words.to_owned()
    }

    pub(super) fn container_log_words(
        &self,
        rule: ContainerLogRule,
        subject: &Subject,
        said: Option<Verdict>,
    ) -> String {
        use ContainerLogRule as Rule;
        let words = match (rule, said) {
            (Rule::ForeignName, _) => made_by(said),
            (Rule::Protect, _) => return self.protection(subject, None, said),
            (Rule::Containers, None) => "no other record writes to it",
            (Rule::Containers, Some(_)) => return self.log_holder(subject),
            (Rule::ContainerRemoved, _) => {
                "its container was removed, or is removed in the same pass"
            }
        };
        words.to_owned()
    }

    fn log_holder(&self, subject: &Subject) -> String {
        let pod = subject.pod.as_deref();
        if let Some(container) = self.containers_of(pod).next() {
            return format!("{} of its pod is there", record(container));
        }
        self.sandboxes_of(pod).next().map_or_else(
            || "the list of containers is incomplete: an unseen one may write to it".to_owned(),
            |sandbox| format!("sandbox {} of its pod is there", short(sandbox.id.as_str())),
        )
    }
}

fn made_by(said: Option<Verdict>) -> &'static str {
    match said {
        None => "the kubelet gives such a name and place",
        Some(_) => "its name or place is not one that the kubelet gives",
    }
}
