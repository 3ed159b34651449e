//! The state of the RPCs that stream lists, and whether to try one.

use parking_lot::Mutex;

/// How many times in a row a stream must break before the list is read unary. The first times the runtime may
/// be going away.
pub(super) const BREAKS_MAX: u32 = 3;
/// How many lists are read without a stream that keeps breaking before it is tried again.
pub(super) const LISTS_WITHOUT: u32 = 10;

/// The state of each list's streaming RPC.
#[derive(Debug, Default)]
pub(super) struct ListStreams {
    pub(super) containers: Mutex<ListStream>,
    pub(super) sandboxes: Mutex<ListStream>,
    pub(super) images: Mutex<ListStream>,
}

/// The state of one streaming RPC. It is valid for one connection: a restarted runtime may have been upgraded.
/// The number of breaks outlives the connection, which may break with the stream.
#[derive(Debug, Default)]
pub(super) struct ListStream {
    /// The connection on which it must not be tried.
    pub(super) useless_on: u64,
    /// How many more lists to read without it there; `None`: all, because the RPC is missing.
    pub(super) lists_left: Option<u32>,
    /// How many times it broke since it last worked.
    pub(super) breaks: u32,
}

impl ListStream {
    /// Says whether to try this list as a stream.
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

    /// Notes that it broke; says whether it always does.
    pub(super) fn broke(&mut self) -> bool {
        self.breaks = self.breaks.saturating_add(1);
        self.breaks >= BREAKS_MAX
    }
}
