//! What must be true before a pod counts as deleted or finished: stated from what the snapshot holds,
//! without the planner's own notions.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::Node;
use crate::gc::Policy;
use crate::model::{
    ConfigSource, ContainerState, Coverage, PodList, PodSandboxState, PodUid, Pods, PodsUnknown,
};

impl Node<'_> {
    /// The list has every pod of which something lives here, or may.
    pub(super) fn list_is_whole(&self) -> bool {
        let Pods::Known(list) = &self.snapshot.pods else {
            return false;
        };
        let has = |uid: &&PodUid| list.pods.contains_key(*uid);
        let doubts = !self.policy.containers.include_unknown;
        self.snapshot.seen.is_all_that_lives()
            && self.alive.iter().all(has)
            && (!doubts || self.doubtful.iter().all(has))
    }

    /// Lists that have every living pod, and another one from where this one is, have lacked it for
    /// long enough.
    pub(super) fn is_deleted(&self, uid: &PodUid) -> bool {
        let Pods::Known(list) = &self.snapshot.pods else {
            return false;
        };
        !list.pods.contains_key(uid)
            && self.whole
            && !self.alive.contains(uid)
            && self.is_long_absent(uid)
            && self.names_sibling(list, uid)
            && self.is_not_younger(list, uid)
            && self.has_come_up()
    }

    fn is_long_absent(&self, uid: &PodUid) -> bool {
        let settle = self.policy.pods.settle;
        let history = self.snapshot.pod_history.get(uid);
        let since = history.and_then(|history| history.absent_since);
        settle == Duration::ZERO || since.is_some_and(|since| self.older_than(since, settle))
    }

    /// The list names another pod from the same place, and can tell of all from there.
    fn names_sibling(&self, list: &PodList, uid: &PodUid) -> bool {
        let said = self.said_sources(uid);
        let source = match said.first() {
            None if self.may_have_unseen_sandbox(uid) => return false,
            None if is_hash(uid) => ConfigSource::File,
            None => ConfigSource::Api,
            Some(_) if said.len() > 1 => return false,
            Some(source) => *source,
        };
        let from_node = matches!(source, ConfigSource::File | ConfigSource::Http);
        let can_tell = source == ConfigSource::Api || from_node && !list.by_mirrors;
        can_tell && list.pods.values().any(|pod| pod.config_source == source)
    }

    fn may_have_unseen_sandbox(&self, uid: &PodUid) -> bool {
        let has_none = self.by_pod.get(uid).is_none_or(|pod| pod.1.is_empty());
        has_none && self.snapshot.seen.sandboxes < Coverage::Whole
    }

    /// Where the pod's sandboxes say that it is from, now or earlier.
    fn said_sources(&self, uid: &PodUid) -> BTreeSet<ConfigSource> {
        let sandboxes = self.by_pod.get(uid).map(|pod| pod.1.as_slice());
        let now = sandboxes.unwrap_or_default().iter();
        let history = self.snapshot.pod_history.get(uid);
        now.filter_map(|sandbox| sandbox.config_source)
            .chain(history.and_then(|history| history.config_source))
            .collect()
    }

    /// Everything of the pod was there when the list was made.
    fn is_not_younger(&self, list: &PodList, uid: &PodUid) -> bool {
        let Some(as_of) = list.as_of else { return true };
        let Some((containers, sandboxes)) = self.by_pod.get(uid) else {
            return self.snapshot.seen.is_all();
        };
        self.snapshot.seen.is_all()
            && containers.iter().all(|it| it.created_at < as_of)
            && sandboxes.iter().all(|it| it.created_at < as_of)
    }

    /// A pod is up, or the machine has been for a quarter of an hour.
    fn has_come_up(&self) -> bool {
        let mut sandboxes = self.sandboxes.values();
        self.snapshot.uptime >= Duration::from_secs(900)
            || sandboxes.any(|it| it.pod.is_some() && it.state == PodSandboxState::Ready)
    }

    /// The kubelet has the pod from the node itself, not from the API.
    pub(super) fn is_static(&self, uid: &PodUid) -> bool {
        let said = self.said_sources(uid);
        let from_node = said.iter().any(|source| *source != ConfigSource::Api);
        from_node || said.is_empty() && is_hash(uid)
    }

    /// The source says finished, or no source answers and the operator's lever covers it.
    pub(super) fn is_finished(&self, uid: &PodUid, policy: &Policy) -> bool {
        let unseen = !self.snapshot.seen.is_all();
        if self.is_static(uid) || self.alive.contains(uid) || self.doubtful.contains(uid) || unseen
        {
            return false;
        }
        if let Pods::Known(list) = &self.snapshot.pods {
            match list.pods.get(uid) {
                Some(pod) if pod.config_source != ConfigSource::Api || !pod.finished => {
                    return false;
                }
                Some(_) if self.whole => return true,
                Some(_) | None => {}
            }
        }
        self.is_covered_by_lever(uid, policy)
    }

    fn is_covered_by_lever(&self, uid: &PodUid, policy: &Policy) -> bool {
        let Some(after) = policy.assume_finished_after else {
            return false;
        };
        if self.snapshot.pods == Pods::Unknown(PodsUnknown::Settling) {
            return false;
        }
        // Longer ago than that: not just as long.
        let after = after.saturating_add(Duration::from_nanos(1));
        let records = self.by_pod.get(uid).map(|pod| pod.0.as_slice());
        let records = records.unwrap_or_default();
        let seen = self.snapshot.last_exits.get(uid);
        let exits = records.iter().map(|container| container.finished_at);
        let exits: Vec<Option<Timestamp>> = exits.chain(seen.map(|at| Some(*at))).collect();
        let long_ago = |at: &Option<Timestamp>| at.is_some_and(|at| self.older_than(at, after));
        let exited = |state| state == ContainerState::Exited;
        records.iter().all(|container| exited(container.state))
            && !exits.is_empty()
            && exits.iter().all(long_ago)
    }
}

/// The UID is the hash of a manifest.
fn is_hash(uid: &PodUid) -> bool {
    let digits = uid.as_str();
    digits.len() == 32 && digits.chars().all(|digit| digit.is_ascii_hexdigit())
}
