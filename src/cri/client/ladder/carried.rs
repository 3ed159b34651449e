//! What one look at a list on the lower rungs carries to the next one on the same connection.
//!
//! A container that has exited and a sandbox that is not ready never change again: their rows hold for as
//! long as the runtime has their ids. Of all others only the sandbox that they name is taken from here.
//! Without a list of all ids no row is taken: one that is kept says nothing about what is there now.

use std::collections::{BTreeMap, BTreeSet};

use super::containerd::Ids;
use super::found::{Entry, Found};
use super::kind::{Held, Question};
use crate::cri::codec::Page;

/// What is known from earlier looks.
#[derive(Debug)]
pub(super) struct Carried<M> {
    connection: u64,
    rows: BTreeMap<Box<str>, Entry<M>>,
    /// Parts of the list that are over the limit by themselves.
    refused: BTreeSet<Question>,
    /// Where a look ran out of time, so that the next one goes on there.
    next_part: Option<Question>,
    next_id: Option<Box<str>>,
}

impl<M> Default for Carried<M> {
    fn default() -> Self {
        Self {
            connection: 0,
            rows: BTreeMap::new(),
            refused: BTreeSet::new(),
            next_part: None,
            next_id: None,
        }
    }
}

impl<M: Held + Clone> Carried<M> {
    /// Forgets everything that is not from this connection.
    pub(super) fn forget_unless_from(&mut self, connection: u64) {
        if self.connection != connection {
            *self = Self {
                connection,
                ..Self::default()
            };
        }
    }

    /// Forgets what has no id any more; adds to `found` what it lacks and what cannot have changed.
    pub(super) fn fill(&mut self, ids: &Ids, found: &mut Found<M>) {
        self.rows.retain(|id, _| ids.contains_key(id));
        for (id, entry) in &self.rows {
            if entry.row.is_over() && !found.contains(id) {
                found.add_entry(id.clone(), entry.clone());
            }
        }
    }

    pub(super) fn row(&self, id: &str) -> Option<&M> {
        self.rows.get(id).map(|entry| &entry.row)
    }

    pub(super) fn keep(&mut self, id: &str, entry: Entry<M>) {
        self.rows.insert(id.into(), entry);
    }

    pub(super) fn keep_page(&mut self, page: &Page<M>, id: fn(&M) -> &str) {
        for (row, weight) in page.rows.iter().zip(&page.weights) {
            self.keep(id(row), Entry::listed(row.clone(), *weight));
        }
    }

    pub(super) fn refuse(&mut self, part: Question) {
        self.refused.insert(part);
    }

    pub(super) fn is_refused(&self, part: &Question) -> bool {
        self.refused.contains(part)
    }

    /// Orders the parts so that those come first that the last look did not get to.
    pub(super) fn parts_in_turn(&self, parts: BTreeSet<Question>) -> Vec<Question> {
        in_turn(parts, self.next_part.as_ref())
    }

    /// The same for ids.
    pub(super) fn ids_in_turn(&self, ids: BTreeSet<Box<str>>) -> Vec<Box<str>> {
        in_turn(ids, self.next_id.as_ref())
    }

    pub(super) fn go_on_at_part(&mut self, part: Option<Question>) {
        self.next_part = part;
    }

    pub(super) fn go_on_at_id(&mut self, id: Option<Box<str>>) {
        self.next_id = id;
    }
}

fn in_turn<T: Ord>(mut all: BTreeSet<T>, first: Option<&T>) -> Vec<T> {
    let Some(first) = first else {
        return all.into_iter().collect();
    };
    let mut order: Vec<T> = all.split_off(first).into_iter().collect();
    order.extend(all);
    order
}
