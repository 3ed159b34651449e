//! Decides whether the newest records of a finished pod may be removed. The kubelet may learn of an exit long
//! after it, and runs the pod again if it then finds no record.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::knowledge::{Knowledge, PodSigns};
use super::{PodKnowledge, Verdict, at_least};
use crate::model::{Coverage, KUBELET_SYNCS_IN, KeepReason, Outage, RemoveReason};

/// If crisweep has not watched the pod, its last exit must be this many times `pods.quiet` ago.
const UNWATCHED_FACTOR: u32 = 10;

impl Knowledge<'_> {
    /// Says whether the kubelet surely knows that a pod has ended.
    pub(super) fn is_end_known(&self, pod: &PodSigns<'_>, state: PodKnowledge) -> bool {
        let (snapshot, enough) = (self.index.snapshot, self.policy.pods.quiet);
        if enough.is_zero() {
            return true;
        }
        let long = enough.saturating_mul(UNWATCHED_FACTOR);
        let exited_long_before = |then| self.exited(pod, then, long);
        let is_over = || {
            let assumed = state == PodKnowledge::Assumed;
            self.seen_over(pod) || assumed && self.assumed_for_long(pod)
        };
        match snapshot.outage {
            None => is_over() || exited_long_before(snapshot.taken_at),
            // While a list is over its limit the kubelet learns nothing.
            Some(outage) if outage.lasts(snapshot) => exited_long_before(outage.first_seen),
            Some(outage) => {
                let could_list = at_least(snapshot.age(outage.last_seen), long);
                exited_long_before(outage.first_seen)
                    // crisweep saw exits during the outage; the kubelet learns of them only after it.
                    || self.could_sync_since(outage) && is_over()
                    || could_list && exited_long_before(snapshot.taken_at)
            }
        }
    }

    /// crisweep itself has seen it finished long enough.
    fn seen_over(&self, pod: &PodSigns<'_>) -> bool {
        let since = pod.history.and_then(|history| history.over_since);
        self.is_past(since, self.policy.pods.quiet)
    }

    /// The lists have fit long enough since the outage.
    fn could_sync_since(&self, outage: Outage) -> bool {
        let enough = KUBELET_SYNCS_IN.min(self.policy.pods.quiet);
        self.is_past(outage.fits_since, enough)
    }

    /// Its last exit is known and at least `long` before `then`.
    fn exited(&self, pod: &PodSigns<'_>, then: Timestamp, long: Duration) -> bool {
        // An unseen container may have exited later than all seen ones.
        let snapshot = self.index.snapshot;
        let is_whole = snapshot.seen.containers == Coverage::Whole || snapshot.has_all_of(pod.uid);
        let at = pod.last_exit.filter(|_| is_whole && !pod.unknown_exit);
        at.is_some_and(|at| at_least(then.duration_since(at), long))
    }

    /// No source says when an assumed pod ended: it must have counted as finished this long.
    fn assumed_for_long(&self, pod: &PodSigns<'_>) -> bool {
        let after = self.policy.assume_finished_after.unwrap_or(Duration::MAX);
        let long = after.saturating_add(self.policy.pods.quiet);
        let now = self.index.snapshot.taken_at;
        SignedDuration::try_from(long).is_ok() && self.exited(pod, now, long)
    }
}

/// Removes the object for this reason if its pod is quiet, else keeps it as too young.
pub(super) fn if_quiet(quiet: bool, reason: RemoveReason) -> Verdict {
    if quiet {
        Verdict::Remove(reason)
    } else {
        Verdict::Keep(KeepReason::TooYoung)
    }
}
