//! What outlives the process: the journal of passes, image ages, and the lock that allows one crisweep per
//! node.
//!
//! Everything is best effort: the disk is full, slow or broken exactly when a pass is needed. A failed write
//! is counted and logged, and nothing waits for it. Files get their full size at the first start and are
//! written in place, which works on a full disk. Unreadable files are set aside and replaced by new ones.

mod ages;
mod config;
mod entry;
mod files;
mod frame;
mod history;
mod journal;
mod lock;
mod owner;
mod ring;
mod slots;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use ages::{Ages, ENTRIES_MAX, KEY_MAX_BYTES};
pub use config::Config;
pub use history::{History, interrupt};
pub use journal::{Journal, Opened};
pub use lock::{Held, Holder, Socket, held};
pub use owner::{Owner, give};
pub use slots::peek as read_ages;
pub use store::past_failures;
pub use writer::{Part, Status};
