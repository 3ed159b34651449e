//! What passes ask of disks, and how many threads that may cost.

use crate::system::aside::Aside;

/// Removals of logs at a time, and threads that a disk that hangs may cost them.
const LOG_CALLS_MAX: usize = 4;

/// Threads for what passes ask of disks, the same for all passes: a disk that hangs must not cost more with
/// each of them.
#[derive(Clone, Debug)]
pub struct DiskThreads {
    pub(super) logs: Aside,
    pub(super) pressure: Aside,
}

impl Default for DiskThreads {
    fn default() -> Self {
        Self {
            logs: Aside::new(LOG_CALLS_MAX),
            pressure: Aside::new(1),
        }
    }
}
