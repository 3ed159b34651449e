//! The verdict on each pod sandbox.

use super::containers::protects_pod;
use super::index::{RowSet, SnapshotIndex};
use super::knowledge::Knowledge;
use super::quiet::if_quiet;
use super::{Limit, PodKnowledge, Policy, Verdict, at_least, first_said, keep};
use crate::model::{
    Coverage, KeepReason, Numbering, PodSandbox, PodSandboxState, RemoveReason, Snapshot, Target,
};

/// The rules, in the order in which they are asked: the first that says something is the verdict, unless it removes a
/// sandbox that is in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum SandboxRule {
    /// Keeps what is ready.
    Ready,
    /// Keeps what has a container.
    Containers,
    /// Keeps what another tool made.
    Unmanaged,
    /// Keeps what `policy.protect` names.
    Protect,
    /// Keeps what is young.
    MinAge,
    /// Removes everything of a deleted pod, its newest once they are quiet.
    PodDeleted,
    /// Removes what a newer sandbox of the pod supersedes.
    Superseded,
    /// Removes what the node has too many of.
    MaxDead,
    /// Keeps the newest of a pod that is absent for a short time.
    Settle,
    /// Keeps the newest of a pod that may exist.
    Newest,
    /// Keeps what no limit asks for.
    WithinLimits,
}

/// Judges every sandbox; returns one verdict for each, in the snapshot's order. Containers in `gone` count as
/// removed: a plan for both targets shows what one pass would do.
pub(super) fn judge(knowledge: &Knowledge<'_>, gone: &RowSet) -> Vec<Verdict> {
    let judge = SandboxJudge::new(knowledge, gone);
    let snapshot = knowledge.index.snapshot;
    let off = knowledge.policy.off(Target::Sandboxes);
    let sandboxes = snapshot.sandboxes.iter().enumerate();
    sandboxes
        .map(|(place, sandbox)| {
            let verdict = first_said(|rule| judge.ask(rule, place), KeepReason::WithinLimits);
            verdict.unless(quarantined(snapshot, sandbox)).unless(off)
        })
        .collect()
}

/// All that the rules look at.
pub(super) struct SandboxJudge<'a> {
    knowledge: &'a Knowledge<'a>,
    /// Those that have a container, or may have one.
    held: RowSet,
    over_cap: RowSet,
    /// Number of dead sandboxes that count for the cap.
    pub(super) dead: usize,
}

impl<'a> SandboxJudge<'a> {
    pub(super) fn new(knowledge: &'a Knowledge<'a>, gone: &RowSet) -> Self {
        let index = &knowledge.index;
        let (snapshot, rules) = (index.snapshot, &knowledge.policy.sandboxes);
        let held = held(index, gone);
        let places = 0..snapshot.sandboxes.len();
        let counted: Vec<usize> = places
            .filter(|it| !held.has(*it) && counts(knowledge, *it))
            .collect();
        let dead = counted.len();
        let mut over_cap = RowSet::none(snapshot.sandboxes.len());
        if let Limit::AtMost(max_dead) = rules.max_dead
            && snapshot.seen.is_all()
        {
            index
                .sandboxes
                .take_oldest(counted, max_dead, &mut over_cap);
        }
        Self {
            knowledge,
            held,
            over_cap,
            dead,
        }
    }

    /// Returns what one rule says of the sandbox at this place; `None`: nothing, the next one is asked.
    pub(super) fn ask(&self, rule: SandboxRule, place: usize) -> Option<Verdict> {
        use SandboxRule as Rule;
        let (index, policy) = (&self.knowledge.index, self.knowledge.policy);
        let sandbox = index.snapshot.sandboxes.get(place)?;
        let pod = index.pod_of_sandbox(place);
        let state = self.knowledge.at(pod);
        let is_newest = index.newest_sandboxes.has(place);
        match rule {
            Rule::Ready => {
                let ready = sandbox.state == PodSandboxState::Ready;
                keep(KeepReason::Ready, ready)
            }
            Rule::Containers => keep(KeepReason::HasContainers, self.held.has(place)),
            Rule::Unmanaged => keep(KeepReason::Unmanaged, sandbox.pod.is_none()),
            Rule::Protect => keep(KeepReason::Protected, is_protected(policy, sandbox)),
            Rule::MinAge => {
                let old = is_old(index.snapshot, policy, sandbox);
                keep(KeepReason::TooYoung, !old)
            }
            Rule::PodDeleted => {
                let quiet = !is_newest || self.knowledge.is_quiet(pod);
                (state == PodKnowledge::Deleted).then(|| if_quiet(quiet, RemoveReason::PodDeleted))
            }
            Rule::Superseded => (!is_newest).then_some(Verdict::Remove(RemoveReason::Superseded)),
            // The kubelet has no cap on sandboxes: ours applies only to pods that are known to be finished.
            Rule::MaxDead => (state.is_finished() && self.over_cap.has(place))
                .then(|| if_quiet(self.knowledge.is_quiet(pod), RemoveReason::OverCap)),
            Rule::Settle => keep(KeepReason::TooYoung, state == PodKnowledge::Absent),
            Rule::Newest => keep(KeepReason::Newest, !state.is_finished()),
            Rule::WithinLimits => keep(KeepReason::WithinLimits, true),
        }
    }
}

fn is_protected(policy: &Policy, sandbox: &PodSandbox) -> bool {
    let pod = sandbox.pod.as_ref();
    pod.is_some_and(|pod| protects_pod(&policy.protect, pod))
        || policy.protect.has_label(&sandbox.labels)
}

fn is_old(snapshot: &Snapshot, policy: &Policy, sandbox: &PodSandbox) -> bool {
    at_least(snapshot.age(sandbox.created_at), policy.sandboxes.min_age)
}

/// Says whether the sandbox at this place, if nothing holds it, counts for the cap: the newest of a pod that is not
/// deleted does, and a protected one, which no other replaces.
fn counts(knowledge: &Knowledge<'_>, place: usize) -> bool {
    let (index, policy) = (&knowledge.index, knowledge.policy);
    let snapshot = index.snapshot;
    let is_dead = |it: &PodSandbox| {
        it.state == PodSandboxState::NotReady && it.pod.is_some() && is_old(snapshot, policy, it)
    };
    let state = knowledge.at(index.pod_of_sandbox(place));
    let is_last = state != PodKnowledge::Deleted && index.newest_sandboxes.has(place);
    let sandbox = snapshot.sandboxes.get(place);
    sandbox.is_some_and(|it| is_dead(it) && (is_last || is_protected(policy, it)))
}

/// Finds the sandboxes that have a container, or may have one. A container without a sandbox id may be in any sandbox of
/// its pod; without a pod, in any sandbox at all. On an incomplete list of containers any sandbox may have one.
fn held(index: &SnapshotIndex<'_>, gone: &RowSet) -> RowSet {
    let Snapshot {
        containers,
        sandboxes,
        seen,
        ..
    } = index.snapshot;
    let of_sandboxes = sandboxes.iter().map(|it| Some(it.id.as_str()));
    let of_containers = containers.iter().map(|it| Some(it.sandbox_id.as_str()));
    let ids = Numbering::of(of_sandboxes.chain(of_containers));
    let mut named_ids = RowSet::none(ids.texts().len());
    // The pods of containers without a sandbox id.
    let mut pods_astray = RowSet::none(index.uids().len());
    let mut any_astray = false;
    let mut may_be_anywhere = seen.containers != Coverage::Whole;
    for (place, container) in containers.iter().enumerate() {
        if gone.has(place) {
            continue;
        }
        if container.sandbox_id.is_stand_in() {
            any_astray = true;
            match index.pod_of_container(place) {
                Some(pod) => pods_astray.add(pod),
                None => may_be_anywhere = true,
            }
        } else if let Some(id) = ids.at(sandboxes.len() + place) {
            named_ids.add(id);
        }
    }
    RowSet::of(sandboxes.len(), |place| {
        let pod = index.pod_of_sandbox(place);
        may_be_anywhere
            || ids.at(place).is_some_and(|id| named_ids.has(id))
            || pod.map_or(any_astray, |pod| pods_astray.has(pod))
    })
}

/// Returns the reason to keep a sandbox in quarantine.
pub(super) fn quarantined(snapshot: &Snapshot, sandbox: &PodSandbox) -> Option<KeepReason> {
    let until = snapshot.quarantine.get(&sandbox.id)?;
    (*until > snapshot.taken_at).then_some(KeepReason::Quarantined)
}
