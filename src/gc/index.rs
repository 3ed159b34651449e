//! The snapshot by number: which pod, sandbox and name each record belongs to, found once for all
//! verdicts. Never judges.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::{Container, Numbering, PodSandbox, PodUid, Snapshot};

/// The numbers of a snapshot's records. Containers and sandboxes are known by their place in it.
#[derive(Debug)]
pub(super) struct Index<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Of the containers' pods, then of the sandboxes'.
    numbers: Numbering<'a>,
    pods: Vec<&'a PodUid>,
    /// The records of one container name of one pod have one group.
    groups: Vec<usize>,
    group_count: usize,
}

impl<'a> Index<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let of_containers = snapshot.containers.iter().map(|it| it.pod.as_deref());
        let of_sandboxes = snapshot.sandboxes.iter().map(|it| it.pod.as_deref());
        let uids = of_containers
            .chain(of_sandboxes)
            .map(|pod| pod.map(|pod| &pod.uid));
        let numbers = Numbering::of(uids.clone().map(|uid| uid.map(PodUid::as_str)));
        let mut pods: Vec<Option<&PodUid>> = vec![None; numbers.texts().len()];
        for (place, uid) in uids.enumerate() {
            if let Some(slot) = numbers.at(place).and_then(|number| pods.get_mut(number)) {
                *slot = uid;
            }
        }
        let mut index = Self {
            snapshot,
            numbers,
            pods: pods.into_iter().flatten().collect(),
            groups: vec![0; snapshot.containers.len()],
            group_count: 0,
        };
        index.group();
        index
    }

    fn group(&mut self) {
        let names = self.snapshot.containers.iter().enumerate();
        let mut order: Vec<(Option<usize>, &str, usize)> = names
            .map(|(place, it)| (self.pod_of_container(place), it.name.as_str(), place))
            .collect();
        order.sort_unstable();
        let mut last = None;
        for (pod, name, place) in order {
            if last != Some((pod, name)) {
                last = Some((pod, name));
                self.group_count += 1;
            }
            if let Some(group) = self.groups.get_mut(place) {
                *group = self.group_count - 1;
            }
        }
    }

    /// Returns the pods, in the order of their numbers, which is that of their UIDs.
    pub(super) fn pods(&self) -> &[&'a PodUid] {
        &self.pods
    }

    /// Returns the number of a pod by its UID; `None` if the runtime has nothing of it.
    pub(super) fn pod(&self, uid: &PodUid) -> Option<usize> {
        self.numbers.find(uid.as_str())
    }

    pub(super) fn pod_of_container(&self, place: usize) -> Option<usize> {
        self.numbers.at(place)
    }

    pub(super) fn pod_of_sandbox(&self, place: usize) -> Option<usize> {
        self.numbers.at(self.snapshot.containers.len() + place)
    }

    /// Returns the number of a container's group: the records of its name in its pod.
    pub(super) fn group_of(&self, place: usize) -> usize {
        self.groups.get(place).copied().unwrap_or_default()
    }

    pub(super) fn group_count(&self) -> usize {
        self.group_count
    }

    /// Returns for each pod what a map has of it.
    pub(super) fn beside_pods<T>(&self, map: &'a BTreeMap<PodUid, T>) -> Vec<Option<&'a T>> {
        self.numbers
            .beside(map.iter().map(|(uid, it)| (uid.as_str(), it)))
    }

    /// Returns the newest containers of each group.
    pub(super) fn newest_containers(&self) -> Newest {
        let records = self.snapshot.containers.iter().enumerate();
        let records = records.map(|(place, it)| (Some(self.group_of(place)), rank(it)));
        Newest::of(self.group_count, records)
    }

    /// Returns the newest sandboxes of each pod. One without a pod is never among them.
    pub(super) fn newest_sandboxes(&self) -> Newest {
        let records = self.snapshot.sandboxes.iter().enumerate();
        let records = records.map(|(place, it)| (self.pod_of_sandbox(place), sandbox_rank(it)));
        Newest::of(self.pods.len(), records)
    }
}

/// Some of the places of a list.
#[derive(Debug)]
pub(super) struct Places(Vec<bool>);

impl Places {
    /// Returns none of so many places.
    pub(super) fn none(count: usize) -> Self {
        Self(vec![false; count])
    }

    pub(super) fn add(&mut self, place: usize) {
        if let Some(is_in) = self.0.get_mut(place) {
            *is_in = true;
        }
    }

    pub(super) fn has(&self, place: usize) -> bool {
        self.0.get(place).copied().unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        let places = self.0.iter().enumerate();
        places.filter_map(|(place, is_in)| is_in.then_some(place))
    }
}

/// What makes a record newer than another: its attempt, or its creation; then the id.
type Rank<'a> = (u32, Timestamp, &'a str);

fn rank(container: &Container) -> Rank<'_> {
    (
        container.attempt,
        container.created_at,
        container.id.as_str(),
    )
}

fn sandbox_rank(sandbox: &PodSandbox) -> Rank<'_> {
    (sandbox.attempt, sandbox.created_at, sandbox.id.as_str())
}

/// The records that the kubelet may need to know that something has run: of each group, whatever the state,
/// the highest attempt and the latest creation. After a clock step they differ.
#[derive(Debug)]
pub(super) struct Newest {
    /// By group: the places of both.
    of_group: Vec<Option<[usize; 2]>>,
    all: Places,
}

impl Newest {
    fn of<'a>(groups: usize, records: impl Iterator<Item = (Option<usize>, Rank<'a>)>) -> Self {
        let by_creation = |(attempt, created_at, id): Rank<'a>| (created_at, attempt, id);
        let mut best: Vec<Option<[(Rank<'_>, usize); 2]>> = vec![None; groups];
        let mut count = 0;
        for (place, (group, rank)) in records.enumerate() {
            count += 1;
            let Some(best) = group.and_then(|group| best.get_mut(group)) else {
                continue;
            };
            let [attempt, creation] = best.get_or_insert([(rank, place); 2]);
            *attempt = (rank, place).max(*attempt);
            if (by_creation(rank), place) > (by_creation(creation.0), creation.1) {
                *creation = (rank, place);
            }
        }
        let of_group: Vec<Option<[usize; 2]>> = best
            .into_iter()
            .map(|best| best.map(|both| both.map(|(_, place)| place)))
            .collect();
        let mut all = Places::none(count);
        for place in of_group.iter().flatten().flatten() {
            all.add(*place);
        }
        Self { of_group, all }
    }

    /// Says whether the record at this place is one of its group's newest.
    pub(super) fn has(&self, place: usize) -> bool {
        self.all.has(place)
    }

    /// Returns the places of a group's newest: one, or two.
    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = usize> {
        let [attempt, creation] = match self.of_group.get(group).copied().flatten() {
            Some([attempt, creation]) => [Some(attempt), Some(creation)],
            None => [None, None],
        };
        attempt
            .into_iter()
            .chain(creation.filter(|it| Some(*it) != attempt))
    }
}
