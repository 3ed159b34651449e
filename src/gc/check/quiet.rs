//! A second opinion on `pods.quiet`: the newest record of a pod that is over goes only when the kubelet
//! surely knows of its end. States the rule from the snapshot's own facts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::Violation;
use crate::gc::{Policy, Removal, RemoveReason, Target};
use crate::model::{ContainerState, Coverage, PodUid, Snapshot};

/// Returns the removals that come too early.
pub(super) fn violations(
    removals: &[Removal],
    snapshot: &Snapshot,
    policy: &Policy,
) -> Vec<Violation> {
    if policy.pods.quiet.is_zero() {
        return Vec::new();
    }
    let newest = newest(snapshot);
    let exits = exits(snapshot);
    let early = removals.iter().filter(|removal| {
        let of_pod = matches!(
            removal.reason,
            RemoveReason::PodDeleted | RemoveReason::OverCap
        );
        let uid = removal.subject.pod.as_ref().map(|pod| &pod.uid);
        of_pod
            && newest.contains(&(removal.subject.target, removal.subject.id.as_str()))
            && uid.is_some_and(|uid| !has_been_over(uid, &exits, snapshot, policy))
    });
    early
        .map(|removal| Violation {
            id: removal.subject.id.to_string(),
            rule: "is the newest of a pod whose end the kubelet may not know yet",
        })
        .collect()
}

/// Attempt, creation, id.
type Rank<'a> = (u32, Timestamp, &'a str);

/// The containers and sandboxes without one that is newer in both ways.
fn newest(snapshot: &Snapshot) -> BTreeSet<(Target, &str)> {
    let mut groups: BTreeMap<(Target, &PodUid, &str), Vec<Rank<'_>>> = BTreeMap::new();
    for it in &snapshot.containers {
        let Some(pod) = &it.pod else { continue };
        let group = groups.entry((Target::Containers, &pod.uid, &it.name));
        let this = (it.attempt, it.created_at, it.id.as_str());
        group.or_default().push(this);
    }
    for it in &snapshot.sandboxes {
        let Some(pod) = &it.pod else { continue };
        let group = groups.entry((Target::Sandboxes, &pod.uid, ""));
        let this = (it.attempt, it.created_at, it.id.as_str());
        group.or_default().push(this);
    }
    let mut newest = BTreeSet::new();
    for ((target, _, _), records) in groups {
        let by_attempt = records.iter().max();
        let by_creation = records
            .iter()
            .max_by_key(|(attempt, at, id)| (*at, *attempt, *id));
        let ids = by_attempt.into_iter().chain(by_creation);
        newest.extend(ids.map(|(_, _, id)| (target, *id)));
    }
    newest
}

/// When each pod's last container exited; `None`: one of them did at a time that is not known.
fn exits(snapshot: &Snapshot) -> BTreeMap<&PodUid, Option<Timestamp>> {
    let mut exits: BTreeMap<&PodUid, Option<Timestamp>> = BTreeMap::new();
    let remembered = snapshot.last_exits.iter().map(|(uid, at)| (uid, Some(*at)));
    let exited = snapshot
        .containers
        .iter()
        .filter(|it| it.state == ContainerState::Exited);
    let listed = exited.filter_map(|it| Some((&it.pod.as_ref()?.uid, it.finished_at)));
    for (uid, at) in remembered.chain(listed) {
        let last = exits.entry(uid).or_insert(at);
        *last = match (*last, at) {
            (Some(last), Some(at)) => Some(last.max(at)),
            _ => None,
        };
    }
    exits
}

fn has_been_over(
    uid: &PodUid,
    exits: &BTreeMap<&PodUid, Option<Timestamp>>,
    snapshot: &Snapshot,
    policy: &Policy,
) -> bool {
    let quiet = policy.pods.quiet;
    let before = |at: Timestamp, then: Timestamp, long: Duration| {
        let nanoseconds = then.as_nanosecond() - at.as_nanosecond();
        u128::try_from(nanoseconds).is_ok_and(|it| it >= long.as_nanos())
    };
    let now = snapshot.taken_at;
    let exit = match snapshot.seen.containers {
        Coverage::Whole => exits.get(uid).copied().flatten(),
        Coverage::Living | Coverage::Partial => None,
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
    let history = snapshot.pod_history.get(uid);
    let watched = history
        .and_then(|it| it.over_since)
        .is_some_and(|at| before(at, now, quiet));
    let listable = snapshot
        .outage
        .is_none_or(|it| before(it.last_seen, now, tenfold));
    let assumed = policy
        .assume_finished_after
        .is_some_and(|after| exited(now, after.saturating_add(quiet)));
    synced && (watched || assumed) || listable && exited(now, tenfold)
}
