//! `state:` - where the state is, and how much room it has.

use std::path::PathBuf;

use super::lines::LinesTo;
use crate::model::setting::{AbsolutePath, As, Optional, Size, Whole, settings, text_kinds};

/// The smallest and the largest journal.
const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 64 << 20;

settings! {
    /// `state:` - what outlives the process.
    #[derive(Eq)]
    pub struct Config {
        /// The directory of the database and of the lock against a second crisweep. `null` keeps nothing and holds no
        /// lock.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub dir: Option<PathBuf> = Some("/var/lib/crisweep".into()),
        /// Room for the records of passes and removals in the database, claimed in full at the first start. 4 MiB keep
        /// some 7,800 removals and 500 passes. A new value holds from the next start; a file never shrinks by itself.
        #[serde(with = "As::<Size<u64, BYTES_MIN, BYTES_MAX>>")]
        pub journal_bytes: u64 = 4 << 20,
        /// Snapshots of the node that are kept from before the last passes that removed something, for `crisweep
        /// simulate`; 0: none. All together take at most 8 MiB; one that takes more than 4 MiB is not kept.
        #[serde(with = "As::<Whole<u32, 0, 20>>")]
        pub snapshots: u32 = 5,
        /// Where each pass and each removal is written as a line of JSON, for shipping: `stdout`, or a file that
        /// logrotate may move. `null`: nowhere.
        #[serde(with = "As::<Optional<Destination>>")]
        pub audit_lines: Option<LinesTo> = None,
    }
}

text_kinds! {
    Destination -> LinesTo, "`stdout`, or an absolute path", |text| {
        match text {
            "stdout" => Some(LinesTo::Stdout),
            path => AbsolutePath::read(path).map(LinesTo::File),
        }
    };
}

impl Config {
    /// Returns how much room the database may take.
    pub fn limits(&self, evidence_bytes: u64) -> super::DatabaseLimits {
        super::DatabaseLimits {
            evidence_bytes,
            journal_bytes: self.journal_bytes,
        }
    }
}
