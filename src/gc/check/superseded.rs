//! Finds the records that newer ones supersede. Shares no rule with the planner.

use std::cmp::Ordering;

use jiff::Timestamp;

use crate::model::{HasId, PodRef};

/// What of a record says which group it is in, and how new it is there.
#[derive(Clone, Copy)]
pub(super) struct RankedRecord<'a> {
    pub(super) pod: &'a PodRef,
    pub(super) name: &'a str,
    pub(super) created_at: Timestamp,
    pub(super) attempt: u32,
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

/// Finds the records that are superseded in their group: by one of a higher attempt, and by one created later. `of_pods`
/// are the places of each pod's records.
pub(super) fn superseded_records<'a, T: HasId>(
    rows: &'a [T],
    of_pods: impl Iterator<Item = impl Iterator<Item = usize>>,
    record: impl Fn(&'a T) -> Option<RankedRecord<'a>>,
) -> Vec<usize> {
    // Side by side they fit into the cache; the rows of a large node do not.
    let all: Vec<Option<RankedRecord<'_>>> = rows.iter().map(record).collect();
    let id = |place: usize| rows.get(place).map(T::id);
    let (mut records, mut superseded) = (Vec::new(), Vec::new());
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
            let places = group.iter().map(|(_, place)| *place);
            superseded.extend(places.filter(|place| !newest.contains(&Some(*place))));
        }
    }
    superseded
}
