//! What may be believed of each pod: the pod source's answer, held against what the runtime shows.
//!
//! Never takes the runtime's word alone that a pod is over, except where the operator pulled the one
//! lever for it (`assume_finished_after`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::containers::at_least;
use super::{PodKnowledge, Policy};
use crate::model::{
    ConfigSource, ContainerState, Coverage, PodList, PodSandbox, PodSandboxState, PodUid, Pods,
    PodsUnknown, Snapshot,
};

/// For so long after the machine's start a list alone makes no pod deleted while no sandbox is ready yet:
/// the kubelet is just beginning to bring its pods back.
pub(super) const AFTER_REBOOT: Duration = Duration::from_secs(15 * 60);

/// What is known of each pod that the runtime has something of.
#[derive(Debug)]
pub struct Knowledge<'a> {
    node: Node<'a>,
    states: BTreeMap<&'a PodUid, PodKnowledge>,
    incomplete: Option<&'a PodUid>,
}

/// How far the pod source is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// There is none.
    None,
    /// It has not answered for long enough.
    Settling,
    /// It failed.
    Failed,
    /// Its list lacks a pod that lives here: nothing is concluded from it.
    Incomplete,
    /// Its list is believed.
    Known,
}

impl From<&PodsUnknown> for SourceState {
    fn from(why: &PodsUnknown) -> Self {
        match why {
            PodsUnknown::NoSource => Self::None,
            PodsUnknown::Settling => Self::Settling,
            PodsUnknown::Failed(_) => Self::Failed,
        }
    }
}

impl SourceState {
    /// Returns its name as metrics and the API write it.
    pub fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Settling => "settling",
            Self::Failed => "failed",
            Self::Incomplete => "incomplete",
            Self::Known => "known",
        }
    }
}

impl<'a> Knowledge<'a> {
    /// Judges every pod of the snapshot.
    pub fn of(snapshot: &'a Snapshot, policy: &Policy) -> Self {
        let signs = signs_of_life(snapshot);
        let incomplete = missing_live_pod(snapshot, policy, &signs);
        let node = Node {
            snapshot,
            settle: policy.pods.settle,
            // A pod that lives unseen could be the one that the source's list lacks.
            unproven: incomplete.is_some() || !snapshot.seen.is_all_that_lives(),
            rebooted: is_rebooted(snapshot),
        };
        let states = signs
            .iter()
            .map(|(uid, sign)| (*uid, node.judge(policy, uid, sign)))
            .collect();
        Self {
            node,
            states,
            incomplete,
        }
    }

    /// Takes for deleted what is unknown and shows no sign of life, as an answer might show it to be.
    pub(super) fn with_the_quiet_unknown_deleted(mut self) -> Self {
        let signs = signs_of_life(self.node.snapshot);
        for (uid, state) in &mut self.states {
            let quiet = signs.get(uid).is_some_and(|signs| {
                signs.is_quiet() && !signs.states.contains(&ContainerState::Created)
            });
            let told = !is_never_told(self.node.snapshot, uid);
            if *state == PodKnowledge::Unknown && quiet && told {
                *state = PodKnowledge::Deleted;
            }
        }
        self
    }

    /// Returns how far the pod source is believed.
    pub fn source_state(&self) -> SourceState {
        match &self.node.snapshot.pods {
            Pods::Known(_) if self.incomplete.is_some() => SourceState::Incomplete,
            Pods::Known(_) => SourceState::Known,
            Pods::Unknown(why) => why.into(),
        }
    }

    /// Returns why the pod source is not believed; `None` if it is.
    pub fn source_doubt(&self) -> Option<String> {
        match (&self.node.snapshot.pods, self.incomplete) {
            (Pods::Unknown(why), _) => Some(why.to_string()),
            (Pods::Known(_), Some(uid)) => Some(format!(
                "the list is incomplete: pod {uid} lives here and is not in it"
            )),
            (Pods::Known(_), None) => None,
        }
    }

    /// Returns what is known of a pod; unknown if the runtime has nothing of it.
    pub fn get(&self, uid: &PodUid) -> PodKnowledge {
        self.states
            .get(uid)
            .copied()
            .unwrap_or(PodKnowledge::Unknown)
    }

    /// Returns what is known of a pod that the runtime may have nothing of; `youngest` is the latest
    /// that is known of it otherwise. An assumption is never made of a pod without any container.
    pub fn get_or_absent(&self, uid: &PodUid, youngest: Timestamp) -> PodKnowledge {
        if let Some(state) = self.states.get(uid) {
            return *state;
        }
        let signs = Signs {
            youngest: Some(youngest),
            ..Signs::default()
        };
        self.node.told(uid, &signs).unwrap_or(PodKnowledge::Unknown)
    }
}

/// Says whether the machine started a short while ago and no pod is up yet: the kubelet may not have all of its
/// pods by then.
pub(super) fn is_rebooted(snapshot: &Snapshot) -> bool {
    let is_up =
        |sandbox: &PodSandbox| sandbox.state == PodSandboxState::Ready && sandbox.pod.is_some();
    snapshot.uptime < AFTER_REBOOT && !snapshot.sandboxes.iter().any(is_up)
}

/// Of a static pod's end a list of mirrors never tells: nothing is missing that could come.
pub(super) fn is_never_told(snapshot: &Snapshot, uid: &PodUid) -> bool {
    let by_mirrors = matches!(&snapshot.pods, Pods::Known(list) if list.by_mirrors);
    by_mirrors && uid.is_static_shaped()
}

/// What the runtime shows of one pod.
#[derive(Debug, Default)]
struct Signs {
    has_sandbox: bool,
    ready_sandbox: bool,
    /// Where its sandboxes say that the kubelet has it from.
    config_sources: BTreeSet<ConfigSource>,
    /// Of its containers; one in state unknown may be running.
    states: BTreeSet<ContainerState>,
    /// Exited at a time that is not known.
    unknown_exit: bool,
    last_exit: Option<Timestamp>,
    /// The latest creation of anything of it.
    youngest: Option<Timestamp>,
}

impl Signs {
    fn lives(&self) -> bool {
        self.ready_sandbox || self.states.contains(&ContainerState::Running)
    }

    /// Nothing of it lives, nor may live unseen.
    fn is_quiet(&self) -> bool {
        !self.lives() && !self.states.contains(&ContainerState::Unknown)
    }
}

fn signs_of_life(snapshot: &Snapshot) -> BTreeMap<&PodUid, Signs> {
    let mut signs: BTreeMap<&PodUid, Signs> = BTreeMap::new();
    for sandbox in &snapshot.sandboxes {
        let Some(pod) = &sandbox.pod else { continue };
        let sign = signs.entry(&pod.uid).or_default();
        sign.has_sandbox = true;
        sign.ready_sandbox |= sandbox.state == PodSandboxState::Ready;
        sign.config_sources.extend(sandbox.config_source);
        sign.youngest = sign.youngest.max(Some(sandbox.created_at));
    }
    for container in &snapshot.containers {
        let Some(pod) = &container.pod else { continue };
        let sign = signs.entry(&pod.uid).or_default();
        sign.states.insert(container.state);
        sign.youngest = sign.youngest.max(Some(container.created_at));
        match container.finished_at {
            Some(at) => sign.last_exit = sign.last_exit.max(Some(at)),
            None => sign.unknown_exit |= container.state == ContainerState::Exited,
        }
    }
    for (uid, at) in &snapshot.last_exits {
        if let Some(sign) = signs.get_mut(uid) {
            sign.last_exit = sign.last_exit.max(Some(*at));
        }
    }
    signs
}

/// A pod with a ready sandbox, a running container or one in state unknown that the list does not have:
/// the list was partial, so absence from it means nothing for any pod.
fn missing_live_pod<'a>(
    snapshot: &Snapshot,
    policy: &Policy,
    signs: &BTreeMap<&'a PodUid, Signs>,
) -> Option<&'a PodUid> {
    let Pods::Known(list) = &snapshot.pods else {
        return None;
    };
    // The operator's word is that a container in state unknown is dead.
    let unknown_is_dead = policy.containers.include_unknown;
    let may_live = |sign: &Signs| sign.lives() || !sign.is_quiet() && !unknown_is_dead;
    signs
        .iter()
        .find(|(uid, sign)| may_live(sign) && !list.pods.contains_key(**uid))
        .map(|(uid, _)| *uid)
}

/// What holds for every pod of a node.
#[derive(Debug)]
struct Node<'a> {
    snapshot: &'a Snapshot,
    settle: Duration,
    /// The list may lack a pod that lives.
    unproven: bool,
    /// The machine started a short while ago, and no pod is up yet.
    rebooted: bool,
}

impl Node<'_> {
    fn judge(&self, policy: &Policy, uid: &PodUid, signs: &Signs) -> PodKnowledge {
        match self.told(uid, signs) {
            Some(PodKnowledge::Absent) | None if self.may_assume_finished(policy, uid, signs) => {
                PodKnowledge::Assumed
            }
            Some(state) => state,
            None => PodKnowledge::Unknown,
        }
    }

    /// What the list tells of a pod; `None` if nothing that can be built on.
    fn told(&self, uid: &PodUid, signs: &Signs) -> Option<PodKnowledge> {
        let Pods::Known(list) = &self.snapshot.pods else {
            return None;
        };
        match list.pods.get(uid) {
            // The kubelet runs a finished static pod again at its next start.
            Some(pod) if pod.is_static() || self.is_static(uid, signs) => {
                Some(PodKnowledge::Active)
            }
            // Even a partial list is right about what it names.
            Some(pod) if !pod.finished => Some(PodKnowledge::Active),
            Some(_) if signs.lives() && !self.unproven => Some(PodKnowledge::Active),
            // Quiet only if nothing of it is missing.
            Some(_) if signs.is_quiet() && self.snapshot.seen.is_all() && !self.unproven => {
                Some(PodKnowledge::Terminated)
            }
            None if self.proves_absence(list, uid, signs) => Some(self.by_absence(uid)),
            Some(_) | None => None,
        }
    }

    /// The list would have the pod if it existed.
    fn proves_absence(&self, list: &PodList, uid: &PodUid, signs: &Signs) -> bool {
        let vouches = match self.config_sources(uid, signs).as_slice() {
            [source] => list.vouches_for(*source),
            // Its sandboxes contradict each other, or were not seen.
            _ => false,
        };
        vouches && !self.unproven && !self.rebooted && !outlives(self.snapshot, signs, list)
    }

    /// One answer can be short: a kubelet that has just started adds its pods one by one.
    fn by_absence(&self, uid: &PodUid) -> PodKnowledge {
        let history = self.snapshot.pod_history.get(uid);
        let since = history.and_then(|history| history.absent_since);
        let is_old = |since| at_least(self.snapshot.age(since), self.settle);
        if self.settle.is_zero() || since.is_some_and(is_old) {
            PodKnowledge::Deleted
        } else {
            PodKnowledge::Absent
        }
    }

    /// Where the kubelet has the pod from: as its sandboxes say, now or earlier; by the UID's shape only
    /// if none was ever seen to say it. A manifest may set the UID of its pod.
    fn config_sources(&self, uid: &PodUid, signs: &Signs) -> Vec<ConfigSource> {
        let remembered = self.snapshot.pod_history.get(uid);
        let remembered = remembered.and_then(|history| history.config_source);
        let mut sources = signs.config_sources.clone();
        sources.extend(remembered);
        // A sandbox that was not seen may say otherwise.
        let seen = self.snapshot.seen.sandboxes == Coverage::Whole || signs.has_sandbox;
        if sources.is_empty() && seen {
            sources.insert(ConfigSource::of_shape(uid));
        }
        sources.into_iter().collect()
    }

    fn is_static(&self, uid: &PodUid, signs: &Signs) -> bool {
        match self.config_sources(uid, signs).as_slice() {
            [] => uid.is_static_shaped(),
            sources => sources != [ConfigSource::Api],
        }
    }

    fn may_assume_finished(&self, policy: &Policy, uid: &PodUid, signs: &Signs) -> bool {
        let snapshot = self.snapshot;
        let Some(after) = policy.assume_finished_after else {
            return false;
        };
        // What is missing of it may be alive, or have exited just now.
        if !snapshot.seen.is_all() {
            return false;
        }
        // A source that is about to answer is better than an assumption.
        if snapshot.pods == Pods::Unknown(PodsUnknown::Settling) || self.is_static(uid, signs) {
            return false;
        }
        let starting = signs.states.contains(&ContainerState::Created);
        let quiet = signs.is_quiet() && !starting && !signs.unknown_exit;
        let Ok(after) = SignedDuration::try_from(after) else {
            return false;
        };
        quiet && signs.last_exit.is_some_and(|at| snapshot.age(at) > after)
    }
}

/// Something of the pod is younger than the list, or may be: the pod may have been born since, or, if
/// it is a static one, have come back under its old UID.
fn outlives(snapshot: &Snapshot, signs: &Signs, list: &PodList) -> bool {
    list.as_of.is_some_and(|as_of| {
        !snapshot.seen.is_all() || signs.youngest.is_none_or(|youngest| youngest >= as_of)
    })
}
