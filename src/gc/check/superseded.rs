//! Finds the records that newer ones supersede. Shares no rule with the planner.
//!
//! Groups records by their texts. The pods' numbers only say which texts to compare: a wrong number can part records of
//! one pod, and fewer of them are superseded then; it cannot mislead planner and check alike.

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::model::{Container, HasId, Numbering, PodRef, PodSandbox, Snapshot};

/// Says of each container whether a newer one of its name and pod has a higher attempt, and one was created later.
pub(super) fn containers(snapshot: &Snapshot, uids: &Numbering<'_>) -> Vec<bool> {
    let count = snapshot.containers.len();
    let of_pods = uids.places();
    let of_pods = of_pods.map(|places| places.filter(|place| *place < count));
    superseded(&snapshot.containers, of_pods, |row: &Container| {
        Some(RankedRecord {
            pod: row.pod.as_deref()?,
            name: &row.name,
            // One whose creation is unknown counts as newer than no other.
            created_at: if row.created_at == Timestamp::MAX {
                Timestamp::MIN
            } else {
                row.created_at
            },
            attempt: row.attempt,
        })
    })
}

/// The same for sandboxes: those of a pod.
pub(super) fn sandboxes(snapshot: &Snapshot, uids: &Numbering<'_>) -> Vec<bool> {
    let count = snapshot.containers.len();
    let of_pods = uids.places();
    let of_pods = of_pods.map(|places| places.filter_map(|place| place.checked_sub(count)));
    superseded(&snapshot.sandboxes, of_pods, |row: &PodSandbox| {
        Some(RankedRecord {
            pod: row.pod.as_deref()?,
            name: "",
            created_at: row.created_at,
            attempt: row.attempt,
        })
    })
}

/// What of a record says which group it is in, and how new it is there.
#[derive(Clone, Copy)]
struct RankedRecord<'a> {
    pod: &'a PodRef,
    name: &'a str,
    created_at: Timestamp,
    attempt: u32,
}

impl RankedRecord<'_> {
    /// Orders by group: by the UID of the pod, and by name. Most equal texts are one in memory, and need not be read.
    fn by_group(&self, other: &Self) -> Ordering {
        let by_pod = if std::ptr::eq(self.pod, other.pod) {
            Ordering::Equal
        } else {
            self.pod.uid.cmp(&other.pod.uid)
        };
        let same_name = std::ptr::eq(self.name, other.name);
        by_pod.then_with(|| {
            if same_name {
                Ordering::Equal
            } else {
                self.name.cmp(other.name)
            }
        })
    }

    /// How late the record was created; equal times by attempt.
    fn by_creation(&self) -> (Timestamp, u32) {
        (self.created_at, self.attempt)
    }

    fn by_attempt(&self) -> (u32, Timestamp) {
        (self.attempt, self.created_at)
    }
}

/// Says of each record whether it is superseded in its group: by one of a higher attempt, and by one created later.
/// `of_pods` are the places of each pod's records.
fn superseded<'a, T: HasId>(
    rows: &'a [T],
    of_pods: impl Iterator<Item = impl Iterator<Item = usize>>,
    record: impl Fn(&'a T) -> Option<RankedRecord<'a>>,
) -> Vec<bool> {
    // Side by side they fit into the cache; the rows of a large node do not.
    let all: Vec<Option<RankedRecord<'_>>> = rows.iter().map(record).collect();
    let id = |place: usize| rows.get(place).map(T::id);
    let (mut records, mut superseded) = (Vec::new(), vec![false; rows.len()]);
    for places in of_pods {
        records.clear();
        records.extend(places.filter_map(|place| Some(((*all.get(place)?)?, place))));
        if records.len() < 2 {
            continue;
        }
        records.sort_by(|(one, _), (other, _)| one.by_group(other));
        for group in records.chunk_by(|(one, _), (other, _)| one.by_group(other).is_eq()) {
            // The ids lie elsewhere: they are read only where the rest is equal.
            let by_creation = group.iter().max_by(|(one, at), (other, bt)| {
                let rest = one.by_creation().cmp(&other.by_creation());
                rest.then_with(|| id(*at).cmp(&id(*bt)))
            });
            let by_attempt = group.iter().max_by(|(one, at), (other, bt)| {
                let rest = one.by_attempt().cmp(&other.by_attempt());
                rest.then_with(|| id(*at).cmp(&id(*bt)))
            });
            let newest = [by_creation, by_attempt].map(|it| it.map(|(_, place)| *place));
            for (_, place) in group {
                if let Some(superseded) = superseded.get_mut(*place) {
                    *superseded = !newest.contains(&Some(*place));
                }
            }
        }
    }
    superseded
}
