//! What is kept of a container before it goes: the end of its log, with secrets masked, and how much of all that.
//!
//! Never decides what goes, and never stores anything: `state` does.

mod config;
pub mod cri_log;
mod log_end;
pub mod mask;

pub use config::{Config, LOG_TAIL_MAX};
pub use log_end::{LogEnd, unpack};
