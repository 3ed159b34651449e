//! Operating system services for crisweep itself: bounded threads for calls that a disk may block, small files,
//! and freed memory.

pub mod blocking;
pub mod file;
pub mod memory;
