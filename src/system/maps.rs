//! Maps by ids that the runtime or the API server made up. Their hash is quick and seeded by chance, and no proof
//! against somebody who may choose many keys: never use them for what a client sends.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// A map by such ids.
pub type IdMap<K, V> = HashMap<K, V, RandomState>;

/// A set of such ids.
pub type IdSet<K> = HashSet<K, RandomState>;
