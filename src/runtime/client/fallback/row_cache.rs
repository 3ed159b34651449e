//! Rows that one look at a list with fallbacks passes to the next one on the same connection.
//!
//! An exited container and a not-ready sandbox never change again: their rows are valid while the runtime has
//! their ids. Of all other rows only the sandbox name is reused. With a list of all ids, a cached row is used
//! if its id is in it. Without one, a cached row is used until its object is found gone: crisweep removed it or
//! asked about it, or a look asked again (each look asks about some, in turn). Such a list is never complete
//! and nothing is counted on it; before a removal the object and the records that supersede it are asked for
//! again.

use std::collections::{BTreeMap, BTreeSet};

use super::containerd::Ids;
use super::fallback_list::{ListFilter, ListedRecord};
use super::found::{FoundRow, FoundRows};
use crate::model::{PodSandboxId, PodUid};
use crate::runtime::codec::ListChunk;

#[derive(Debug)]
pub(super) struct RowCache<M> {
    connection: u64,
    pub(super) rows: BTreeMap<Box<str>, FoundRow<M>>,
    /// Parts of the list that are over the limit by themselves.
    pub(super) refused: BTreeSet<ListFilter>,
    /// Parts of the list that were read.
    pub(super) read: BTreeSet<ListFilter>,
    /// Pods whose part was answered with records, and nothing was found beside it since.
    whole: BTreeSet<PodUid>,
    /// Ids from file names that have no record any more.
    gone: BTreeSet<Box<str>>,
    /// Where a look ran out of time.
    pub(super) reading: ResumePoint,
    /// The same for asking again.
    pub(super) again: ResumePoint,
}

/// Where the next look goes on.
#[derive(Debug, Default)]
pub(super) struct ResumePoint {
    pub(super) part: Option<ListFilter>,
    pub(super) id: Option<Box<str>>,
}

impl<M> Default for RowCache<M> {
    fn default() -> Self {
        Self {
            connection: 0,
            rows: BTreeMap::new(),
            refused: BTreeSet::new(),
            read: BTreeSet::new(),
            whole: BTreeSet::new(),
            gone: BTreeSet::new(),
            reading: ResumePoint::default(),
            again: ResumePoint::default(),
        }
    }
}

impl<M: ListedRecord + Clone> RowCache<M> {
    /// Forgets everything from other connections.
    pub(super) fn forget_unless_from(&mut self, connection: u64) {
        if self.connection != connection {
            *self = Self {
                connection,
                ..Self::default()
            };
        }
    }

    /// Forgets rows whose id is gone; adds to `found` the missing rows that cannot have changed.
    pub(super) fn fill(&mut self, ids: &Ids, found: &mut FoundRows<M>) {
        let gone = self.rows.keys().filter(|id| !ids.contains_key(*id));
        let gone: Vec<Box<str>> = gone.cloned().collect();
        for id in &gone {
            self.forget(id);
        }
        self.gone.retain(|id| ids.contains_key(id));
        let pods: BTreeSet<&PodUid> = ids.values().flatten().collect();
        self.retain_parts(|part| matches!(part, ListFilter::Pod(uid) if pods.contains(uid)));
        self.fill_unconfirmed(found);
    }

    /// Forgets the parts that no name and no row tells of any more: a list may be over its limit for weeks. One that is
    /// named again is asked for anew.
    pub(super) fn retain_parts(&mut self, is_named: impl Fn(&ListFilter) -> bool) {
        let rows = self.rows.values().filter_map(|entry| entry.row.pod());
        let of_rows: BTreeSet<&PodUid> = rows.collect();
        let has_rows = |part: &_| matches!(part, ListFilter::Pod(uid) if of_rows.contains(uid));
        let stays = |part: &ListFilter| has_rows(part) || is_named(part);
        self.read.retain(stays);
        self.refused.retain(stays);
        self.whole
            .retain(|uid| stays(&ListFilter::Pod(uid.clone())));
    }

    /// Adds to `found` the missing rows that cannot have changed; returns their ids.
    pub(super) fn fill_unconfirmed(&self, found: &mut FoundRows<M>) -> BTreeSet<Box<str>> {
        let mut filled = BTreeSet::new();
        for (id, entry) in &self.rows {
            if entry.row.is_over() && !found.contains(id) {
                found.by_id.insert(id.clone(), entry.clone());
                filled.insert(id.clone());
            }
        }
        filled
    }

    /// Removes ids that are known to be gone: an id never comes back.
    pub(super) fn without_gone(&mut self, named: &BTreeSet<Box<str>>) -> BTreeSet<Box<str>> {
        self.gone.retain(|id| named.contains(id));
        named - &self.gone
    }

    /// Notes that an object is gone.
    pub(super) fn note_gone(&mut self, id: &str) {
        self.forget(id);
        self.gone.insert(id.into());
    }

    /// Forgets an object that another client has removed: it may have made others of the pod.
    fn forget(&mut self, id: &str) {
        if let Some(entry) = self.rows.remove(id)
            && let Some(uid) = entry.row.pod()
        {
            self.is_no_longer_whole(uid);
        }
    }

    pub(super) fn is_gone(&self, id: &str) -> bool {
        self.gone.contains(id)
    }

    /// Notes what a part's answer says of its pod: all, if it has records, and each is readable and of this pod.
    pub(super) fn note_part(&mut self, part: &ListFilter, page: &ListChunk<M>) {
        let ListFilter::Pod(uid) = part else { return };
        let is_of_pod = |row: &M| row.pod() == Some(uid);
        if page.malformed == 0 && !page.rows.is_empty() && page.rows.iter().all(is_of_pod) {
            self.whole.insert(uid.clone());
        } else {
            self.whole.remove(uid);
        }
    }

    /// Notes that a part could not be read.
    pub(super) fn note_unread(&mut self, part: &ListFilter) {
        if let ListFilter::Pod(uid) = part {
            self.whole.remove(uid);
        }
    }

    /// Keeps the row of an object.
    pub(super) fn keep(&mut self, id: &str, entry: FoundRow<M>) {
        if !self.rows.contains_key(id)
            && let Some(uid) = entry.row.pod()
        {
            self.is_no_longer_whole(uid);
        }
        self.rows.insert(id.into(), entry);
    }

    /// Lets the next look ask for the pod again.
    fn is_no_longer_whole(&mut self, uid: &PodUid) {
        if self.whole.remove(uid) {
            self.read.remove(&ListFilter::Pod(uid.clone()));
        }
    }

    /// Forgets cached rows of a part that its answer lacks; returns their ids.
    pub(super) fn forget_others(
        &mut self,
        part: &ListFilter,
        page: &ListChunk<M>,
    ) -> Vec<Box<str>> {
        let of_part = |row: &M| match part {
            // A state is never a part: no row of it is kept for its list.
            ListFilter::State(_) => false,
            ListFilter::Pod(uid) => row.pod() == Some(uid),
            ListFilter::Sandbox(id) => row.sandbox() == id,
        };
        let is_there = |row: &M| page.rows.iter().any(|it| it.id() == row.id());
        let rows = self.rows.iter().map(|(id, entry)| (id, &entry.row));
        let gone = rows.filter(|(_, row)| of_part(row) && !is_there(row));
        let gone: Vec<Box<str>> = gone.map(|(id, _)| id.clone()).collect();
        for id in &gone {
            self.forget(id);
        }
        gone
    }

    /// Notes rows that came since their pods' parts were read.
    pub(super) fn note_new<'a>(&mut self, rows: impl Iterator<Item = &'a M>)
    where
        M: 'a,
    {
        for row in rows {
            if let Some(uid) = row.pod()
                && !self.rows.contains_key(row.id())
            {
                self.is_no_longer_whole(uid);
            }
        }
    }

    /// Returns the pods of which `found` has every row, as far as the runtime tells by its answer for the pod's part
    /// and by all answers since.
    pub(super) fn whole_pods(&mut self, found: &FoundRows<M>) -> BTreeSet<PodUid> {
        self.note_new(found.rows());
        let shown: BTreeSet<&PodUid> = found.rows().filter_map(ListedRecord::pod).collect();
        let lost = self.rows.iter().filter(|(id, _)| !found.contains(id));
        let lost: BTreeSet<&PodUid> = lost.filter_map(|(_, entry)| entry.row.pod()).collect();
        let whole = self.whole.iter();
        let whole = whole.filter(|uid| shown.contains(uid) && !lost.contains(uid));
        whole.cloned().collect()
    }

    /// Returns the pod and the sandbox of each row.
    pub(super) fn names(&self) -> BTreeSet<(Option<PodUid>, PodSandboxId)> {
        let rows = self.rows.values().map(|entry| &entry.row);
        rows.map(|row| (row.pod().cloned(), row.sandbox().clone()))
            .collect()
    }

    pub(super) fn row(&self, id: &str) -> Option<&M> {
        self.rows.get(id).map(|entry| &entry.row)
    }

    pub(super) fn keep_page(&mut self, page: &ListChunk<M>) {
        for row in &page.rows {
            self.keep(row.id(), FoundRow::listed(row.clone()));
        }
    }
}

/// Orders parts or ids so that those come first that the last look did not reach.
pub(super) fn in_turn<T: Ord>(mut all: BTreeSet<T>, first: Option<&T>) -> Vec<T> {
    let Some(first) = first else {
        return all.into_iter().collect();
    };
    let mut order: Vec<T> = all.split_off(first).into_iter().collect();
    order.extend(all);
    order
}
