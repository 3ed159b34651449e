//! `state:` - where the state is, and how much room it has.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ring::{BYTES_MAX, BYTES_MIN};
use crate::model::setting::{AbsolutePath, As, Optional, Size};

/// `state:` - what outlives the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The directory of the journal, the image ages, and the lock against a second crisweep. `null` keeps nothing and
    /// holds no lock.
    #[serde(with = "As::<Optional<AbsolutePath>>")]
    pub dir: Option<PathBuf>,
    /// The journal's size, allocated in full at the first start. When it is changed, the history moves to a file of
    /// the new size at the next start.
    #[serde(with = "As::<Size<u64, BYTES_MIN, BYTES_MAX>>")]
    #[cfg_attr(test, schemars(extend("x-advanced" = true)))]
    pub journal_bytes: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: Some("/var/lib/crisweep".into()),
            journal_bytes: 4 << 20,
        }
    }
}
