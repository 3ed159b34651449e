//! What may be believed about each pod: the pod source's answer, compared with what the runtime shows.
//!
//! Never concludes from the runtime alone that a pod finished, except with the operator's setting for it
//! (`assume_finished_after`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::index::SnapshotIndex;
use super::{PodDoubt, PodKnowledge, Policy, at_least};
use crate::model::{
    ConfigSource, ContainerState, Coverage, PodHistory, PodList, PodSandbox, PodSandboxState,
    PodUid, Pods, PodsUnknown, Snapshot, SourcePod, is_static_shaped, labelled,
};

/// For this long after the machine's start, a list alone makes no pod deleted while no sandbox is ready: the
/// kubelet is only starting its pods.
pub(super) const AFTER_REBOOT: Duration = Duration::from_secs(15 * 60);

/// All that verdicts rest on: the policy, the snapshot's records, and what is known of each pod that the runtime has
/// something of.
#[derive(Clone, Debug)]
pub struct Knowledge<'a> {
    pub(super) policy: &'a Policy,
    /// The numbers of the snapshot's records.
    pub(super) index: Arc<SnapshotIndex<'a>>,
    /// A pod that lives and that the list lacks.
    missing_live_pod: Option<&'a str>,
    /// The machine started a short while ago, and no pod is up yet.
    rebooted: bool,
    /// The sources for which the list can show that a pod is absent.
    vouched: BTreeSet<ConfigSource>,
    pods: Arc<[PodSigns<'a>]>,
    /// By the pods' numbers: most pods have several records.
    states: Vec<PodKnowledge>,
    /// Likewise: the pod has been finished so long that the kubelet surely knows it.
    quiet: Vec<bool>,
}

labelled! {
    /// How far the pod source is believed.
    pub enum SourceState {
        /// There is none.
        None,
        /// It has not answered for long enough.
        Settling,
        /// It failed.
        Failed,
        /// Its list lacks a pod that lives here: it proves nothing.
        Incomplete,
        /// Its list is believed.
        Known,
    }
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

impl From<&Pods> for SourceState {
    /// Without the runtime's lists, with which the answer could be compared.
    fn from(pods: &Pods) -> Self {
        match pods {
            Pods::Known(_) => Self::Known,
            Pods::Unknown(why) => why.into(),
        }
    }
}

impl<'a> Knowledge<'a> {
    /// Judges every pod of the snapshot.
    pub fn of(snapshot: &'a Snapshot, policy: &'a Policy) -> Self {
        let index = Arc::new(SnapshotIndex::of(snapshot));
        let pods: Arc<[PodSigns<'_>]> = pods(&index).into();
        let mut knowledge = Self {
            policy,
            index,
            missing_live_pod: missing_live_pod(snapshot, policy, &pods),
            rebooted: is_rebooted(snapshot),
            vouched: vouched(snapshot),
            pods,
            states: Vec::new(),
            quiet: Vec::new(),
        };
        let pods = knowledge.pods.iter();
        knowledge.states = pods.map(|pod| knowledge.judge(pod)).collect();
        let pods = knowledge.pods.iter().zip(&knowledge.states);
        knowledge.quiet = pods
            .map(|(pod, state)| knowledge.is_end_known(pod, *state))
            .collect();
        knowledge
    }

    /// Returns the same with unknown pods without a sign of life as deleted, as an answer might show them to be. Both share
    /// what they rest on, which is most of their memory.
    pub(super) fn with_the_still_unknown_deleted(&self) -> Self {
        let mut supposed = self.clone();
        for (pod, state) in self.pods.iter().zip(&mut supposed.states) {
            let can_be_listed = !can_never_be_listed(self.index.snapshot, pod.uid);
            let still = pod.is_still() && !pod.starts;
            if *state == PodKnowledge::Unknown && still && can_be_listed {
                *state = PodKnowledge::Deleted;
            }
        }
        supposed
    }

    /// Returns how far the pod source is believed.
    pub fn source_state(&self) -> SourceState {
        match &self.index.snapshot.pods {
            Pods::Known(_) if self.missing_live_pod.is_some() => SourceState::Incomplete,
            Pods::Known(_) => SourceState::Known,
            Pods::Unknown(why) => why.into(),
        }
    }

    /// Returns why the pod source is not believed; `None` if it is.
    pub fn source_doubt(&self) -> Option<String> {
        match (&self.index.snapshot.pods, self.missing_live_pod) {
            (Pods::Unknown(why), _) => Some(why.to_string()),
            (Pods::Known(_), Some(uid)) => Some(format!(
                "the list is incomplete: pod {uid} lives here and is not in it"
            )),
            (Pods::Known(_), None) => None,
        }
    }

    /// Returns what is known of a pod; unknown if the runtime has nothing of it.
    pub fn get(&self, uid: &PodUid) -> PodKnowledge {
        self.at(self.index.pod(uid))
    }

    /// Returns what is known of the pod with this number; unknown without a pod.
    pub(super) fn at(&self, pod: Option<usize>) -> PodKnowledge {
        pod.and_then(|pod| self.states.get(pod).copied())
            .unwrap_or(PodKnowledge::Unknown)
    }

    /// Says whether the kubelet surely knows that the pod with this number has ended; not without a pod.
    pub(super) fn is_quiet(&self, pod: Option<usize>) -> bool {
        let quiet = pod.and_then(|pod| self.quiet.get(pod).copied());
        quiet.unwrap_or_default()
    }

    /// Returns what is known of a pod that the runtime may not have; `youngest` is the time of its latest
    /// known object. A pod without any container is never assumed finished.
    pub fn get_or_absent(&self, uid: &PodUid, youngest: Timestamp) -> PodKnowledge {
        if self.index.pod(uid).is_some() {
            return self.get(uid);
        }
        let told = self.by_list(&self.absent(uid, youngest));
        told.unwrap_or(PodKnowledge::Unknown)
    }

    /// Returns why the pod list proves nothing about a pod; `None` if it does. `youngest` is the time of its latest
    /// known object if the runtime has nothing of it.
    pub(super) fn doubt(&self, uid: &PodUid, youngest: Timestamp) -> Option<PodDoubt> {
        match self.index.pod(uid) {
            Some(pod) => self.doubt_at(pod),
            None => self.by_list(&self.absent(uid, youngest)).err(),
        }
    }

    /// The same for the pod with this number.
    pub(super) fn doubt_at(&self, pod: usize) -> Option<PodDoubt> {
        self.by_list(self.pods.get(pod)?).err()
    }

    /// Says whether `assume_finished_after` can be short enough for the pod with this number to count as finished; not
    /// without a pod.
    pub(super) fn is_assumable(&self, pod: Option<usize>) -> bool {
        let pod = pod.and_then(|pod| self.pods.get(pod));
        pod.is_some_and(|pod| self.may_be_assumed(pod))
    }

    /// Returns what is known of a pod of which the runtime has nothing.
    fn absent<'u>(&'u self, uid: &'u PodUid, youngest: Timestamp) -> PodSigns<'u> {
        let snapshot = self.index.snapshot;
        let listed = snapshot.pods.known();
        let listed = listed.and_then(|list| list.pods.get(uid));
        let history = snapshot.pod_history.get(uid);
        let mut pod = PodSigns::new(uid.as_str(), listed, history);
        pod.youngest = Some(youngest);
        pod.last_exit = snapshot.last_exits.get(uid).copied();
        pod
    }
}

/// Says whether the machine started recently and no pod is up yet: the kubelet may not have all of its pods.
pub(super) fn is_rebooted(snapshot: &Snapshot) -> bool {
    let is_up =
        |sandbox: &PodSandbox| sandbox.state == PodSandboxState::Ready && sandbox.pod.is_some();
    snapshot.uptime < AFTER_REBOOT && !snapshot.sandboxes.iter().any(is_up)
}

/// A list of mirrors never shows the end of a static pod: waiting does not help.
pub(super) fn can_never_be_listed(snapshot: &Snapshot, uid: &str) -> bool {
    let by_mirrors = matches!(&snapshot.pods, Pods::Known(list) if list.by_mirrors);
    by_mirrors && is_static_shaped(uid)
}

/// One pod: what the runtime shows of it, and what others say.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and all can be true"
)]
pub(super) struct PodSigns<'a> {
    pub(super) uid: &'a str,
    /// Its entry in the source's list.
    listed: Option<SourcePod>,
    pub(super) history: Option<&'a PodHistory>,
    has_sandbox: bool,
    ready_sandbox: bool,
    source: SandboxSource,
    /// One of its containers runs.
    runs: bool,
    /// The state of one container is unknown: it may run.
    may_run: bool,
    /// One is created and not started.
    starts: bool,
    /// One exited at an unknown time.
    pub(super) unknown_exit: bool,
    pub(super) last_exit: Option<Timestamp>,
    /// The latest creation of anything of it.
    youngest: Option<Timestamp>,
}

/// The sources that its sandboxes name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SandboxSource {
    #[default]
    None,
    One(ConfigSource),
    /// They contradict each other.
    Several,
}

impl SandboxSource {
    fn and(self, said: Option<ConfigSource>) -> Self {
        match (self, said) {
            (told, None) => told,
            (Self::None, Some(source)) => Self::One(source),
            (Self::One(one), Some(source)) if one == source => self,
            (Self::One(_) | Self::Several, Some(_)) => Self::Several,
        }
    }
}

impl<'a> PodSigns<'a> {
    fn new(uid: &'a str, listed: Option<&SourcePod>, history: Option<&'a PodHistory>) -> Self {
        Self {
            uid,
            listed: listed.copied(),
            history,
            source: SandboxSource::None.and(history.and_then(|it| it.config_source)),
            ..Self::default()
        }
    }

    fn lives(&self) -> bool {
        self.ready_sandbox || self.runs
    }

    /// Nothing of it runs, nor may run unseen.
    fn is_still(&self) -> bool {
        !self.lives() && !self.may_run
    }
}

/// Collects what is known of each pod, in the order of their numbers.
fn pods<'a>(index: &SnapshotIndex<'a>) -> Vec<PodSigns<'a>> {
    let snapshot = index.snapshot;
    let listed = match &snapshot.pods {
        Pods::Known(list) => index.beside_pods(&list.pods),
        Pods::Unknown(_) => vec![None; index.uids().len()],
    };
    let histories = index.beside_pods(&snapshot.pod_history);
    let last_exits = index.beside_pods(&snapshot.last_exits);
    let told = listed.into_iter().zip(histories).zip(last_exits);
    let pods = index.uids().zip(told);
    let mut pods: Vec<PodSigns<'_>> = pods
        .map(|(uid, ((listed, history), last_exit))| PodSigns {
            last_exit: last_exit.copied(),
            ..PodSigns::new(uid, listed, history)
        })
        .collect();
    for (place, sandbox) in snapshot.sandboxes.iter().enumerate() {
        let Some(pod) = index.pod_of_sandbox(place).and_then(|at| pods.get_mut(at)) else {
            continue;
        };
        pod.has_sandbox = true;
        pod.ready_sandbox |= sandbox.state == PodSandboxState::Ready;
        pod.source = pod.source.and(sandbox.config_source);
        pod.youngest = pod.youngest.max(Some(sandbox.created_at));
    }
    for (place, container) in snapshot.containers.iter().enumerate() {
        let Some(pod) = index
            .pod_of_container(place)
            .and_then(|at| pods.get_mut(at))
        else {
            continue;
        };
        match container.state {
            ContainerState::Running => pod.runs = true,
            ContainerState::Unknown => pod.may_run = true,
            ContainerState::Created => pod.starts = true,
            ContainerState::Exited => pod.unknown_exit |= container.finished_at.is_none(),
        }
        pod.youngest = pod.youngest.max(Some(container.created_at));
        pod.last_exit = pod.last_exit.max(container.finished_at);
    }
    pods
}

/// Finds a pod with a ready sandbox, a running container or one in state unknown that the list lacks: the
/// list is partial, so absence from it proves nothing for any pod.
fn missing_live_pod<'a>(
    snapshot: &Snapshot,
    policy: &Policy,
    pods: &[PodSigns<'a>],
) -> Option<&'a str> {
    if matches!(snapshot.pods, Pods::Unknown(_)) {
        return None;
    }
    // The operator declares that a container in state unknown is dead.
    let unknown_is_dead = policy.containers.include_unknown;
    let may_live = |pod: &PodSigns<'_>| pod.lives() || pod.may_run && !unknown_is_dead;
    pods.iter()
        .find(|pod| may_live(pod) && pod.listed.is_none())
        .map(|pod| pod.uid)
}

/// Finds the sources for which the list can show that a pod is absent.
fn vouched(snapshot: &Snapshot) -> BTreeSet<ConfigSource> {
    let Pods::Known(list) = &snapshot.pods else {
        return BTreeSet::new();
    };
    let sources = ConfigSource::ALL.into_iter();
    sources.filter(|it| list.vouches_for(*it)).collect()
}

/// The judgement on one pod.
impl Knowledge<'_> {
    fn judge(&self, pod: &PodSigns<'_>) -> PodKnowledge {
        match self.by_list(pod) {
            Ok(PodKnowledge::Absent) | Err(_) if self.may_assume_finished(pod) => {
                PodKnowledge::Assumed
            }
            Ok(state) => state,
            Err(_) => PodKnowledge::Unknown,
        }
    }

    /// Returns what the list shows of a pod, or why it proves nothing.
    fn by_list(&self, pod: &PodSigns<'_>) -> Result<PodKnowledge, PodDoubt> {
        let snapshot = self.index.snapshot;
        let list = snapshot.pods.known().ok_or(PodDoubt::Source)?;
        match pod.listed {
            // The kubelet runs a finished static pod again at its next start.
            Some(listed) if listed.is_static() || self.is_static(pod) => Ok(PodKnowledge::Active),
            // Even a partial list is right about the pods that it names.
            Some(listed) if !listed.finished => Ok(PodKnowledge::Active),
            Some(_) => {
                self.require_living_pods()?;
                if pod.lives() {
                    Ok(PodKnowledge::Active)
                } else if pod.may_run {
                    Err(PodDoubt::MayRun)
                } else if snapshot.seen.is_all() {
                    Ok(PodKnowledge::Terminated)
                } else {
                    // Quiet only if none of its records is missing.
                    Err(PodDoubt::UnseenRecords)
                }
            }
            None => {
                self.require_entry(list, pod)?;
                Ok(self.by_absence(pod))
            }
        }
    }

    /// Refuses a list that may lack a pod that lives.
    fn require_living_pods(&self) -> Result<(), PodDoubt> {
        if self.missing_live_pod.is_some() {
            return Err(PodDoubt::Source);
        }
        if !self.index.snapshot.seen.is_all_that_lives() {
            return Err(PodDoubt::UnseenPods);
        }
        Ok(())
    }

    /// Refuses a list that might lack the pod although it existed.
    fn require_entry(&self, list: &PodList, pod: &PodSigns<'_>) -> Result<(), PodDoubt> {
        self.require_living_pods()?;
        match self.source(pod) {
            SandboxSource::One(source) if self.vouched.contains(&source) => {}
            // Its sandboxes contradict each other, or were not seen.
            SandboxSource::None
            | SandboxSource::Several
            | SandboxSource::One(ConfigSource::Other) => {
                return Err(PodDoubt::Origin);
            }
            SandboxSource::One(ConfigSource::File | ConfigSource::Http) if list.by_mirrors => {
                return Err(PodDoubt::MirrorsOnly);
            }
            SandboxSource::One(ConfigSource::Api | ConfigSource::File | ConfigSource::Http) => {
                return Err(PodDoubt::NoOtherPod);
            }
        }
        if self.rebooted {
            return Err(PodDoubt::Rebooted);
        }
        let Some(as_of) = list.as_of else {
            return Ok(());
        };
        if !self.index.snapshot.has_all_of(pod.uid) {
            return Err(PodDoubt::UnseenRecords);
        }
        if may_outlive(pod, as_of) {
            return Err(PodDoubt::OlderList);
        }
        Ok(())
    }

    /// One answer can be short: a kubelet that has just started adds its pods one by one.
    fn by_absence(&self, pod: &PodSigns<'_>) -> PodKnowledge {
        let since = pod.history.and_then(|history| history.absent_since);
        let settle = self.policy.pods.settle;
        if settle.is_zero() || self.is_past(since, settle) {
            PodKnowledge::Deleted
        } else {
            PodKnowledge::Absent
        }
    }

    /// Says whether this time is known, and at least so long ago.
    pub(super) fn is_past(&self, since: Option<Timestamp>, long: Duration) -> bool {
        since.is_some_and(|since| at_least(self.index.snapshot.age(since), long))
    }

    /// Returns the pod's source at the kubelet, as its sandboxes say, now or earlier; by the UID's format
    /// only if no sandbox ever said it. A manifest may set the UID of its pod.
    fn source(&self, pod: &PodSigns<'_>) -> SandboxSource {
        // An unseen sandbox may say otherwise.
        let seen = self.index.snapshot.seen.sandboxes == Coverage::Whole || pod.has_sandbox;
        if pod.source != SandboxSource::None || !seen {
            return pod.source;
        }
        SandboxSource::One(ConfigSource::of_shape(pod.uid))
    }

    fn is_static(&self, pod: &PodSigns<'_>) -> bool {
        match self.source(pod) {
            SandboxSource::One(source) => source != ConfigSource::Api,
            SandboxSource::Several => true,
            SandboxSource::None => is_static_shaped(pod.uid),
        }
    }

    fn may_assume_finished(&self, pod: &PodSigns<'_>) -> bool {
        let after = self.policy.assume_finished_after;
        let after = after.map(SignedDuration::try_from);
        let (Some(Ok(after)), true) = (after, self.may_be_assumed(pod)) else {
            return false;
        };
        let age = |at| self.index.snapshot.age(at);
        pod.last_exit.is_some_and(|at| age(at) > after)
    }

    /// Says whether the pod may count as finished some time after its last exit.
    fn may_be_assumed(&self, pod: &PodSigns<'_>) -> bool {
        let snapshot = self.index.snapshot;
        // A missing record may be alive, or have exited just now.
        if !snapshot.seen.is_all() {
            return false;
        }
        // A source that is about to answer is better than an assumption.
        if snapshot.pods == Pods::Unknown(PodsUnknown::Settling) || self.is_static(pod) {
            return false;
        }
        pod.is_still() && !pod.starts && !pod.unknown_exit && pod.last_exit.is_some()
    }
}

/// Says whether something of the pod is younger than a list of that time or exited after it, or may have: the pod may
/// have been created since, may have lived when the list lacked it or, if static, may have come back under its old UID.
fn may_outlive(pod: &PodSigns<'_>, as_of: Timestamp) -> bool {
    let latest = pod.youngest.max(pod.last_exit);
    pod.unknown_exit || latest.is_none_or(|latest| latest >= as_of)
}
