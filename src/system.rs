//! Operating system services for crisweep itself: bounded threads for calls that a disk may block, small files,
//! YAML within bounds, freed memory, quick maps, the service manager, peers that stop reading, and whether the service's
//! loops make progress.

pub mod blocking;
pub mod file;
pub mod manager;
pub mod maps;
pub mod memory;
pub mod pulse;
pub mod stall;
pub mod yaml;
