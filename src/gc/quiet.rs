//! May the newest records of a pod that is over go yet? The kubelet may learn of an exit long after it,
//! and runs the pod again if it then finds no record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::containers::at_least;
use super::{PodKnowledge, Policy};
use crate::model::{
    Container, ContainerState, Coverage, KUBELET_SYNCS_IN, Outage, PodUid, Snapshot,
};

/// How many times `pods.quiet` the last exit must be ago where crisweep has not watched the pod itself.
const UNWATCHED_FACTOR: u32 = 10;

/// Judges the pods of a snapshot.
pub(super) struct Quiet<'a> {
    snapshot: &'a Snapshot,
    enough: Duration,
    assume_finished_after: Option<Duration>,
    last_exits: BTreeMap<&'a PodUid, Timestamp>,
    /// Pods with a container that exited at a time that is not known.
    exit_unknown: BTreeSet<&'a PodUid>,
}

impl<'a> Quiet<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, policy: &Policy) -> Self {
        let mut last_exits: BTreeMap<&PodUid, Timestamp> = BTreeMap::new();
        let mut exit_unknown = BTreeSet::new();
        let quiet = policy.pods.quiet;
        let watched = if quiet.is_zero() {
            &[]
        } else {
            snapshot.containers.as_slice()
        };
        for container in watched {
            let Some(pod) = &container.pod else { continue };
            match container.finished_at {
                Some(at) => {
                    let last = last_exits.entry(&pod.uid).or_insert(at);
                    *last = at.max(*last);
                }
                None if container.state == ContainerState::Exited => {
                    exit_unknown.insert(&pod.uid);
                }
                None => {}
            }
        }
        for (uid, at) in &snapshot.last_exits {
            let last = last_exits.entry(uid).or_insert(*at);
            *last = (*at).max(*last);
        }
        Self {
            snapshot,
            enough: quiet,
            assume_finished_after: policy.assume_finished_after,
            last_exits,
            exit_unknown,
        }
    }

    /// The same for the pod of a container, of which this is known.
    pub(super) fn allows_of(&self, container: &Container, pod: PodKnowledge) -> bool {
        container
            .pod
            .as_ref()
            .is_some_and(|it| self.allows(&it.uid, pod))
    }

    /// Says whether the pod has been over for so long that the kubelet surely knows it.
    pub(super) fn allows(&self, uid: &PodUid, pod: PodKnowledge) -> bool {
        if self.enough.is_zero() {
            return true;
        }
        let long = self.enough.saturating_mul(UNWATCHED_FACTOR);
        let snapshot = self.snapshot;
        match snapshot.outage {
            // While a list is over its limit the kubelet learns nothing.
            Some(outage) if outage.lasts(snapshot) => self.exited(uid, outage.first_seen, long),
            outage => {
                let could_list = outage.is_none_or(|it| at_least(snapshot.age(it.last_seen), long));
                // What crisweep watched in the outage the kubelet learns of only after it.
                let could_sync = outage.is_none_or(|it| self.could_sync_since(it));
                could_sync && self.seen_over(uid)
                    || could_list && self.exited(uid, snapshot.taken_at, long)
                    || outage.is_some_and(|it| self.exited(uid, it.first_seen, long))
                    || could_sync && pod == PodKnowledge::Assumed && self.assumed_for_long(uid)
            }
        }
    }

    /// crisweep itself has seen it over for long enough.
    fn seen_over(&self, uid: &PodUid) -> bool {
        let history = self.snapshot.pod_history.get(uid);
        let since = history.and_then(|history| history.over_since);
        since.is_some_and(|since| at_least(self.snapshot.age(since), self.enough))
    }

    /// The lists have fit for long enough since the outage.
    fn could_sync_since(&self, outage: Outage) -> bool {
        let enough = KUBELET_SYNCS_IN.min(self.enough);
        let since = outage.fits_since;
        since.is_some_and(|since| at_least(self.snapshot.age(since), enough))
    }

    /// Its last exit is known and was at least so long before `then`.
    fn exited(&self, uid: &PodUid, then: Timestamp, long: Duration) -> bool {
        let at = self.last_exits.get(uid).copied();
        // A container that was not seen may have exited later than all that were.
        let is_whole = self.snapshot.seen.containers == Coverage::Whole;
        let at = at.filter(|_| is_whole && !self.exit_unknown.contains(uid));
        at.is_some_and(|at| at_least(then.duration_since(at), long))
    }

    /// No source says when an assumed pod ended: it must have counted as finished for so long.
    fn assumed_for_long(&self, uid: &PodUid) -> bool {
        let after = self.assume_finished_after.unwrap_or(Duration::MAX);
        let long = after.saturating_add(self.enough);
        SignedDuration::try_from(long).is_ok() && self.exited(uid, self.snapshot.taken_at, long)
    }
}
