//! Objects kept only because their pods are unknown: if the pods were known to be finished, they would be removed. A
//! pass that keeps such objects reports it, because it has not done all it was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::age::at_least;
use super::index::RowSet;
use super::knowledge::{Knowledge, can_never_be_listed};
use super::logs::{self, LogObject};
use super::plan::removable_of_unknown;
use super::{Policy, Verdict};
use crate::model::{KeepReason, Snapshot, Target, pod_uid_of};

/// Counts, by target, what can be removed once its pod is known to be finished.
pub fn kept_for_missing_knowledge(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
) -> BTreeMap<Target, usize> {
    let known = Knowledge::of(snapshot, policy);
    // The quiet time would pass by itself.
    let mut supposed = policy.clone();
    supposed.pods.quiet = Duration::ZERO;
    let supposition = Knowledge::of(snapshot, policy).with_the_quiet_unknown_deleted();
    let now = removable_of_unknown(&supposed, &known, &known, targets);
    let then = removable_of_unknown(&supposed, &supposition, &known, targets);
    let more = then.into_iter().filter_map(|(target, count)| {
        let more = count.saturating_sub(now.get(&target).copied().unwrap_or_default());
        (more > 0).then_some((target, more))
    });
    let dirs = targets
        .contains(&Target::Logs)
        .then(|| dirs(snapshot, policy, &known));
    let dirs = dirs.filter(|count| *count > 0);
    more.chain(dirs.map(|count| (Target::Logs, count)))
        .collect()
}

/// Counts the old enough log directories of pods of which the runtime has nothing.
fn dirs(snapshot: &Snapshot, policy: &Policy, known: &Knowledge<'_>) -> usize {
    if !policy.logs.enabled || !snapshot.seen.is_all() {
        return 0;
    }
    let mut count = 0;
    let gone = RowSet::none(snapshot.containers.len());
    logs::judge(policy, known, &gone, |log, verdict| {
        let LogObject::Dir(dir) = log else { return };
        let told =
            pod_uid_of(&dir.name).is_some_and(|uid| !can_never_be_listed(snapshot, uid.as_str()));
        let old = at_least(snapshot.age(dir.modified_at), policy.logs.grace);
        let unknown = verdict == Verdict::Keep(KeepReason::PodsUnknown);
        count += usize::from(told && old && unknown);
    });
    count
}
