//! What is known of the RPCs that stream lists, and whether one is worth a try.

use parking_lot::Mutex;

/// How many times in a row a stream must break before the list is read in one answer instead. The first
/// times it may be the runtime that goes away.
pub(super) const BREAKS_MAX: u32 = 3;
/// How many lists are read without a stream that keeps breaking before it is tried again.
pub(super) const LISTS_WITHOUT: u32 = 10;

/// What is known of each list's streaming RPC.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) containers: Mutex<Stream>,
    pub(super) sandboxes: Mutex<Stream>,
    pub(super) images: Mutex<Stream>,
}

/// What is known of one streaming RPC. What was learned holds for its connection alone: a restarted
/// runtime may have been upgraded. How often it broke outlives the connection, which may break with it.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The number of the connection on which it is not to be tried.
    pub(super) useless_on: u64,
    /// How many lists to read without it there; `None`: all, because it is missing.
    pub(super) lists_left: Option<u32>,
    /// How many times it broke since it last worked.
    pub(super) breaks: u32,
}

impl Stream {
    /// Says whether this list is to be tried as a stream.
    pub(super) fn is_worth_a_try(&mut self, connection: u64) -> bool {
        if connection == 0 || self.useless_on != connection {
            return true;
        }
        match &mut self.lists_left {
            None => false,
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// Notes that it broke; says whether it does so all the time.
    pub(super) fn broke(&mut self) -> bool {
        self.breaks = self.breaks.saturating_add(1);
        self.breaks >= BREAKS_MAX
    }
}
