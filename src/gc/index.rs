//! The snapshot by numbers: the pod, sandbox and name of each record, found once for all verdicts. Never
//! judges.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::{Container, Numbering, PodSandbox, PodUid, Snapshot, head};

/// The numbers of a snapshot's records. Containers and sandboxes are identified by their position.
#[derive(Debug)]
pub(super) struct SnapshotIndex<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// Numbers of the containers' pods, then of the sandboxes'.
    numbers: Numbering<'a>,
    /// The records of one container name of one pod form one group.
    groups: Numbering<'a>,
    pub(super) containers: RowRanks,
    pub(super) sandboxes: RowRanks,
    /// Of each container name of a pod.
    pub(super) newest_containers: Newest,
    /// Of each pod. One without a pod is never among them.
    pub(super) newest_sandboxes: Newest,
}

impl<'a> SnapshotIndex<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let of_containers = snapshot.containers.iter().map(|it| it.pod.as_deref());
        let of_sandboxes = snapshot.sandboxes.iter().map(|it| it.pod.as_deref());
        let uids = of_containers.chain(of_sandboxes);
        let numbers = Numbering::of_shared(uids, |pod| pod.uid.as_str());
        let names = snapshot.containers.iter().enumerate();
        // Records without a pod get groups of their own, after the groups of all pods.
        let pod = |place| numbers.at(place).unwrap_or(numbers.texts().len());
        let groups = Numbering::within(names.map(|(at, it)| (pod(at), it.name.as_str())));
        let containers = RowRanks::of(&snapshot.containers, |it| {
            // One whose creation is unknown counts as newer than no other.
            let created_at = Some(it.created_at).filter(|at| *at < Timestamp::MAX);
            let created_at = created_at.unwrap_or(Timestamp::MIN);
            (created_at, it.attempt, it.id.as_str())
        });
        let sandboxes = RowRanks::of(&snapshot.sandboxes, |it| {
            (it.created_at, it.attempt, it.id.as_str())
        });
        let before = snapshot.containers.len();
        let of_pods = numbers.places();
        let of_pods = of_pods.map(|all| all.filter_map(move |it| it.checked_sub(before)));
        Self {
            snapshot,
            newest_containers: Newest::of(&containers, groups.places()),
            newest_sandboxes: Newest::of(&sandboxes, of_pods),
            numbers,
            groups,
            containers,
            sandboxes,
        }
    }

    /// Returns the UIDs of the pods, in the order of their numbers.
    pub(super) fn uids(&self) -> impl ExactSizeIterator<Item = &'a str> {
        self.numbers.texts()
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
        self.groups.at(place).unwrap_or_default()
    }

    /// Returns the places of the containers of each group.
    pub(super) fn groups(&self) -> impl Iterator<Item = impl Iterator<Item = usize> + Clone> {
        self.groups.places()
    }

    /// Returns the containers with their places, oldest first: the runtime's own order changes from look to look.
    pub(super) fn oldest_containers(&self) -> impl Iterator<Item = (usize, &'a Container)> {
        self.containers.oldest_first(&self.snapshot.containers)
    }

    /// Returns the sandboxes with their places, oldest first.
    pub(super) fn oldest_sandboxes(&self) -> impl Iterator<Item = (usize, &'a PodSandbox)> {
        self.sandboxes.oldest_first(&self.snapshot.sandboxes)
    }

    /// Returns the map's value for each pod.
    pub(super) fn beside_pods<T>(&self, map: &'a BTreeMap<PodUid, T>) -> Vec<Option<&'a T>> {
        self.numbers
            .beside(map.iter().map(|(uid, it)| (uid.as_str(), it)))
    }
}

/// Some positions of a list.
#[derive(Debug)]
pub(super) struct RowSet(Vec<bool>);

impl RowSet {
    /// Returns an empty selection of `count` positions.
    pub(super) fn none(count: usize) -> Self {
        Self(vec![false; count])
    }

    /// Returns those of `count` positions of which this holds.
    pub(super) fn of(count: usize, is_in: impl FnMut(usize) -> bool) -> Self {
        Self((0..count).map(is_in).collect())
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

/// The ranks of a list's rows by age.
#[derive(Debug)]
pub(super) struct RowRanks {
    by_place: Vec<RowRank>,
    /// Places.
    oldest_first: Vec<u32>,
}

/// How new a record is among its list's: by attempt, and by creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowRank {
    attempt: u32,
    /// Its rank by creation, as the kubelet orders them; equal times by attempt, then by id.
    pub(super) by_creation: u32,
}

impl RowRanks {
    fn of<'a, T>(rows: &'a [T], key: impl Fn(&'a T) -> (Timestamp, u32, &'a str)) -> Self {
        let keys = rows.iter().zip(0_u32..).map(|(row, place)| {
            let (created_at, attempt, id) = key(row);
            ((created_at, attempt, head(id)), place)
        });
        let mut keys: Vec<_> = keys.collect();
        let id = |place: u32| rows.get(place as usize).map(|row| key(row).2);
        // Only where time, attempt and the first letters of the id are equal must the whole id be read.
        keys.sort_unstable_by(|(a, at), (b, bt)| {
            a.cmp(b).then_with(|| (id(*at), at).cmp(&(id(*bt), bt)))
        });
        // Rows that differ in nothing have one rank, so that the list's order decides nothing.
        let ties = keys.chunk_by(|(a, at), (b, bt)| a == b && id(*at) == id(*bt));
        let mut by_place = vec![RowRank::default(); rows.len()];
        for (ties, by_creation) in ties.zip(0..) {
            for ((_, attempt, _), place) in ties {
                if let Some(rank) = by_place.get_mut(*place as usize) {
                    *rank = RowRank {
                        attempt: *attempt,
                        by_creation,
                    };
                }
            }
        }
        Self {
            by_place,
            oldest_first: keys.into_iter().map(|(_, place)| place).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    /// Returns the rows, which must be those of the list, with their places.
    fn oldest_first<'a, T>(&self, rows: &'a [T]) -> impl Iterator<Item = (usize, &'a T)> {
        let places = self.oldest_first.iter().map(|place| *place as usize);
        places.filter_map(|place| Some((place, rows.get(place)?)))
    }

    /// Adds the oldest of these rows to `taken`, so that at most `limit` are left.
    pub(super) fn take_oldest(&self, mut rows: Vec<usize>, limit: usize, taken: &mut RowSet) {
        let surplus = rows.len().saturating_sub(limit);
        rows.sort_by_key(|it| self.at(*it).by_creation);
        for &place in rows.iter().take(surplus) {
            taken.add(place);
        }
    }

    pub(super) fn at(&self, place: usize) -> RowRank {
        self.by_place.get(place).copied().unwrap_or_default()
    }
}

/// The records by which the kubelet knows that something has run: of each group, in any state, the highest
/// attempt and the latest creation. After a clock step they differ.
#[derive(Debug)]
pub(super) struct Newest {
    /// By group: the position of the highest attempt, and that of the latest creation if it is another.
    of_group: Vec<Option<(usize, Option<usize>)>>,
    all: RowSet,
}

impl Newest {
    /// Takes the places of the rows of each group.
    fn of(
        ranks: &RowRanks,
        groups: impl Iterator<Item = impl Iterator<Item = usize> + Clone>,
    ) -> Self {
        let mut all = RowSet::none(ranks.len());
        let of_group = groups.map(|places| {
            let by_attempt = places.clone().max_by_key(|it| (ranks.at(*it), *it))?;
            let by_creation = places.max_by_key(|it| (ranks.at(*it).by_creation, *it))?;
            all.add(by_attempt);
            all.add(by_creation);
            Some((by_attempt, Some(by_creation).filter(|it| *it != by_attempt)))
        });
        Self {
            of_group: of_group.collect(),
            all,
        }
    }

    /// Says whether the record at this position is one of its group's newest.
    pub(super) fn has(&self, place: usize) -> bool {
        self.all.has(place)
    }

    /// Returns the number of groups.
    pub(super) fn groups(&self) -> usize {
        self.of_group.len()
    }

    /// Returns the positions of a group's newest: one or two.
    pub(super) fn of_group(&self, group: usize) -> impl Iterator<Item = usize> {
        let newest = self.of_group.get(group).copied().flatten().into_iter();
        newest.flat_map(|(one, other)| std::iter::once(one).chain(other))
    }
}
