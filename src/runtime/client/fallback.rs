//! Reads a list of any size, with fallbacks in this order:
//!
//! - the streaming RPC,
//! - one unfiltered answer,
//! - the same, compressed: a runtime compares with its limit what it sends,
//! - one answer per state, and for states that are over the limit by themselves (`by_name`):
//! - one answer per pod, if containerd's own container service names its containers and a list is cheaper than
//!   asking for each; without that service, one per pod and sandbox with another known name,
//! - one question per remaining id.
//!
//! That the whole list was refused is remembered per connection, so that not every look pays for it. It is tried again
//! once the number of rows has changed: a second refusal has the list's present weight. Rows that can no longer change
//! are cached while their ids exist (`row_cache`). A partial answer is never used, and an empty list needs a second
//! witness (`empty`).

mod by_name;
mod containerd;
mod disk;
mod empty;
mod fallback_list;
mod found;
mod questions;
mod row_cache;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::Client;
use super::framing::Encoding;
use crate::model::{Container, ContainerId, Coverage, PodSandbox, PodSandboxId};
use crate::runtime::codec::ListChunk;
use crate::runtime::{Error, ListMode, Listing};
use fallback_list::ListedRecord;
pub(super) use fallback_list::{FallbackList, ListFilter};
use found::FoundRows;
use row_cache::RowCache;

/// Time for a whole list, in deadlines of one call: the look has other work, and a caller waits for it. Unread
/// rows stay unread, and the list is marked incomplete.
const DEADLINES: u32 = 3;

/// The state of both lists.
#[derive(Debug, Default)]
pub(super) struct ListStates {
    containers: ListState<Container>,
    sandboxes: ListState<PodSandbox>,
    /// The connection on which containerd's own service was found missing.
    service_missing: std::sync::atomic::AtomicU64,
}

impl Client {
    /// Forgets a removed container: no later look uses its cached row.
    pub(super) fn forget_container(&self, id: &ContainerId) {
        let state = &self.shared.list_states.containers;
        state.row_cache(self).rows.remove(id.as_str());
    }

    /// The same for a sandbox.
    pub(super) fn forget_sandbox(&self, id: &PodSandboxId) {
        let state = &self.shared.list_states.sandboxes;
        state.row_cache(self).rows.remove(id.as_str());
    }
}

/// What is remembered of one list between looks.
#[derive(Debug)]
pub(super) struct ListState<M> {
    memory: Mutex<FallbackMemory>,
    row_cache: Mutex<RowCache<M>>,
}

impl<M> Default for ListState<M> {
    fn default() -> Self {
        Self {
            memory: Mutex::default(),
            row_cache: Mutex::default(),
        }
    }
}

/// What holds for one connection; a restarted runtime may have been upgraded.
#[derive(Clone, Debug, Default)]
struct FallbackMemory {
    connection: u64,
    /// The smallest limit that the list has exceeded.
    limit: Option<u64>,
    /// The list is over the limit.
    is_over: bool,
    /// How the runtime refused the list, where it could not be read compressed either.
    in_parts: Option<Refusal>,
}

/// A list that the runtime refused to send in one answer.
#[derive(Clone, Debug)]
struct Refusal {
    /// The list's weight.
    bytes: u64,
    limit: u64,
    /// The limit is ours, not the runtime's.
    is_ours: bool,
    /// The rows that were found then.
    rows: usize,
    /// The states that are over the limit by themselves.
    tight: BTreeSet<i32>,
}

impl<M> ListState<M> {
    /// Returns the cached rows of the client's present connection.
    fn row_cache(&self, client: &Client) -> MutexGuard<'_, RowCache<M>>
    where
        M: ListedRecord + Clone,
    {
        let mut row_cache = self.row_cache.lock();
        row_cache.forget_unless_from(client.runtime().connection());
        row_cache
    }

    /// Returns what is remembered of this connection.
    fn memory(&self, connection: u64) -> MutexGuard<'_, FallbackMemory> {
        let mut memory = self.memory.lock();
        if memory.connection != connection {
            *memory = FallbackMemory {
                connection,
                ..FallbackMemory::default()
            };
        }
        memory
    }
}

impl FallbackMemory {
    /// Notes how a look has read the list, and which limit of the runtime it exceeds; returns the smallest one.
    fn note(
        &mut self,
        list: &'static str,
        over: Option<u64>,
        in_parts: Option<Refusal>,
    ) -> Option<u64> {
        let is_over = over.is_some() || in_parts.is_some();
        let was_over = std::mem::replace(&mut self.is_over, is_over);
        if self.is_over && !was_over {
            tracing::warn!(list, "a list is over the message limit");
        } else if was_over && !self.is_over {
            tracing::info!(list, "a list fits into a message again");
        }
        self.limit = self.limit.into_iter().chain(over).min();
        self.in_parts = in_parts;
        self.limit
    }
}

/// The time limit for reading a list.
#[derive(Clone, Copy, Debug)]
struct Clock {
    until: Instant,
    each: Duration,
}

impl Clock {
    fn new(each: Duration) -> Self {
        let until = Instant::now() + each.saturating_mul(DEADLINES);
        Self { until, each }
    }

    /// Returns the deadline of the next call; zero when time is up.
    fn next(&self) -> Duration {
        self.until
            .saturating_duration_since(Instant::now())
            .min(self.each)
    }

    fn is_up(&self) -> bool {
        self.next().is_zero()
    }
}

/// Reads a list, in the best way that works.
pub(super) async fn read<K: FallbackList>(client: &Client) -> Result<Listing<K::Model>, Error> {
    let clock = Clock::new(client.timeout());
    let mut listed = descend::<K>(client, clock).await?;
    let is_empty = listed.rows.is_empty() && listed.malformed == 0;
    if is_empty && listed.coverage == Coverage::Whole {
        listed.coverage = empty::coverage::<K>(client, clock).await?;
    }
    Ok(listed)
}

async fn descend<K: FallbackList>(
    client: &Client,
    clock: Clock,
) -> Result<Listing<K::Model>, Error> {
    client.runtime().begin::<K>();
    let connection = client.runtime().connection();
    let state = K::list_state(&client.shared.list_states);
    let remembered = state.memory(connection).in_parts.clone();
    let mut refusal = match remembered.clone() {
        Some(refusal) => refusal,
        None => match at_once::<K>(client, clock).await? {
            Ok(list) => return Ok(list),
            Err(refusal) => refusal,
        },
    };
    let (mut found, tight) = by_state::<K>(client, &refusal.tight, clock).await?;
    let (mut mode, mut coverage, mut cut_short) = (ListMode::PerState, Coverage::Whole, false);
    let mut whole_pods = BTreeSet::new();
    if tight.is_empty() {
        *state.row_cache(client) = RowCache::default();
    } else {
        let named = by_name::read::<K>(client, &mut found, clock).await?;
        (mode, cut_short) = (named.mode, named.cut_short);
        coverage = match named.is_whole {
            true => Coverage::Whole,
            false if K::MAY_LIVE.iter().any(|state| tight.contains(state)) => Coverage::Partial,
            false => Coverage::Living,
        };
        whole_pods = named.whole_pods;
    }
    refusal.tight = tight;
    let rows = found.by_id.len();
    match remembered {
        None => refusal.rows = rows,
        Some(before) if before.rows != rows && !clock.is_up() => {
            match at_once::<K>(client, clock).await {
                Ok(Ok(list)) => return Ok(list),
                Ok(Err(again)) => refusal = Refusal { rows, ..again },
                // The rows that were found are good; the next look tries again.
                Err(_) => {}
            }
        }
        Some(_) => {}
    }
    let (response_bytes, limit, is_ours) = (refusal.bytes, refusal.limit, refusal.is_ours);
    let mut memory = state.memory(connection);
    if rows == 0 && coverage != Coverage::Whole {
        memory.in_parts = None;
        return Err(Error::TooLarge {
            method: K::LIST.unary.name(),
            bytes: response_bytes,
            limit,
            is_ours,
        });
    }
    let told = (!is_ours).then_some(limit);
    let limit_bytes = memory.note(K::NAME, told, Some(refusal));
    let (rows, malformed, mounted) = found.into_parts();
    Ok(Listing {
        rows: rows.into(),
        malformed,
        mounted,
        odd: 0,
        coverage,
        whole_pods,
        cut_short,
        response_bytes,
        limit_bytes,
        mode,
    })
}

/// Reads the list in one answer, and forgets what was remembered for reading it in parts.
async fn at_once<K: FallbackList>(
    client: &Client,
    clock: Clock,
) -> Result<Result<Listing<K::Model>, Refusal>, Error> {
    let link = client.runtime();
    match link.list::<K>(&K::LIST, clock.next()).await {
        Ok(mut list) => {
            let state = K::list_state(&client.shared.list_states);
            let mut memory = state.memory(link.connection());
            list.limit_bytes = memory.note(K::NAME, list.limit_bytes, None);
            *state.row_cache(client) = RowCache::default();
            Ok(Ok(list))
        }
        Err(Error::TooLarge {
            bytes,
            limit,
            is_ours,
            ..
        }) => Ok(Err(Refusal {
            bytes,
            limit,
            is_ours,
            rows: 0,
            tight: BTreeSet::new(),
        })),
        Err(error) => Err(error),
    }
}

/// Asks state by state; returns also the states that are over the limit by themselves, or that the runtime cannot ask
/// for (Docker knows no unknown state, and none of its other filters finds paused or dead containers).
///
/// The order is that in which objects move (created, running, unknown, exited; ready, not ready), and none
/// moves back. So an object that changes its state between two answers is in the second one: each object that
/// existed at the first call is seen at least once, and one that is seen twice was last seen in its later
/// state. Objects created in between may be missing, as from one list taken at the first call.
async fn by_state<K: FallbackList>(
    client: &Client,
    known_tight: &BTreeSet<i32>,
    clock: Clock,
) -> Result<(FoundRows<K::Model>, BTreeSet<i32>), Error> {
    let mut found = FoundRows::default();
    let mut tight = BTreeSet::new();
    for state in K::STATES {
        if known_tight.contains(state) {
            tight.insert(*state);
            continue;
        }
        match ask::<K>(client, ListFilter::State(*state), clock).await {
            Ok(page) => {
                // At once: the look may end here, and the next one may not see them.
                let known = K::list_state(&client.shared.list_states);
                known.row_cache(client).note_new(page.rows.iter());
                found.add(page);
            }
            Err(Error::TooLarge { .. }) => {
                tight.insert(*state);
            }
            Err(error) if error.is_unknown_filter() => {
                tight.insert(*state);
            }
            Err(error) => return Err(error),
        }
    }
    Ok((found, tight))
}

async fn ask<K: FallbackList>(
    client: &Client,
    question: ListFilter,
    clock: Clock,
) -> Result<ListChunk<K::Model>, Error> {
    let deadline = clock.next();
    if deadline.is_zero() {
        let method = K::LIST.unary.name();
        let after = clock.each.saturating_mul(DEADLINES);
        return Err(Error::Timeout { method, after });
    }
    let (link, message) = (client.runtime(), K::request(question));
    let plain = (message, Encoding::Plain);
    link.page::<K::Request, K>(&link.shared, K::LIST.unary, plain, deadline)
        .await
}
