//! Ways to read a list that a runtime may lack (its streaming RPC, a compressed answer), and whether to try one.

use std::collections::BTreeMap;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

/// How many times in a row a stream must break before the list is read unary. The first times the runtime may
/// be going away.
pub(super) const BREAKS_MAX: u32 = 3;
/// How many lists are read in another way before one that failed is tried again.
pub(super) const LISTS_WITHOUT: u32 = 10;

/// The state of one way for each list, by the list's unary RPC.
#[derive(Debug, Default)]
pub(super) struct ListWays(Mutex<BTreeMap<&'static str, ListWay>>);

impl ListWays {
    pub(super) fn of(&self, list: &'static str) -> MappedMutexGuard<'_, ListWay> {
        MutexGuard::map(self.0.lock(), |ways| ways.entry(list).or_default())
    }
}

/// The state of one way to read one list. It is valid for one connection: a restarted runtime may have been upgraded.
/// The number of breaks outlives the connection, which may break with a stream.
#[derive(Debug, Default)]
pub(super) struct ListWay {
    /// The connection on which it must not be tried.
    useless_on: u64,
    /// How many more lists to read without it there; `None`: all, because the runtime lacks it.
    lists_left: Option<u32>,
    /// How many times it broke since it last worked.
    pub(super) breaks: u32,
}

impl ListWay {
    /// Says whether to try this list in this way.
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

    /// Reads this many lists in another way on a connection; `None`: all of them.
    pub(super) fn leave(&mut self, connection: u64, lists: Option<u32>) {
        self.useless_on = connection;
        self.lists_left = lists;
    }

    /// Notes that it broke; says whether it always does.
    pub(super) fn broke(&mut self) -> bool {
        self.breaks = self.breaks.saturating_add(1);
        self.breaks >= BREAKS_MAX
    }
}
