//! The rows of a list found so far, each once.

use std::collections::BTreeMap;

use crate::model::HasId;
use crate::runtime::codec::ListChunk;

/// Rows by their id.
#[derive(Debug)]
pub(super) struct FoundRows<M> {
    pub(super) by_id: BTreeMap<Box<str>, FoundRow<M>>,
    malformed: usize,
}

#[derive(Clone, Debug)]
pub(super) struct FoundRow<M> {
    pub(super) row: M,
    /// Its mounted images; `None` if its status was not read.
    pub(super) mounted: Option<Vec<String>>,
}

impl<M> Default for FoundRows<M> {
    fn default() -> Self {
        Self {
            by_id: BTreeMap::new(),
            malformed: 0,
        }
    }
}

impl<M> FoundRows<M> {
    /// Adds the rows of an answer. A later row replaces an earlier one, because it has the later state.
    pub(super) fn add(&mut self, page: ListChunk<M>)
    where
        M: HasId,
    {
        self.malformed += page.malformed;
        for row in page.rows {
            self.by_id.insert(row.id().into(), FoundRow::listed(row));
        }
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.by_id.keys().map(|id| &**id)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &M> {
        self.by_id.values().map(|entry| &entry.row)
    }

    /// Returns the rows that were read by id.
    pub(super) fn asked(&self) -> impl Iterator<Item = &M> {
        let asked = self.by_id.values().filter(|entry| entry.mounted.is_some());
        asked.map(|entry| &entry.row)
    }

    /// Returns the rows by id, the number of rows without one, and the mounted images of rows that were read by
    /// id.
    pub(super) fn into_parts(self) -> (Vec<M>, usize, BTreeMap<Box<str>, Vec<String>>) {
        let mut mounted = BTreeMap::new();
        let take = |(id, entry): (Box<str>, FoundRow<M>)| {
            if let Some(images) = entry.mounted {
                mounted.insert(id, images);
            }
            entry.row
        };
        let rows = self.by_id.into_iter().map(take).collect();
        (rows, self.malformed, mounted)
    }
}

impl<M> FoundRow<M> {
    /// Returns a row from a list answer.
    pub(super) fn listed(row: M) -> Self {
        Self { row, mounted: None }
    }

    /// Returns a row read by id, with its mounted images.
    pub(super) fn asked(row: M, mounted: Vec<String>) -> Self {
        Self {
            row,
            mounted: Some(mounted),
        }
    }
}
