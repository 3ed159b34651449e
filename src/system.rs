//! What the service asks of the operating system for itself: bounded threads for calls that a disk may hold, and
//! memory given back.

pub mod blocking;
pub mod memory;
