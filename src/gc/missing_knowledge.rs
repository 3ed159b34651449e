//! Objects kept only because something is unknown: if their pods were known to be finished, or their exits dated, they
//! would be removed. A pass that keeps such objects reports it, because it has not done all it was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::age::at_least;
use super::index::RowSet;
use super::knowledge::{Knowledge, can_never_be_listed};
use super::logs::{self, LogObject};
use super::plan::{plan, removable_of_unknown};
use super::{PodDoubt, Policy, Verdict};
use crate::model::{
    Container, ContainerId, ContainerState, KeepReason, PodUid, Snapshot, Target, pod_uid_of,
};

/// Counts the objects that only wait for knowledge that their pod is finished, by target and by why the pod is unknown;
/// also says whether `assume_finished_after` can help one of them.
pub fn kept_for_missing_knowledge(
    snapshot: &Snapshot,
    policy: &Policy,
    targets: &BTreeSet<Target>,
) -> BTreeMap<(Target, PodDoubt), (usize, bool)> {
    // `pods.quiet` ends by itself: it is no missing knowledge.
    let mut without_quiet = policy.clone();
    without_quiet.pods.quiet = Duration::ZERO;
    let actual = Knowledge::of(snapshot, &without_quiet);
    let if_deleted = Knowledge::of(snapshot, &without_quiet).with_the_still_unknown_deleted();
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
    let removable = |snapshot| {
        let plan = plan(snapshot, policy, &[Target::Containers].into());
        plan.removals.len()
    };
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
