//! The snapshot as the rules read it: each record and pod with the facts that the rules need, found in one
//! pass. Shares no rule with the planner; both find ids with `model::Numbering`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::id_index::IdIndex;
use super::superseded;
use crate::gc::{Expected, Policy, Removal};
use crate::model::{
    ConfigSource, Container, ContainerState, Numbering, PodHistory, PodSandbox, PodSandboxState,
    PodUid, Pods, RemoveReason, Snapshot, SourcePod, Target,
};

/// The node of a plan.
pub(super) struct CheckedNode<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) containers: Vec<ContainerRow<'a>>,
    container_ids: IdIndex<'a>,
    pub(super) sandboxes: Vec<SandboxRow<'a>>,
    /// For each removal.
    pub(super) naming: Vec<RecordNaming>,
    uids: Numbering<'a>,
    /// Every pod of which the runtime has something.
    pub(super) pods: Vec<CheckedPod<'a>>,
    /// The pods of remaining containers without a sandbox id; `None`: one without a pod.
    pub(super) astray: BTreeSet<Option<usize>>,
    /// The sources for which the list can show that a pod is absent.
    pub(super) prove_absence: BTreeSet<ConfigSource>,
    /// The list has every living pod; false without a list.
    pub(super) whole: bool,
    /// A pod is up, or the machine has been up for a quarter of an hour.
    pub(super) has_come_up: bool,
    /// By the pods' numbers: judged once, as most pods have several records.
    ends: Vec<PodEnd>,
}

/// How a pod has ended.
#[derive(Clone, Copy, Default)]
pub(super) struct PodEnd {
    pub(super) deleted: bool,
    pub(super) finished: bool,
}

/// A container with the facts that the rules need.
pub(super) struct ContainerRow<'a> {
    pub(super) row: &'a Container,
    pub(super) facts: RowFacts,
    /// The position of its sandbox.
    pub(super) sandbox: Option<usize>,
}

/// A sandbox with the facts that the rules need.
pub(super) struct SandboxRow<'a> {
    pub(super) row: &'a PodSandbox,
    pub(super) facts: RowFacts,
    /// Number of remaining containers that name it.
    pub(super) staying: usize,
}

/// Facts that the rules need of containers and of sandboxes.
pub(super) struct RowFacts {
    pub(super) pod: Option<usize>,
    /// The removal that plans it, the first if there are several.
    pub(super) claim: Option<Claim>,
    /// Another record has the same id, and may contradict it.
    pub(super) id_is_shared: bool,
    /// A record of its pod (a container's: of its name, too) has a higher attempt, and one was created later (maybe
    /// another).
    pub(super) superseded: bool,
}

impl RowFacts {
    fn new(pod: Option<usize>, id_is_shared: bool, superseded: bool) -> Self {
        Self {
            pod,
            claim: None,
            id_is_shared,
            superseded,
        }
    }

    pub(super) fn stays(&self) -> bool {
        self.claim.is_none()
    }

    /// Notes that the removal at this place plans the record.
    fn claim(&mut self, place: usize, removal: &Removal) -> RecordNaming {
        if self.claim.is_some() {
            return RecordNaming::Again;
        }
        self.claim = Some(Claim::of(place, removal));
        RecordNaming::First
    }
}

/// What a removal says of its record. Kept beside the record: the rules visit records in the order in which memory holds
/// them.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    /// The removal's place in the plan.
    pub(super) place: usize,
    pub(super) created_at: Timestamp,
    /// A container's.
    pub(super) state: Option<ContainerState>,
    pub(super) reason: RemoveReason,
}

impl Claim {
    fn of(place: usize, removal: &Removal) -> Self {
        Self {
            place,
            created_at: removal.subject.created_at,
            state: match removal.expected {
                Expected::Container(state) => Some(state),
                Expected::Sandbox
                | Expected::Image { .. }
                | Expected::PodLogDir { .. }
                | Expected::LogLink(_)
                | Expected::ContainerLog(_) => None,
            },
            reason: removal.reason,
        }
    }
}

/// Whether a removal names a record of the node.
#[derive(Clone, Copy)]
pub(super) enum RecordNaming {
    /// It is the first one that names this record.
    First,
    /// A removal before it names this record.
    Again,
    /// It names none: a log, an image, or what is not on the node.
    NoRecord,
}

/// The object of a removal.
#[derive(Clone, Copy)]
pub(super) enum PlannedRow<'n, 'a> {
    Container(&'n ContainerRow<'a>),
    Sandbox(&'n SandboxRow<'a>),
}

impl PlannedRow<'_, '_> {
    pub(super) fn facts(&self) -> &RowFacts {
        match self {
            Self::Container(row) => &row.facts,
            Self::Sandbox(row) => &row.facts,
        }
    }
}

/// A pod with the facts that the rules need.
#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and all can be true"
)]
pub(super) struct CheckedPod<'a> {
    pub(super) uid: &'a str,
    pub(super) listed: Option<SourcePod>,
    pub(super) history: Option<&'a PodHistory>,
    /// One of its sandboxes is ready, or one of its containers runs.
    pub(super) alive: bool,
    /// A container is in state unknown: it may run.
    pub(super) doubtful: bool,
    pub(super) has_sandbox: bool,
    /// One of its containers names a sandbox that was not seen.
    pub(super) lacks_sandbox: bool,
    pub(super) said: NamedSource,
    pub(super) youngest: Option<Timestamp>,
    /// Every container of it has exited.
    pub(super) all_exited: bool,
    /// One has exited at an unknown time.
    pub(super) exit_unknown: bool,
    /// The last known exit, also of removed records.
    pub(super) last_exit: Option<Timestamp>,
}

/// The source that a pod's sandboxes name, now or earlier.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum NamedSource {
    #[default]
    Nothing,
    One(ConfigSource),
    /// They contradict each other.
    Several,
}

impl NamedSource {
    fn add(&mut self, source: Option<ConfigSource>) {
        let Some(source) = source else { return };
        *self = match *self {
            Self::Nothing => Self::One(source),
            Self::One(other) if other == source => Self::One(source),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

impl<'a> CheckedPod<'a> {
    fn new(
        uid: &'a str,
        listed: Option<&'a SourcePod>,
        history: Option<&'a PodHistory>,
        last_exit: Option<Timestamp>,
    ) -> Self {
        let mut pod = Self {
            uid,
            listed: listed.copied(),
            history,
            all_exited: true,
            last_exit,
            ..Self::default()
        };
        pod.said
            .add(history.and_then(|history| history.config_source));
        pod
    }

    fn add_container(&mut self, container: &ContainerRow<'_>) {
        let row = container.row;
        self.lacks_sandbox |= container.sandbox.is_none();
        let exited = row.state == ContainerState::Exited;
        self.alive |= row.state == ContainerState::Running;
        self.doubtful |= row.state == ContainerState::Unknown;
        self.all_exited &= exited;
        self.exit_unknown |= exited && row.finished_at.is_none();
        self.last_exit = self.last_exit.max(row.finished_at);
        self.youngest = self.youngest.max(Some(row.created_at));
    }

    fn add_sandbox(&mut self, row: &PodSandbox) {
        self.has_sandbox = true;
        self.alive |= row.state == PodSandboxState::Ready;
        self.said.add(row.config_source);
        self.youngest = self.youngest.max(Some(row.created_at));
    }
}

impl<'a> CheckedNode<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, policy: &'a Policy, removals: &'a [Removal]) -> Self {
        let (rows, sandbox_rows) = (snapshot.containers.iter(), snapshot.sandboxes.iter());
        let count = rows.len();
        let of_containers = rows.clone().map(|it| it.pod.as_deref());
        let of_sandboxes = sandbox_rows.clone().map(|it| it.pod.as_deref());
        let uids = of_containers.chain(of_sandboxes);
        let uids = Numbering::of_shared(uids, |pod| pod.uid.as_str());
        // First, because it needs much memory for a short time.
        let superseded_containers = superseded::containers(snapshot, &uids);
        let superseded_sandboxes = superseded::sandboxes(snapshot, &uids);
        let container_ids = IdIndex::of_containers(snapshot, removals);
        let sandbox_ids = IdIndex::of_sandboxes(snapshot, removals);
        let of_containers = rows.zip(superseded_containers).enumerate();
        let mut containers: Vec<_> = of_containers
            .map(|(place, (row, superseded))| ContainerRow {
                row,
                facts: RowFacts::new(uids.at(place), container_ids.is_shared(place), superseded),
                sandbox: sandbox_ids.asked(place),
            })
            .collect();
        let of_sandboxes = sandbox_rows.zip(superseded_sandboxes).enumerate();
        let mut sandboxes: Vec<_> = of_sandboxes
            .map(|(place, (row, superseded))| {
                let (pod, shared) = (uids.at(count + place), sandbox_ids.is_shared(place));
                SandboxRow {
                    row,
                    facts: RowFacts::new(pod, shared, superseded),
                    staying: 0,
                }
            })
            .collect();
        let naming = removals.iter().enumerate().map(|(place, removal)| {
            let record = match removal.subject.target {
                Target::Containers => {
                    let row = container_ids.asked(place);
                    row.and_then(|row| Some(&mut containers.get_mut(row)?.facts))
                }
                Target::Sandboxes => {
                    let row = sandbox_ids.asked(count + place);
                    row.and_then(|row| Some(&mut sandboxes.get_mut(row)?.facts))
                }
                Target::Logs | Target::Images => None,
            };
            record.map_or(RecordNaming::NoRecord, |facts| facts.claim(place, removal))
        });
        let naming = naming.collect();
        let astray = note_staying(&containers, &mut sandboxes);
        let pods = pods(snapshot, &uids, &containers, &sandboxes);
        let mut node = Self {
            snapshot,
            policy,
            whole: list_is_whole(snapshot, policy, &pods),
            has_come_up: has_come_up(snapshot),
            prove_absence: sources_that_prove_absence(snapshot),
            containers,
            container_ids,
            sandboxes,
            naming,
            uids,
            pods,
            astray,
            ends: Vec::new(),
        };
        // Last, because all else says how a pod has ended.
        let ends = node.pods.iter().map(|pod| PodEnd {
            deleted: node.is_deleted(pod),
            finished: node.is_finished(pod),
        });
        node.ends = ends.collect();
        node
    }

    pub(super) fn container(&self, id: &str) -> Option<&ContainerRow<'a>> {
        self.containers.get(self.container_ids.find(id)?)
    }

    /// Returns the records that are planned, each with its first removal.
    pub(super) fn planned(&self) -> impl Iterator<Item = (Claim, PlannedRow<'_, 'a>)> {
        let containers = self.containers.iter().map(PlannedRow::Container);
        let sandboxes = self.sandboxes.iter().map(PlannedRow::Sandbox);
        let all = containers.chain(sandboxes);
        all.filter_map(|record| Some((record.facts().claim?, record)))
    }

    /// Says how the pod with this number has ended; not at all without a pod.
    pub(super) fn end(&self, pod: Option<usize>) -> PodEnd {
        let end = pod.and_then(|pod| self.ends.get(pod));
        end.copied().unwrap_or_default()
    }

    /// Says whether the runtime has something of this pod.
    pub(super) fn has_pod(&self, uid: &PodUid) -> bool {
        self.uids.find(uid.as_str()).is_some()
    }

    /// Returns the facts of a pod of which the runtime has nothing.
    pub(super) fn unseen_pod<'b>(&self, uid: &'b PodUid) -> CheckedPod<'b>
    where
        'a: 'b,
    {
        let snapshot = self.snapshot;
        let listed = snapshot.pods.known();
        let listed = listed.and_then(|list| list.pods.get(uid));
        let last_exit = snapshot.last_exits.get(uid).copied();
        let history = snapshot.pod_history.get(uid);
        CheckedPod::new(uid.as_str(), listed, history, last_exit)
    }

    pub(super) fn older_than(&self, then: Timestamp, minimum: Duration) -> bool {
        let age = self.snapshot.taken_at.as_nanosecond() - then.as_nanosecond();
        u128::try_from(age).is_ok_and(|age| age >= minimum.as_nanos())
    }
}

/// Counts the remaining containers of each sandbox; returns the pods of those without a sandbox id.
fn note_staying(
    containers: &[ContainerRow<'_>],
    sandboxes: &mut [SandboxRow<'_>],
) -> BTreeSet<Option<usize>> {
    let mut astray = BTreeSet::new();
    for container in containers.iter().filter(|it| it.facts.stays()) {
        if container.row.sandbox_id.is_stand_in() {
            astray.insert(container.facts.pod);
        }
        let sandbox = container.sandbox;
        if let Some(sandbox) = sandbox.and_then(|place| sandboxes.get_mut(place)) {
            sandbox.staying += 1;
        }
    }
    astray
}

/// Gathers every pod of which the runtime has something, by its number.
fn pods<'a>(
    snapshot: &'a Snapshot,
    uids: &Numbering<'a>,
    containers: &[ContainerRow<'_>],
    sandboxes: &[SandboxRow<'_>],
) -> Vec<CheckedPod<'a>> {
    let listed = match &snapshot.pods {
        Pods::Known(list) => beside(uids, &list.pods),
        Pods::Unknown(_) => vec![None; uids.texts().len()],
    };
    let histories = beside(uids, &snapshot.pod_history);
    let last_exits = beside(uids, &snapshot.last_exits);
    let told = listed.into_iter().zip(histories).zip(last_exits);
    let pods = uids.texts().zip(told);
    let mut pods: Vec<_> = pods
        .map(|(uid, ((listed, history), exit))| {
            CheckedPod::new(uid, listed, history, exit.copied())
        })
        .collect();
    for container in containers {
        if let Some(pod) = container.facts.pod.and_then(|number| pods.get_mut(number)) {
            pod.add_container(container);
        }
    }
    for sandbox in sandboxes {
        if let Some(pod) = sandbox.facts.pod.and_then(|number| pods.get_mut(number)) {
            pod.add_sandbox(sandbox.row);
        }
    }
    pods
}

fn beside<'a, T>(uids: &Numbering<'a>, map: &'a BTreeMap<PodUid, T>) -> Vec<Option<&'a T>> {
    uids.beside(map.iter().map(|(uid, it)| (uid.as_str(), it)))
}

/// The list has every pod of which something runs here, or may.
fn list_is_whole(snapshot: &Snapshot, policy: &Policy, pods: &[CheckedPod<'_>]) -> bool {
    let doubts = !policy.containers.include_unknown;
    let may_live = |pod: &&CheckedPod<'_>| pod.alive || doubts && pod.doubtful;
    let mut living = pods.iter().filter(may_live);
    matches!(snapshot.pods, Pods::Known(_))
        && snapshot.seen.is_all_that_lives()
        && living.all(|pod| pod.listed.is_some())
}

/// A pod is up, or the machine has been up for a quarter of an hour.
fn has_come_up(snapshot: &Snapshot) -> bool {
    let is_up = |it: &PodSandbox| it.state == PodSandboxState::Ready && it.pod.is_some();
    snapshot.uptime >= Duration::from_secs(900) || snapshot.sandboxes.iter().any(is_up)
}

/// Returns the sources for which the list can show that a pod is absent: those of which it names another pod,
/// and lists all pods. The API server lists static pods only as mirrors.
fn sources_that_prove_absence(snapshot: &Snapshot) -> BTreeSet<ConfigSource> {
    let Pods::Known(list) = &snapshot.pods else {
        return BTreeSet::new();
    };
    let sources = list.pods.values().map(|pod| pod.config_source);
    let told = sources.filter(|source| match source {
        ConfigSource::Api => true,
        ConfigSource::File | ConfigSource::Http => !list.by_mirrors,
        ConfigSource::Other => false,
    });
    told.collect()
}
