//! What outlives the process: the journal of passes, image ages, and the lock that keeps a second
//! crisweep off the node.
//!
//! Everything is best effort. The disk is full, slow or broken exactly when a pass is needed, so a
//! write that fails is counted and logged, and nothing waits for it. Files have their size from the
//! first start on and are written in place: that works on a full disk. What cannot be read is set
//! aside and begun anew.

mod ages;
mod config;
mod entry;
mod files;
mod frame;
mod history;
mod journal;
mod lock;
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
pub use slots::peek as read_ages;
pub use store::past_failures;
pub use writer::{Part, Status};
