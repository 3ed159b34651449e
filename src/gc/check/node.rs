//! The snapshot as the rules read it: each record and each pod with what the rules ask of it, found in
//! one go. Shares no notion with the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::places::Places;
use crate::gc::{Policy, Removal};
use crate::model::{
    ConfigSource, Container, ContainerState, Numbering, PodHistory, PodSandbox, PodSandboxState,
    PodUid, Pods, Snapshot, SourcePod, Target,
};

/// The node that a plan was made of.
pub(super) struct Node<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) policy: &'a Policy,
    pub(super) containers: Vec<ContainerRow<'a>>,
    container_ids: Places<'a>,
    pub(super) sandboxes: Vec<SandboxRow<'a>>,
    /// By the removals: the place of what each is about.
    planned: Vec<Option<usize>>,
    uids: Numbering<'a>,
    pods: Vec<Pod<'a>>,
    /// The pods of containers that stay and do not name their sandbox; `None`: one without a pod.
    pub(super) astray: BTreeSet<Option<usize>>,
    /// Where the pods are from that the list can tell to be absent.
    pub(super) tells: BTreeSet<ConfigSource>,
    /// The list has every living pod; false without a list.
    pub(super) whole: bool,
    /// A pod is up, or the machine has been for a quarter of an hour.
    pub(super) has_come_up: bool,
}

/// A container, and what the rules ask of it.
pub(super) struct ContainerRow<'a> {
    pub(super) row: &'a Container,
    pub(super) pod: Option<usize>,
    /// The place of the sandbox that it names.
    pub(super) sandbox: Option<usize>,
    /// The plan removes it.
    pub(super) goes: bool,
    /// Another record has its id, and may say otherwise of it.
    pub(super) id_is_shared: bool,
    /// There is one of its name and pod of a higher attempt, and one created later (it may be another).
    pub(super) outdone: bool,
}

/// A sandbox, and what the rules ask of it.
pub(super) struct SandboxRow<'a> {
    pub(super) row: &'a PodSandbox,
    pub(super) pod: Option<usize>,
    /// There is one of its pod of a higher attempt, and one created later (it may be another).
    pub(super) outdone: bool,
    /// How many containers that stay name it.
    pub(super) staying: usize,
    /// Another record has its id, and may say otherwise of it.
    pub(super) id_is_shared: bool,
}

/// What a removal is about.
#[derive(Clone, Copy)]
pub(super) enum Found<'n, 'a> {
    Container(&'n ContainerRow<'a>),
    Sandbox(&'n SandboxRow<'a>),
}

impl Found<'_, '_> {
    pub(super) fn outdone(&self) -> bool {
        match self {
            Self::Container(row) => row.outdone,
            Self::Sandbox(row) => row.outdone,
        }
    }

    pub(super) fn pod(&self) -> Option<usize> {
        match self {
            Self::Container(row) => row.pod,
            Self::Sandbox(row) => row.pod,
        }
    }
}

/// A pod, and what the rules ask of it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and all can be true"
)]
pub(super) struct Pod<'a> {
    pub(super) uid: &'a PodUid,
    pub(super) listed: Option<&'a SourcePod>,
    pub(super) history: Option<&'a PodHistory>,
    /// A sandbox of it is ready, or a container runs.
    pub(super) alive: bool,
    /// A container is in state unknown: it may run.
    pub(super) doubtful: bool,
    pub(super) has_sandbox: bool,
    pub(super) said: Said,
    pub(super) youngest: Option<Timestamp>,
    /// Every container of it has exited.
    pub(super) all_exited: bool,
    /// One has exited at a time that is not known.
    pub(super) exit_unknown: bool,
    /// The last exit that is known, also of records that are gone.
    pub(super) last_exit: Option<Timestamp>,
}

/// Where a pod's sandboxes say that it is from, now or earlier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    One(ConfigSource),
    /// They contradict each other.
    Several,
}

impl Said {
    fn add(&mut self, source: Option<ConfigSource>) {
        let Some(source) = source else { return };
        *self = match *self {
            Self::Nothing => Self::One(source),
            Self::One(other) if other == source => Self::One(source),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

impl<'a> Pod<'a> {
    fn new(
        uid: &'a PodUid,
        listed: Option<&'a SourcePod>,
        history: Option<&'a PodHistory>,
        last_exit: Option<Timestamp>,
    ) -> Self {
        let mut said = Said::Nothing;
        said.add(history.and_then(|history| history.config_source));
        Self {
            uid,
            listed,
            history,
            alive: false,
            doubtful: false,
            has_sandbox: false,
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

impl<'a> Node<'a> {
    pub(super) fn of(snapshot: &'a Snapshot, policy: &'a Policy, removals: &'a [Removal]) -> Self {
        let containers = snapshot.containers.iter();
        let sandboxes = snapshot.sandboxes.iter();
        let planned = |target| {
            let ids = removals.iter();
            ids.map(move |it| (it.subject.target == target).then_some(it.subject.id.as_str()))
        };
        let container_ids = Places::of(
            containers.clone().map(|it| it.id.as_str()),
            planned(Target::Containers),
        );
        let named = containers.clone().map(|it| Some(it.sandbox_id.as_str()));
        let sandbox_ids = Places::of(
            sandboxes.clone().map(|it| it.id.as_str()),
            named.chain(planned(Target::Sandboxes)),
        );
        let of_containers = containers.clone().map(|it| it.pod.as_deref());
        let of_sandboxes = sandboxes.clone().map(|it| it.pod.as_deref());
        let uids = of_containers.chain(of_sandboxes);
        let mut node = Self {
            snapshot,
            policy,
            containers: Vec::with_capacity(snapshot.containers.len()),
            sandboxes: Vec::with_capacity(snapshot.sandboxes.len()),
            planned: Vec::with_capacity(removals.len()),
            uids: Numbering::of(uids.clone().map(|pod| pod.map(|pod| pod.uid.as_str()))),
            pods: Vec::new(),
            astray: BTreeSet::new(),
            tells: tells(snapshot),
            whole: false,
            has_come_up: snapshot.uptime >= Duration::from_secs(900),
            container_ids,
        };
        node.gather_pods(uids.map(|pod| pod.map(|pod| &pod.uid)));
        for (place, row) in containers.enumerate() {
            node.containers.push(ContainerRow {
                row,
                pod: node.uids.at(place),
                sandbox: sandbox_ids.asked(place),
                goes: false,
                id_is_shared: node.container_ids.is_shared(place),
                outdone: false,
            });
        }
        for (place, row) in sandboxes.enumerate() {
            node.sandboxes.push(SandboxRow {
                row,
                pod: node.uids.at(snapshot.containers.len() + place),
                outdone: false,
                staying: 0,
                id_is_shared: sandbox_ids.is_shared(place),
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
        node.rank_containers();
        node.rank_sandboxes();
        node.whole = node.list_is_whole();
        node
    }

    fn gather_pods(&mut self, uids: impl Iterator<Item = Option<&'a PodUid>>) {
        let snapshot = self.snapshot;
        let mut by_number: Vec<Option<&PodUid>> = vec![None; self.uids.texts().len()];
        for (place, uid) in uids.enumerate() {
            let slot = self.uids.at(place);
            if let Some(slot) = slot.and_then(|number| by_number.get_mut(number)) {
                *slot = uid;
            }
        }
        let listed = match &snapshot.pods {
            Pods::Known(list) => self.beside(&list.pods),
            Pods::Unknown(_) => vec![None; by_number.len()],
        };
        let histories = self.beside(&snapshot.pod_history);
        let last_exits = self.beside(&snapshot.last_exits);
        let told = listed.into_iter().zip(histories).zip(last_exits);
        let pods = by_number.into_iter().flatten().zip(told);
        self.pods = pods
            .map(|(uid, ((listed, history), exit))| Pod::new(uid, listed, history, exit.copied()))
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
        for (removal, place) in removals.iter().zip(&self.planned) {
            if removal.subject.target == Target::Containers
                && let Some(container) = place.and_then(|place| self.containers.get_mut(place))
            {
                container.goes = true;
            }
        }
        for container in self.containers.iter().filter(|it| !it.goes) {
            if container.row.sandbox_id.is_stand_in() {
                self.astray.insert(container.pod);
            }
            let sandbox = container
                .sandbox
                .and_then(|place| self.sandboxes.get_mut(place));
            if let Some(sandbox) = sandbox {
                sandbox.staying += 1;
            }
        }
    }

    fn rank_containers(&mut self) {
        let rows = self.containers.iter().enumerate();
        let managed = rows.filter(|(_, it)| it.pod.is_some());
        let mut order: Vec<_> = managed
            .map(|(place, it)| {
                let row = it.row;
                let group = (it.pod, row.name.as_str());
                (group, (row.created_at, row.attempt, row.id.as_str()), place)
            })
            .collect();
        order.sort_unstable();
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            let newest = newest(group.iter().map(|(_, rank, place)| (*rank, *place)));
            for (_, _, place) in group {
                if let Some(container) = self.containers.get_mut(*place) {
                    container.outdone = !newest.contains(&Some(*place));
                }
            }
        }
    }

    fn rank_sandboxes(&mut self) {
        let rows = self.sandboxes.iter().enumerate();
        let managed = rows.filter(|(_, it)| it.pod.is_some());
        let mut order: Vec<_> = managed
            .map(|(place, it)| {
                let row = it.row;
                (
                    it.pod,
                    (row.created_at, row.attempt, row.id.as_str()),
                    place,
                )
            })
            .collect();
        order.sort_unstable();
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            let newest = newest(group.iter().map(|(_, rank, place)| (*rank, *place)));
            for (_, _, place) in group {
                if let Some(sandbox) = self.sandboxes.get_mut(*place) {
                    sandbox.outdone = !newest.contains(&Some(*place));
                }
            }
        }
    }

    /// Returns the container with this id.
    pub(super) fn container(&self, id: &str) -> Option<&ContainerRow<'a>> {
        self.containers.get(self.container_ids.find(id)?)
    }

    /// Returns what each removal is about; `None` where it is not on the node.
    pub(super) fn planned(&self, removals: &[Removal]) -> Vec<Option<Found<'_, 'a>>> {
        let found = removals.iter().zip(&self.planned);
        let found = found.map(|(removal, place)| match removal.subject.target {
            Target::Containers => self.containers.get((*place)?).map(Found::Container),
            Target::Sandboxes => self.sandboxes.get((*place)?).map(Found::Sandbox),
            Target::Logs | Target::Images => None,
        });
        found.collect()
    }

    /// Returns the pod with this number.
    pub(super) fn pod(&self, number: Option<usize>) -> Option<&Pod<'a>> {
        self.pods.get(number?)
    }

    /// Returns every pod of which the runtime has something.
    pub(super) fn pods(&self) -> &[Pod<'a>] {
        &self.pods
    }

    /// Says whether the runtime has something of this pod.
    pub(super) fn has_pod(&self, uid: &PodUid) -> bool {
        self.uids.find(uid.as_str()).is_some()
    }

    /// Returns what is known of a pod of which the runtime has nothing.
    pub(super) fn unseen_pod<'b>(&self, uid: &'b PodUid) -> Pod<'b>
    where
        'a: 'b,
    {
        let snapshot = self.snapshot;
        let listed = match &snapshot.pods {
            Pods::Known(list) => list.pods.get(uid),
            Pods::Unknown(_) => None,
        };
        let last_exit = snapshot.last_exits.get(uid).copied();
        Pod::new(uid, listed, snapshot.pod_history.get(uid), last_exit)
    }

    pub(super) fn older_than(&self, then: Timestamp, minimum: Duration) -> bool {
        let age = self.snapshot.taken_at.as_nanosecond() - then.as_nanosecond();
        u128::try_from(age).is_ok_and(|age| age >= minimum.as_nanos())
    }
}

/// By creation, attempt, id; and where the record is.
type Ranked<'a> = ((Timestamp, u32, &'a str), usize);

/// Finds the one of the highest attempt and the one created last.
fn newest<'a>(records: impl Iterator<Item = Ranked<'a>> + Clone) -> [Option<usize>; 2] {
    let by_creation = records.clone().max_by_key(|(rank, _)| *rank);
    let by_attempt =
        records.max_by_key(|((created_at, attempt, id), _)| (*attempt, *created_at, *id));
    [by_creation, by_attempt].map(|newest| newest.map(|(_, place)| place))
}

/// A list can tell that a pod is absent where it names another one from the same place, and has all from
/// there: static pods are in the API server's list only by their mirrors.
fn tells(snapshot: &Snapshot) -> BTreeSet<ConfigSource> {
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
