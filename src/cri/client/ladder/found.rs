//! What was found of a list so far, each row once.

use std::collections::BTreeMap;

use crate::cri::codec::Page;

/// Rows by their id.
#[derive(Debug)]
pub(super) struct Found<M> {
    rows: BTreeMap<Box<str>, Entry<M>>,
    malformed: usize,
}

#[derive(Debug)]
struct Entry<M> {
    row: M,
    /// What it weighs in a list's answer; `None` if it was in none.
    weight: Option<u64>,
}

impl<M> Default for Found<M> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            malformed: 0,
        }
    }
}

impl<M> Found<M> {
    /// Adds the rows of an answer. One that is there already is replaced: the later answer has the later
    /// state.
    pub(super) fn add(&mut self, page: Page<M>, id: fn(&M) -> &str) {
        self.malformed += page.malformed;
        for (row, weight) in page.rows.into_iter().zip(page.weights) {
            let weight = Some(weight);
            self.rows.insert(id(&row).into(), Entry { row, weight });
        }
    }

    /// Adds a row that no list had.
    pub(super) fn add_one(&mut self, id: &str, row: M) {
        self.rows.insert(id.into(), Entry { row, weight: None });
    }

    /// Forgets a row whose object is gone.
    pub(super) fn remove(&mut self, id: &str) {
        self.rows.remove(id);
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.rows.contains_key(id)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.rows.keys().map(|id| &**id)
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &M> {
        self.rows.values().map(|entry| &entry.row)
    }

    /// Returns what the rows weigh that were in a list.
    pub(super) fn weighed(&self) -> u64 {
        self.rows.values().filter_map(|entry| entry.weight).sum()
    }

    pub(super) fn is_all_weighed(&self) -> bool {
        self.rows.values().all(|entry| entry.weight.is_some())
    }

    /// Weighs the rows that are wanted. One that was in no list counts as the mean of all: `list_bytes` is
    /// what the list weighed, or more.
    pub(super) fn weigh(&self, list_bytes: u64, wanted: impl Fn(&M) -> bool) -> u64 {
        let count = u64::try_from(self.rows.len()).unwrap_or(u64::MAX).max(1);
        let mean = list_bytes.div_ceil(count);
        let wanted = self.rows.values().filter(|entry| wanted(&entry.row));
        wanted.map(|entry| entry.weight.unwrap_or(mean)).sum()
    }

    /// Returns the rows by id, and how many more there were that lack one.
    pub(super) fn into_rows(self) -> (Vec<M>, usize) {
        let rows = self.rows.into_values().map(|entry| entry.row);
        (rows.collect(), self.malformed)
    }
}
