//! Conditions for counting a pod as deleted or finished: stated from the snapshot's content, without the
//! planner's concepts.

use std::time::Duration;

use jiff::Timestamp;

use super::node::{CheckedNode, CheckedPod, NamedSource};
use crate::model::{ConfigSource, Coverage, Pods, PodsUnknown};

impl CheckedNode<'_> {
    /// Lists that have every living pod, and another pod of its source, have lacked it for long enough.
    pub(super) fn is_deleted(&self, pod: &CheckedPod<'_>) -> bool {
        pod.listed.is_none()
            && self.whole
            && !pod.alive
            && self.is_long_absent(pod)
            && self.list_can_tell(pod)
            && self.is_not_younger(pod)
            && self.has_come_up
    }

    fn is_long_absent(&self, pod: &CheckedPod<'_>) -> bool {
        let settle = self.policy.pods.settle;
        let since = pod.history.and_then(|history| history.absent_since);
        settle == Duration::ZERO || since.is_some_and(|since| self.older_than(since, settle))
    }

    /// The list names another pod of the same source, and can show all pods of it.
    fn list_can_tell(&self, pod: &CheckedPod<'_>) -> bool {
        let unseen = !pod.has_sandbox && self.snapshot.seen.sandboxes < Coverage::Whole;
        let source = match pod.said {
            NamedSource::One(source) => source,
            NamedSource::Several => return false,
            NamedSource::Nothing if unseen => return false,
            NamedSource::Nothing if is_hash(pod.uid) => ConfigSource::File,
            NamedSource::Nothing => ConfigSource::Api,
        };
        self.prove_absence.contains(&source)
    }

    /// Every object of the pod is older than the list, and had exited by then.
    fn is_not_younger(&self, pod: &CheckedPod<'_>) -> bool {
        let Pods::Known(list) = &self.snapshot.pods else {
            return false;
        };
        let is_before = |at: Option<Timestamp>, as_of| at.is_none_or(|at| at < as_of);
        list.as_of.is_none_or(|as_of| {
            (self.snapshot.seen.is_all() || self.is_seen_whole(pod))
                && !pod.exit_unknown
                && is_before(pod.youngest, as_of)
                && is_before(pod.last_exit, as_of)
        })
    }

    /// The look has every record of this pod, although a list is incomplete. A sandbox that one of its containers names
    /// and that was not seen contradicts that.
    pub(super) fn is_seen_whole(&self, pod: &CheckedPod<'_>) -> bool {
        let told = self.snapshot.whole_pods.contains(pod.uid);
        told && pod.has_sandbox && !pod.lacks_sandbox
    }

    /// The source says finished, or does not know the pod and the operator's setting covers it.
    pub(super) fn is_finished(&self, pod: &CheckedPod<'_>) -> bool {
        let unseen = !self.snapshot.seen.is_all();
        if is_static(pod) || pod.alive || pod.doubtful || unseen {
            return false;
        }
        match pod.listed {
            Some(listed) if listed.config_source != ConfigSource::Api || !listed.finished => false,
            Some(_) if self.whole => true,
            Some(_) | None => self.is_covered_by_lever(pod),
        }
    }

    /// The source itself says that the pod finished; the operator's setting does not count.
    pub(super) fn source_says_over(&self, pod: &CheckedPod<'_>) -> bool {
        self.is_deleted(pod) || self.whole && pod.listed.is_some_and(|pod| pod.finished)
    }

    fn is_covered_by_lever(&self, pod: &CheckedPod<'_>) -> bool {
        let Some(after) = self.policy.assume_finished_after else {
            return false;
        };
        if self.snapshot.pods == Pods::Unknown(PodsUnknown::Settling) {
            return false;
        }
        // Longer ago than that, not equal.
        let after = after.saturating_add(Duration::from_nanos(1));
        let long_ago = pod.last_exit.is_some_and(|at| self.older_than(at, after));
        pod.all_exited && !pod.exit_unknown && long_ago
    }
}

/// The kubelet has the pod from the node itself, not from the API.
fn is_static(pod: &CheckedPod<'_>) -> bool {
    match pod.said {
        NamedSource::One(source) => source != ConfigSource::Api,
        NamedSource::Several => true,
        NamedSource::Nothing => is_hash(pod.uid),
    }
}

/// The UID is the hash of a manifest.
fn is_hash(uid: &str) -> bool {
    uid.len() == 32 && uid.chars().all(|digit| digit.is_ascii_hexdigit())
}
