//! The verdict on each pod sandbox.

use strum::VariantArray;

use super::age::at_least;
use super::containers::protects_pod;
use super::index::{Newest, RowRanks, RowSet, SnapshotIndex};
use super::knowledge::Knowledge;
use super::quiet::{Quiet, if_quiet};
use super::{Limit, PodKnowledge, Policy, Verdict};
use crate::model::{
    Coverage, KeepReason, Numbering, PodSandbox, PodSandboxState, RemoveReason, Snapshot,
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

impl SandboxRule {
    /// Returns the rules before the cap, and those that look at the cap.
    fn parts() -> (&'static [Self], &'static [Self]) {
        Self::VARIANTS.split_at(Self::MaxDead as usize)
    }
}

/// Judges every sandbox; returns one verdict for each, in the snapshot's order. Containers in `gone` count as
/// removed: a plan for both targets shows what one pass would do.
pub(super) fn judge(
    policy: &Policy,
    knowledge: &Knowledge<'_>,
    newest: &Newest,
    gone: &RowSet,
) -> Vec<Verdict> {
    let (judge, first) = SandboxJudge::new(policy, knowledge, newest, gone);
    let snapshot = judge.snapshot();
    let judged = snapshot.sandboxes.iter().zip(first).enumerate();
    let (_, rest) = SandboxRule::parts();
    judged
        .map(|(place, (sandbox, verdict))| {
            let verdict = verdict
                .or_else(|| rest.iter().find_map(|rule| judge.ask(*rule, place)))
                .unwrap_or(Verdict::Keep(KeepReason::WithinLimits));
            unless_quarantined(snapshot, sandbox, verdict)
        })
        .collect()
}

/// All that the rules look at.
pub(super) struct SandboxJudge<'a> {
    policy: &'a Policy,
    knowledge: &'a Knowledge<'a>,
    newest: &'a Newest,
    quiet: Quiet,
    named: RowSet,
    over_cap: RowSet,
    /// Number of dead sandboxes that count for the cap.
    pub(super) dead: usize,
}

impl<'a> SandboxJudge<'a> {
    /// Prepares the rules; also returns what those before the cap say of each sandbox.
    pub(super) fn new(
        policy: &'a Policy,
        knowledge: &'a Knowledge<'a>,
        newest: &'a Newest,
        gone: &RowSet,
    ) -> (Self, Vec<Option<Verdict>>) {
        let index = &knowledge.index;
        let snapshot = index.snapshot;
        let mut judge = Self {
            policy,
            knowledge,
            newest,
            quiet: Quiet::of(knowledge, policy),
            named: named(index, gone),
            over_cap: RowSet::none(snapshot.sandboxes.len()),
            dead: 0,
        };
        let mut first: Vec<Option<Verdict>> = Vec::with_capacity(snapshot.sandboxes.len());
        let mut counted = Vec::new();
        let (before, _) = SandboxRule::parts();
        for (place, sandbox) in snapshot.sandboxes.iter().enumerate() {
            let verdict = before.iter().find_map(|rule| judge.ask(*rule, place));
            // A protected sandbox counts for the cap, and no other replaces it.
            let shielded = verdict == Some(Verdict::Keep(KeepReason::Protected));
            let dead = !judge.named.has(place) && is_dead(snapshot, policy, sandbox);
            if dead && (verdict.is_none() || shielded) {
                counted.push(place);
            }
            first.push(verdict);
        }
        let max_dead = if snapshot.seen.is_all() {
            policy.sandboxes.max_dead
        } else {
            Limit::None
        };
        judge.dead = counted.len();
        judge.over_cap = over_cap(&index.sandboxes, counted, max_dead);
        (judge, first)
    }

    /// Returns what one rule says of the sandbox at this place; `None`: nothing, the next one is asked.
    pub(super) fn ask(&self, rule: SandboxRule, place: usize) -> Option<Verdict> {
        use SandboxRule as Rule;
        let (snapshot, policy) = (self.snapshot(), self.policy);
        let sandbox = snapshot.sandboxes.get(place)?;
        let state = self.pod_state(place);
        let keep = |reason, holds: bool| holds.then_some(Verdict::Keep(reason));
        match rule {
            Rule::Ready => {
                let ready = sandbox.state == PodSandboxState::Ready;
                keep(KeepReason::Ready, ready)
            }
            Rule::Containers => {
                // On an incomplete list of containers any sandbox may have one.
                let unseen = snapshot.seen.containers != Coverage::Whole;
                keep(KeepReason::HasContainers, self.named.has(place) || unseen)
            }
            Rule::Unmanaged => keep(KeepReason::Unmanaged, sandbox.pod.is_none()),
            Rule::Protect => {
                let pod = sandbox.pod.as_ref();
                let by_pod = pod.is_some_and(|pod| protects_pod(&policy.protect, pod));
                let by_label = policy.protect.has_label(&sandbox.labels);
                keep(KeepReason::Protected, by_pod || by_label)
            }
            Rule::MinAge => {
                let age = snapshot.age(sandbox.created_at);
                let old = at_least(age, policy.sandboxes.min_age);
                keep(KeepReason::TooYoung, !old)
            }
            Rule::PodDeleted => {
                let quiet = !self.newest.has(place) || self.is_quiet(place);
                (state == PodKnowledge::Deleted).then(|| if_quiet(quiet, RemoveReason::PodDeleted))
            }
            Rule::Superseded => {
                let newer = !self.newest.has(place);
                newer.then_some(Verdict::Remove(RemoveReason::Superseded))
            }
            // The kubelet has no cap on sandboxes: ours applies only to pods that are known to be finished.
            Rule::MaxDead => (state.is_finished() && self.over_cap.has(place))
                .then(|| if_quiet(self.is_quiet(place), RemoveReason::OverCap)),
            Rule::Settle => keep(KeepReason::TooYoung, state == PodKnowledge::Absent),
            Rule::Newest => keep(KeepReason::Newest, !state.is_finished()),
            Rule::WithinLimits => keep(KeepReason::WithinLimits, true),
        }
    }

    fn snapshot(&self) -> &'a Snapshot {
        self.knowledge.index.snapshot
    }

    fn pod_state(&self, place: usize) -> PodKnowledge {
        let index = &self.knowledge.index;
        self.knowledge.at(index.pod_of_sandbox(place))
    }

    fn is_quiet(&self, place: usize) -> bool {
        let index = &self.knowledge.index;
        self.quiet.allows(index.pod_of_sandbox(place))
    }
}

/// Finds the sandboxes that containers name. A container without a sandbox id may be in any sandbox of its
/// pod; without a pod, in any sandbox at all.
fn named(index: &SnapshotIndex<'_>, gone: &RowSet) -> RowSet {
    let Snapshot {
        containers,
        sandboxes,
        ..
    } = index.snapshot;
    let of_sandboxes = sandboxes.iter().map(|it| Some(it.id.as_str()));
    let of_containers = containers.iter().map(|it| Some(it.sandbox_id.as_str()));
    let ids = Numbering::of(of_sandboxes.chain(of_containers));
    let mut named_ids = RowSet::none(ids.texts().len());
    // The pods of containers without a sandbox id.
    let mut pods_astray = RowSet::none(index.uids().len());
    let (mut any_astray, mut without_pod) = (false, false);
    for (place, container) in containers.iter().enumerate() {
        if gone.has(place) {
            continue;
        }
        if container.sandbox_id.is_stand_in() {
            any_astray = true;
            match index.pod_of_container(place) {
                Some(pod) => pods_astray.add(pod),
                None => without_pod = true,
            }
        } else if let Some(id) = ids.at(sandboxes.len() + place) {
            named_ids.add(id);
        }
    }
    let may_hold_astray =
        |pod: Option<usize>| without_pod || pod.map_or(any_astray, |pod| pods_astray.has(pod));
    let mut named = RowSet::none(sandboxes.len());
    for place in 0..sandboxes.len() {
        let is_named = ids.at(place).is_some_and(|id| named_ids.has(id));
        if is_named || may_hold_astray(index.pod_of_sandbox(place)) {
            named.add(place);
        }
    }
    named
}

fn is_dead(snapshot: &Snapshot, policy: &Policy, sandbox: &PodSandbox) -> bool {
    sandbox.state == PodSandboxState::NotReady
        && at_least(snapshot.age(sandbox.created_at), policy.sandboxes.min_age)
}

/// Keeps a sandbox in quarantine.
pub(super) fn unless_quarantined(
    snapshot: &Snapshot,
    sandbox: &PodSandbox,
    verdict: Verdict,
) -> Verdict {
    let until = snapshot.quarantine.get(&sandbox.id);
    match verdict {
        Verdict::Remove(_) if until.is_some_and(|until| *until > snapshot.taken_at) => {
            Verdict::Keep(KeepReason::Quarantined)
        }
        Verdict::Remove(_) | Verdict::Keep(_) => verdict,
    }
}

fn over_cap(ranks: &RowRanks, mut counted: Vec<usize>, max_dead: Limit) -> RowSet {
    let mut taken = RowSet::none(ranks.len());
    let Limit::AtMost(max_dead) = max_dead else {
        return taken;
    };
    let surplus = counted.len().saturating_sub(max_dead);
    counted.sort_by_key(|it| ranks.at(*it).by_creation);
    for &place in counted.iter().take(surplus) {
        taken.add(place);
    }
    taken
}
