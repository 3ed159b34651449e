//! A bounded set of digests; the oldest makes room.

use std::collections::{BTreeSet, VecDeque};

use crate::access::digest::Digest;

pub(super) struct RecentDigests {
    most: usize,
    digests: BTreeSet<Digest>,
    in_order: VecDeque<Digest>,
}

impl RecentDigests {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            digests: BTreeSet::new(),
            in_order: VecDeque::new(),
        }
    }

    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.digests.contains(digest)
    }

    pub(super) fn insert(&mut self, digest: Digest) {
        if self.digests.insert(digest) {
            self.in_order.push_back(digest);
        }
        if self.in_order.len() > self.most
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.digests.remove(&oldest);
        }
    }
}
