//! Maps by what the runtime's lists hold: ids, names, labels, and addresses of such values. Their hash is quick and
//! randomly seeded, but does not withstand a client that sees its effects: never use them for what a client sends.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// A map by such ids.
pub type IdMap<K, V> = HashMap<K, V, RandomState>;

/// A set of such ids.
pub type IdSet<K> = HashSet<K, RandomState>;
