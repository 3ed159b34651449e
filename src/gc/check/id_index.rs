//! Positions of a list's records by id.

use crate::gc::Removal;
use crate::model::{Numbering, Snapshot, Target};

/// Finds records by id. Sorting all ids once is faster than looking each of them up.
pub(super) struct IdIndex<'a> {
    ids: Numbering<'a>,
    by_number: Vec<Option<usize>>,
    /// For each id's number: more than one record has it.
    shared: Vec<bool>,
    records: usize,
}

impl<'a> IdIndex<'a> {
    /// Finds containers; looks up those of the removals.
    pub(super) fn of_containers(snapshot: &'a Snapshot, removals: &'a [Removal]) -> Self {
        let ids = snapshot.containers.iter().map(|it| it.id.as_str());
        Self::of(ids, planned(removals, Target::Containers))
    }

    /// Finds sandboxes; looks up those that the containers name, then those of the removals.
    pub(super) fn of_sandboxes(snapshot: &'a Snapshot, removals: &'a [Removal]) -> Self {
        let ids = snapshot.sandboxes.iter().map(|it| it.id.as_str());
        let named = snapshot.containers.iter();
        let named = named.map(|it| Some(it.sandbox_id.as_str()));
        Self::of(ids, named.chain(planned(removals, Target::Sandboxes)))
    }

    /// Takes the ids of the records, and the ids to look up.
    fn of(
        records: impl ExactSizeIterator<Item = &'a str> + Clone,
        asked: impl Iterator<Item = Option<&'a str>> + Clone,
    ) -> Self {
        let count = records.len();
        let ids = Numbering::of(records.map(Some).chain(asked));
        let mut by_number = vec![None; ids.texts().len()];
        let mut shared = vec![false; ids.texts().len()];
        for place in 0..count {
            let number = ids.at(place);
            if let Some(slot) = number.and_then(|number| by_number.get_mut(number)) {
                if let Some(shared) = number.and_then(|it| shared.get_mut(it)) {
                    *shared = slot.is_some();
                }
                *slot = Some(place);
            }
        }
        Self {
            ids,
            by_number,
            shared,
            records: count,
        }
    }

    /// Returns the position of the record for the id at this place of the ids to look up.
    pub(super) fn asked(&self, place: usize) -> Option<usize> {
        let number = self.ids.at(self.records + place)?;
        self.by_number.get(number).copied().flatten()
    }

    /// Says whether another record has the same id as the record at this position.
    pub(super) fn is_shared(&self, place: usize) -> bool {
        let number = self.ids.at(place);
        number.is_none_or(|number| self.shared.get(number).copied().unwrap_or(true))
    }

    /// Returns the position of the record with this id.
    pub(super) fn find(&self, id: &str) -> Option<usize> {
        self.by_number.get(self.ids.find(id)?).copied().flatten()
    }
}

/// Returns the id of each removal of a target, and `None` for the others.
fn planned(removals: &[Removal], target: Target) -> impl Iterator<Item = Option<&str>> + Clone {
    let subjects = removals.iter().map(|it| &it.subject);
    subjects.map(move |it| (it.target == target).then_some(it.id.as_str()))
}
