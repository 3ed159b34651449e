//! What objects only wait for: compares what is removed from the node with what would be if one thing were otherwise: if
//! it were later, if unknown pods were deleted, if exits were dated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::index::RowSet;
use super::knowledge::{Knowledge, can_never_be_listed};
use super::logs::{self, LogObject};
use super::plan::{removable_of_unknown, summarize};
use super::{PodDoubt, Policy, Summary, Verdict, at_least};
use crate::model::{
    Container, ContainerId, ContainerState, KeepReason, PodUid, Snapshot, Target, pod_uid_of,
};

/// Precision of the time: the longest wait in so many steps.
const STEPS: u32 = 64;

/// Returns after what time everything of a target can be removed that `pods.quiet`, `pods.settle` or a
/// `min_age` keeps now; `None` if they keep nothing.
pub fn kept_for_a_time(snapshot: &Snapshot, policy: &Policy, target: Target) -> Option<Duration> {
    let (min_age, targets) = match target {
        Target::Containers => (policy.containers.min_age, [target].into()),
        // A pod's containers hold its sandbox.
        Target::Sandboxes => {
            let both = [Target::Containers, target].into();
            (policy.sandboxes.min_age, both)
        }
        // Logs and images follow their owners; their own ages do not justify a follow-up.
        Target::Logs | Target::Images => return None,
    };
    let longest = policy.pods.quiet.max(policy.pods.settle).max(min_age);
    soonest(snapshot, policy, &targets, longest)
}

/// Returns after what time everything can be removed that `pods.quiet` keeps now; `None` if it keeps nothing,
/// or if time alone does not help.
pub fn kept_for_quiet(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
) -> Option<Duration> {
    let of_pods = [Target::Containers, Target::Sandboxes].into();
    let targets: BTreeSet<Target> = targets.intersection(&of_pods).copied().collect();
    let now = removable(snapshot, policy, &targets);
    if removable(snapshot, &without_quiet(policy), &targets) <= now {
        return None;
    }
    soonest(snapshot, policy, &targets, policy.pods.quiet)
}

/// Counts the containers and sandboxes of pods known to be finished or deleted that `pods.quiet` alone keeps, where
/// there are any.
pub fn kept_by_quiet_alone(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
) -> BTreeMap<Target, usize> {
    // An assumption is no knowledge.
    let mut policy = policy.clone();
    policy.assume_finished_after = None;
    let of_pods = targets & &[Target::Containers, Target::Sandboxes].into();
    let planned = |policy: &Policy| {
        let counts = summarize(&Knowledge::of(snapshot, policy), &of_pods);
        let sum = |(target, it): (Target, Summary)| (target, it.remove.values().sum());
        counts
            .into_iter()
            .map(sum)
            .collect::<BTreeMap<Target, usize>>()
    };
    let now = planned(&policy);
    let mut more = planned(&without_quiet(&policy));
    for (target, count) in &mut more {
        *count = count.saturating_sub(now.get(target).copied().unwrap_or(0));
    }
    more.retain(|_, count| *count > 0);
    more
}

/// Returns the time, at most `longest`, after which as much is removable as after `longest`; `None` if that is no more
/// than now.
fn soonest(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
    longest: Duration,
) -> Option<Duration> {
    let removable = |later| removable_later(snapshot, policy, targets, later);
    let all = removable(longest);
    if longest.is_zero() || all <= removable(Duration::ZERO) {
        return None;
    }
    let steps = 1..=STEPS;
    let waits: Vec<Duration> = steps.map(|it| longest.saturating_mul(it) / STEPS).collect();
    let too_short = waits.partition_point(|wait| removable(*wait) < all);
    waits.get(too_short).copied()
}

fn without_quiet(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    policy.pods.quiet = Duration::ZERO;
    policy
}

/// Counts what is removed from a node.
fn removable(snapshot: &Snapshot, policy: &Policy, targets: &BTreeSet<Target>) -> usize {
    let summary = summarize(&Knowledge::of(snapshot, policy), targets);
    let counts = summary.values().flat_map(|summary| summary.remove.values());
    counts.sum()
}

/// The same later; quarantine still keeps objects then.
fn removable_later(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
    later: Duration,
) -> usize {
    let now = snapshot.taken_at;
    let mut snapshot = at_later(snapshot, later);
    let waiting = snapshot.quarantine.values_mut();
    for until in waiting.filter(|until| **until > now) {
        *until = Timestamp::MAX;
    }
    removable(&snapshot, policy, targets)
}

/// Returns the same node later. A list over its limit is still so.
pub(super) fn at_later(snapshot: &Snapshot, later: Duration) -> Snapshot {
    let mut snapshot = snapshot.clone();
    let now = snapshot.taken_at;
    snapshot.taken_at = now.saturating_add(later).unwrap_or(now);
    if let Some(outage) = snapshot
        .outage
        .as_mut()
        .filter(|outage| outage.last_seen >= now)
    {
        outage.last_seen = snapshot.taken_at;
    }
    snapshot
}

/// Counts the objects that only wait for knowledge that their pod is finished, by target and by why the pod is unknown;
/// also says whether `assume_finished_after` can help one of them.
pub fn kept_for_missing_knowledge(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
) -> BTreeMap<(Target, PodDoubt), (usize, bool)> {
    // `pods.quiet` ends by itself: it is no missing knowledge.
    let without_quiet = without_quiet(policy);
    let actual = Knowledge::of(snapshot, &without_quiet);
    let if_deleted = actual.with_the_still_unknown_deleted();
    let now = removable_of_unknown(&actual, &actual, targets);
    let mut more = removable_of_unknown(&if_deleted, &actual, targets);
    for (why, count) in now {
        if let Some(more) = more.get_mut(&why) {
            *more = more.saturating_sub(count);
        }
    }
    if targets.contains(&Target::Logs) {
        count_dirs(&actual, &mut more);
    }
    more.retain(|_, count| *count > 0);
    let mut counts: BTreeMap<_, (usize, bool)> = BTreeMap::new();
    for ((target, doubt, assumable), count) in more {
        let (all, any) = counts.entry((target, doubt)).or_default();
        *all += count;
        *any |= assumable;
    }
    counts
}

/// Counts the containers that can be removed once it is known that every exit at an unknown time was long ago; also
/// names one that exited so. `None`: no such container stays for that.
pub fn kept_for_unknown_exits<'a>(
    snapshot: &'a Snapshot,
    policy: &Policy,
) -> Option<(usize, &'a ContainerId)> {
    let is_undated =
        |it: &Container| it.state == ContainerState::Exited && it.finished_at.is_none();
    let example = snapshot.containers.iter().find(|it| is_undated(it))?;
    let mut dated = snapshot.clone();
    for row in dated.containers.iter_mut().filter(|it| is_undated(it)) {
        row.finished_at = Some(row.created_at);
    }
    let removable = |snapshot| removable(snapshot, policy, &[Target::Containers].into());
    let more = removable(&dated).saturating_sub(removable(snapshot));
    (more > 0).then_some((more, &example.id))
}

/// Counts the old enough log directories of pods of which the runtime has nothing. An assumption removes none of them.
fn count_dirs(knowledge: &Knowledge<'_>, counts: &mut BTreeMap<(Target, PodDoubt, bool), usize>) {
    let (snapshot, policy) = (knowledge.index.snapshot, knowledge.policy);
    if !policy.logs.enabled || !snapshot.seen.is_all() {
        return;
    }
    let gone = RowSet::none(snapshot.containers.len());
    let can_be_listed = |uid: &PodUid| !can_never_be_listed(snapshot, uid.as_str());
    for (log, verdict) in logs::judge(knowledge, &gone) {
        if let LogObject::Dir(dir) = log
            && verdict == Verdict::Keep(KeepReason::PodsUnknown)
            && at_least(snapshot.age(dir.modified_at), policy.logs.grace)
            && let Some(uid) = pod_uid_of(&dir.name).filter(can_be_listed)
            && let Some(doubt) = knowledge.doubt(&uid, dir.modified_at)
        {
            *counts.entry((Target::Logs, doubt, false)).or_default() += 1;
        }
    }
}
