//! What outlives the process: one SQLite database of passes, removals, failures, image ages, the fleet's hold and an outage, and
//! the lock that allows one crisweep per node.
//!
//! Everything is best effort: the disk is full, slow or broken exactly when a pass is needed. A failed write is counted
//! and logged, and nothing waits for it. One thread uses the files. The database takes its room at the first start and
//! writes in it from then on, which works on a full disk. A damaged file is set aside and replaced by a new one.

mod ages;
mod audit;
mod config;
mod database;
mod evidence;
mod files;
mod filter;
mod health;
mod hold;
mod journal;
mod lines;
mod lock;
mod outage;
mod owner;
mod parameters;
mod passes;
mod past;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use ages::{ENTRIES_MAX, ImageAges, KEY_MAX_BYTES};
pub use audit::{PASSES_MAX, PassFilter, REMOVALS_MAX, RemovalFilter, RemovalRecord, read_passes};
pub use config::Config;
pub use database::{DatabaseLimits, Error};
pub use evidence::{
    EvidenceBounds, EvidenceFilter, EvidenceFound, EvidenceOf, EvidenceRoom, ID_PREFIX_MIN,
};
pub use filter::{Question, ResultPage, ask};
pub use health::StateStatus;
pub use journal::{Journal, Opened};
pub use lines::LinesTo;
pub use lock::{LockHeld, held};
pub use owner::give;
pub use parameters::Parameters;
pub use passes::{History, interrupt};
pub use past::{Past, PastQuestion, RemovedOfPod};
pub use snapshots::SnapshotBefore;
pub use store::{Stored, read_stored};
