//! What each reason and each pod state means, in words.

use super::super::Subject;
use super::Explainer;
use crate::model::{KeepReason, RemoveReason};

impl Explainer<'_> {
    /// Names the pod source in a sentence.
    pub(super) fn source_words(&self) -> &'static str {
        if self.facts.snapshot.pods.is_cached() {
            "the API server's watch cache"
        } else {
            self.source.words()
        }
    }

    /// Says what is known of an object's pod, and from where.
    pub(super) fn pod_text(&self, subject: &Subject) -> String {
        let source = self.source_words();
        format!("its pod is {}", self.facts.known(subject, source))
    }
}

/// Returns a verdict's label in one word for people.
pub(super) fn fate(verdict: &str) -> &'static str {
    if verdict == "remove" { "goes" } else { "stays" }
}

/// Returns why `subject` is kept for this reason.
pub fn kept_text(subject: &Subject, reason: KeepReason) -> &'static str {
    if reason != KeepReason::Newest {
        return keep_text(reason);
    }
    if subject.pod_state.is_finished() {
        "it is the newest of its pod and name; the pod is finished, and max_dead does not ask for it"
    } else {
        "it is the newest of its pod and name: without it the kubelet would run it again"
    }
}

/// Returns what a reason to keep means, whichever object it keeps.
pub fn keep_text(reason: KeepReason) -> &'static str {
    match reason {
        KeepReason::Running => "it runs",
        KeepReason::Starting => "it was created less than created_grace ago and may start",
        KeepReason::StateUnknown => {
            "the runtime does not know its state, and include_unknown is off"
        }
        KeepReason::Ready => "the sandbox is ready",
        KeepReason::HasContainers => "a container, dead or alive, still needs it",
        KeepReason::Unmanaged => "it has none of the kubelet's labels: another tool made it",
        KeepReason::Protected => "its namespace or a label of it is protected (policy.protect)",
        KeepReason::TooYoung => {
            "it is younger than min_age (a log: than grace), its age is not known yet, or its pod ended too recently \
             (pods.settle, pods.quiet)"
        }
        KeepReason::Newest => {
            "it is the newest of its pod and name: without it the kubelet would run it again, or the pod is \
             finished and max_dead does not ask for it"
        }
        KeepReason::WithinLimits => {
            "no limit of the policy asks for it, or its target is switched off (enabled)"
        }
        KeepReason::Quarantined => "its removal failed; it is quarantined until its next try",
        KeepReason::InUse => "a container, in any state, uses the image or has it mounted",
        KeepReason::UnknownUser => {
            "a container or sandbox that may use the image has not reported which images it uses"
        }
        KeepReason::Pinned => "the runtime pins the image, or still listed it after its removal",
        KeepReason::SandboxImage => "sandboxes are made from the image",
        KeepReason::Keep => "a tag or digest of the image matches policy.images.keep",
        KeepReason::BelowThreshold => {
            "the image file system needs no more space, or images are switched off"
        }
        KeepReason::PodExists => "its pod exists",
        KeepReason::ForeignName => "its name or place is not one that the kubelet gives",
        KeepReason::TargetExists => "the link's target exists or cannot be checked",
        KeepReason::NotAsked => {
            "the runtime was not asked about the link's container, or did not answer; or logs are \
             switched off"
        }
        KeepReason::PodsUnknown => "nothing is known of its pod",
        KeepReason::NotInPlan => "the saved plan does not have it",
    }
}

/// Returns what a reason to remove means.
pub fn remove_text(reason: RemoveReason) -> &'static str {
    match reason {
        RemoveReason::PodDeleted => "its pod is deleted: nothing needs it any more",
        RemoveReason::Superseded => {
            "newer ones of the same pod exist, and max_per_container keeps no more"
        }
        RemoveReason::OverCap => "the node holds more dead ones than max_dead",
        RemoveReason::DeadLink => "the link's log is gone, and its container is gone or exited",
        RemoveReason::ContainerRemoved => {
            "its container was removed, or is removed in the same pass"
        }
        RemoveReason::Age => "it has not been used for longer than policy.images.max_age",
        RemoveReason::Space => {
            "the image file system is above its threshold, and the image is among the least recently used"
        }
    }
}
