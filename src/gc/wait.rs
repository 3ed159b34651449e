//! Finds when temporarily kept objects can be removed, by planning on the same node at a later time.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::Policy;
use super::knowledge::Knowledge;
use super::plan::summarize;
use crate::model::{Snapshot, Target};

/// Precision of the time, as a share of the longest wait.
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
    soonest(longest, |later| {
        removable(snapshot, policy, &targets, later)
    })
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
    let removable = |policy: &Policy, later| removable(snapshot, policy, &targets, later);
    let mut without_quiet = policy.clone();
    without_quiet.pods.quiet = Duration::ZERO;
    if removable(&without_quiet, Duration::ZERO) <= removable(policy, Duration::ZERO) {
        return None;
    }
    soonest(policy.pods.quiet, |later| removable(policy, later))
}

/// Returns the time, at most `longest`, after which as much is removable as after `longest`; `None` if that is no more
/// than now.
fn soonest(longest: Duration, removable: impl Fn(Duration) -> usize) -> Option<Duration> {
    let all = removable(longest);
    if longest.is_zero() || all <= removable(Duration::ZERO) {
        return None;
    }
    let step = longest / STEPS;
    let (mut too_soon, mut enough) = (Duration::ZERO, longest);
    while enough.saturating_sub(too_soon) > step {
        let between = too_soon.saturating_add(enough.saturating_sub(too_soon) / 2);
        if removable(between) >= all {
            enough = between;
        } else {
            too_soon = between;
        }
    }
    Some(enough)
}

/// Counts what would be removed from the same node later.
fn removable(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
    later: Duration,
) -> usize {
    let now = snapshot.taken_at;
    let mut snapshot = at_later(snapshot, later);
    // Quarantine still keeps objects then.
    for until in snapshot
        .quarantine
        .values_mut()
        .filter(|until| **until > now)
    {
        *until = Timestamp::MAX;
    }
    let summary = summarize(&Knowledge::of(&snapshot, policy), targets);
    let counts = summary.values().flat_map(|summary| summary.remove.values());
    counts.sum()
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
