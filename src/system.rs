//! Operating system services for crisweep itself: bounded threads for calls that a disk may block, and freed
//! memory.

pub mod blocking;
pub mod memory;
