//! What is kept of a container before it goes: the end of its log, with secrets masked.
//!
//! Never reads a file itself, and never decides what goes.

pub mod cri_log;
pub mod mask;
