//! A second implementation of `pods.quiet`: the newest record of a finished pod is removed only when the
//! kubelet surely knows its end. States the rule from the snapshot's own facts.

use std::time::Duration;

use jiff::Timestamp;

use super::Violation;
use super::node::{CheckedNode, CheckedPod};
use crate::gc::Removal;
use crate::model::{Coverage, RemoveReason};

/// Returns the removals that are too early.
pub(super) fn violations(node: &CheckedNode<'_>, removals: &[Removal]) -> Vec<Violation> {
    if node.policy.pods.quiet.is_zero() {
        return Vec::new();
    }
    let pods = node.pods.iter();
    let over: Vec<bool> = pods.map(|pod| has_been_over(node, pod)).collect();
    let newest = node
        .planned()
        .filter(|(_, record)| !record.facts().superseded);
    let early = newest.filter(|(claim, newest)| {
        let for_its_pod = matches!(
            claim.reason,
            RemoveReason::PodDeleted | RemoveReason::OverCap
        );
        let over = newest.facts().pod.and_then(|pod| over.get(pod));
        for_its_pod && over == Some(&false)
    });
    let mut early: Vec<usize> = early.map(|(claim, _)| claim.place).collect();
    early.sort_unstable();
    early
        .into_iter()
        .filter_map(|place| removals.get(place))
        .map(|removal| Violation {
            id: removal.subject.id.to_string(),
            rule: "is the newest of a pod whose end the kubelet may not know yet",
        })
        .collect()
}

fn has_been_over(node: &CheckedNode<'_>, pod: &CheckedPod<'_>) -> bool {
    let (snapshot, policy) = (node.snapshot, node.policy);
    let quiet = policy.pods.quiet;
    let before = |at: Timestamp, then: Timestamp, long: Duration| {
        let nanoseconds = then.as_nanosecond() - at.as_nanosecond();
        u128::try_from(nanoseconds).is_ok_and(|it| it >= long.as_nanos())
    };
    let now = snapshot.taken_at;
    let exit = match snapshot.seen.containers {
        Coverage::Whole => pod.last_exit.filter(|_| !pod.exit_unknown),
        Coverage::Living | Coverage::Partial => pod
            .last_exit
            .filter(|_| node.is_seen_whole(pod) && !pod.exit_unknown),
    };
    let exited = |then: Timestamp, long: Duration| exit.is_some_and(|at| before(at, then, long));
    let tenfold = quiet.saturating_mul(10);
    let over_now = snapshot
        .outage
        .is_some_and(|outage| outage.last_seen >= now);
    if let Some(outage) = snapshot.outage
        && exited(outage.first_seen, tenfold)
    {
        return true;
    }
    if over_now {
        return false;
    }
    let syncs_in = quiet.min(Duration::from_secs(15));
    let synced = snapshot.outage.is_none_or(|outage| {
        let since = outage.fits_since;
        since.is_some_and(|since| before(since, now, syncs_in))
    });
    let watched = pod
        .history
        .and_then(|it| it.over_since)
        .is_some_and(|at| before(at, now, quiet));
    let listable = snapshot
        .outage
        .is_none_or(|it| before(it.last_seen, now, tenfold));
    let lever = policy
        .assume_finished_after
        .filter(|_| !node.source_says_over(pod));
    let assumed = lever.is_some_and(|after| exited(now, after.saturating_add(quiet)));
    synced && (watched || assumed) || listable && exited(now, tenfold)
}
