//! What is made from a look for all clients who ask for the same: the first one makes it, and those who come meanwhile
//! wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::config::Config;
use crate::gc::{Plan, Policy};
use crate::metrics::scrape::NodePart;
use crate::model::{PodSandboxId, Target};
use crate::snapshot::Look;

/// The plans that are being sent.
pub(super) type Plans = SharedCache<(LookKey, Policy, BTreeSet<Target>), Plan>;
/// The node's part of the metrics page. A failed removal changes the next attempt of its sandbox.
pub(super) type NodeParts =
    SharedCache<(LookKey, Arc<Config>, BTreeMap<PodSandboxId, Timestamp>), NodePart>;

/// Values, each found by its inputs, while a caller uses it.
#[derive(Debug)]
pub(super) struct SharedCache<K, V> {
    entries: Mutex<CacheEntries<K, V>>,
    keeps_last: bool,
}

#[derive(Debug)]
struct CacheEntries<K, V> {
    all: Vec<(K, Weak<V>)>,
    last: Option<Arc<V>>,
}

impl<K: PartialEq, V> SharedCache<K, V> {
    /// Forgets a value that no caller uses.
    pub(super) fn while_used() -> Self {
        let entries = CacheEntries {
            all: Vec::new(),
            last: None,
        };
        Self {
            entries: Mutex::new(entries),
            keeps_last: false,
        }
    }

    /// Keeps the last value until another one is made.
    pub(super) fn until_next() -> Self {
        Self {
            keeps_last: true,
            ..Self::while_used()
        }
    }

    /// Returns the value of an equal key, or makes one.
    pub(super) fn get<E>(&self, of: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut held = self.entries.lock();
        held.all.retain(|(_, value)| value.strong_count() > 0);
        let mut all = held.all.iter();
        if let Some(value) = all
            .find(|(it, _)| *it == of)
            .and_then(|(_, it)| it.upgrade())
        {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        held.all.push((of, Arc::downgrade(&value)));
        held.last = self.keeps_last.then(|| Arc::clone(&value));
        Ok(value)
    }
}

/// A look as a key. It does not keep the look, but its address: no later look has an equal key.
#[derive(Debug)]
pub(super) struct LookKey(Weak<Look>);

impl LookKey {
    pub(super) fn new(look: &Arc<Look>) -> Self {
        Self(Arc::downgrade(look))
    }
}

impl PartialEq for LookKey {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}
