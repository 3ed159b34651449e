//! `state:` - where the state is, and how much room it has.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ring::{BYTES_MAX, BYTES_MIN};
use crate::model::setting::{self, AbsolutePath};

/// `state:` - what outlives the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The directory; `None`: nothing is stored and no lock is held.
    #[serde(deserialize_with = "setting::optional::<AbsolutePath, _>")]
    pub dir: Option<PathBuf>,
    /// The journal's size.
    #[serde(
        serialize_with = "setting::show_size",
        deserialize_with = "setting::size::<BYTES_MIN, BYTES_MAX, _, _>"
    )]
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
