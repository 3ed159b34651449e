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
    /// For each removal: the position of its object.
    planned: Vec<Option<usize>>,
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
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedSource {
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
        let mut said = NamedSource::Nothing;
        said.add(history.and_then(|history| history.config_source));
        Self {
            uid,
            listed: listed.copied(),
            history,
            alive: false,
            doubtful: false,
            has_sandbox: false,
            lacks_sandbox: false,
            said,
            youngest: None,
            all_exited: true,
            exit_unknown: false,
            last_exit,
        }
    }

    fn add_container(&mut self, row: &Container) {
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
        let containers = snapshot.containers.iter();
        let sandboxes = snapshot.sandboxes.iter();
        let of_containers = containers.clone().map(|it| it.pod.as_deref());
        let of_sandboxes = sandboxes.clone().map(|it| it.pod.as_deref());
        let uids = of_containers.chain(of_sandboxes);
        let uids = Numbering::of_shared(uids, |pod| pod.uid.as_str());
        // First, because it needs much memory for a short time.
        let superseded_containers = superseded::containers(snapshot, &uids);
        let superseded_sandboxes = superseded::sandboxes(snapshot, &uids);
        let planned = |target| {
            let ids = removals.iter();
            ids.map(move |it| (it.subject.target == target).then_some(it.subject.id.as_str()))
        };
        let container_ids = IdIndex::of(
            containers.clone().map(|it| it.id.as_str()),
            planned(Target::Containers),
        );
        let named = containers.clone().map(|it| Some(it.sandbox_id.as_str()));
        let sandbox_ids = IdIndex::of(
            sandboxes.clone().map(|it| it.id.as_str()),
            named.chain(planned(Target::Sandboxes)),
        );
        let mut node = Self {
            snapshot,
            policy,
            containers: Vec::with_capacity(snapshot.containers.len()),
            sandboxes: Vec::with_capacity(snapshot.sandboxes.len()),
            planned: Vec::with_capacity(removals.len()),
            uids,
            pods: Vec::new(),
            astray: BTreeSet::new(),
            prove_absence: sources_that_prove_absence(snapshot),
            whole: false,
            has_come_up: snapshot.uptime >= Duration::from_secs(900),
            container_ids,
            ends: Vec::new(),
        };
        node.gather_pods();
        for (place, (row, superseded)) in containers.zip(superseded_containers).enumerate() {
            let (pod, shared) = (node.uids.at(place), node.container_ids.is_shared(place));
            node.containers.push(ContainerRow {
                row,
                facts: RowFacts::new(pod, shared, superseded),
                sandbox: sandbox_ids.asked(place),
            });
        }
        for (place, (row, superseded)) in sandboxes.zip(superseded_sandboxes).enumerate() {
            let pod = node.uids.at(snapshot.containers.len() + place);
            node.sandboxes.push(SandboxRow {
                row,
                facts: RowFacts::new(pod, sandbox_ids.is_shared(place), superseded),
                staying: 0,
            });
        }
        for (place, removal) in removals.iter().enumerate() {
            node.planned.push(match removal.subject.target {
                Target::Containers => node.container_ids.asked(place),
                Target::Sandboxes => sandbox_ids.asked(snapshot.containers.len() + place),
                Target::Logs | Target::Images => None,
            });
        }
        node.count(removals);
        node.whole = node.list_is_whole();
        let ends = node.pods.iter().map(|pod| PodEnd {
            deleted: node.is_deleted(pod),
            finished: node.is_finished(pod),
        });
        node.ends = ends.collect();
        node
    }

    fn gather_pods(&mut self) {
        let snapshot = self.snapshot;
        let listed = match &snapshot.pods {
            Pods::Known(list) => self.beside(&list.pods),
            Pods::Unknown(_) => vec![None; self.uids.texts().len()],
        };
        let histories = self.beside(&snapshot.pod_history);
        let last_exits = self.beside(&snapshot.last_exits);
        let told = listed.into_iter().zip(histories).zip(last_exits);
        let pods = self.uids.texts().zip(told);
        self.pods = pods
            .map(|(uid, ((listed, history), exit))| {
                CheckedPod::new(uid, listed, history, exit.copied())
            })
            .collect();
        for (place, row) in snapshot.containers.iter().enumerate() {
            let pod = self.uids.at(place);
            if let Some(pod) = pod.and_then(|number| self.pods.get_mut(number)) {
                pod.add_container(row);
            }
        }
        for (place, row) in snapshot.sandboxes.iter().enumerate() {
            let pod = self.uids.at(snapshot.containers.len() + place);
            if let Some(pod) = pod.and_then(|number| self.pods.get_mut(number)) {
                pod.add_sandbox(row);
                self.has_come_up |= row.state == PodSandboxState::Ready;
            }
        }
    }

    fn beside<T>(&self, map: &'a BTreeMap<PodUid, T>) -> Vec<Option<&'a T>> {
        let entries = map.iter();
        self.uids
            .beside(entries.map(|(uid, it)| (uid.as_str(), it)))
    }

    fn count(&mut self, removals: &[Removal]) {
        for (place, (removal, row)) in removals.iter().zip(&self.planned).enumerate() {
            let Some(row) = *row else { continue };
            let facts = match removal.subject.target {
                Target::Containers => self.containers.get_mut(row).map(|it| &mut it.facts),
                Target::Sandboxes => self.sandboxes.get_mut(row).map(|it| &mut it.facts),
                Target::Logs | Target::Images => None,
            };
            if let Some(facts) = facts {
                facts.claim.get_or_insert(Claim::of(place, removal));
            }
        }
        for container in self.containers.iter().filter(|it| it.sandbox.is_none()) {
            let pod = container.facts.pod;
            if let Some(pod) = pod.and_then(|number| self.pods.get_mut(number)) {
                pod.lacks_sandbox = true;
            }
        }
        for container in self.containers.iter().filter(|it| it.facts.stays()) {
            if container.row.sandbox_id.is_stand_in() {
                self.astray.insert(container.facts.pod);
            }
            let sandbox = container
                .sandbox
                .and_then(|place| self.sandboxes.get_mut(place));
            if let Some(sandbox) = sandbox {
                sandbox.staying += 1;
            }
        }
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

    /// Says whether the record of the removal at this place is on the node.
    pub(super) fn is_there(&self, removal: usize) -> bool {
        self.planned.get(removal).is_some_and(Option::is_some)
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
