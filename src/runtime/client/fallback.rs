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
//! The fallback in use is remembered per connection, so that not every look pays for the ones that fail. A
//! better one is tried again as soon as the rows would fit, and from time to time. Rows that can no longer
//! change are cached while their ids exist (`row_cache`). A partial answer is never used, and an empty list
//! needs a second witness (`empty`).

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

use crisweep_proto::cri;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::Client;
use super::framing::Encoding;
use crate::model::{Container, ContainerId, Coverage, PodSandbox, PodSandboxId};
use crate::runtime::codec::ListChunk;
use crate::runtime::{Error, ListMode, Listing};
use fallback_list::{FallbackList, ListFilter, ListedRecord};
use found::FoundRows;
use row_cache::RowCache;

/// After this many looks with fallbacks the better ones are tried again, whatever the rows weigh.
const RETRY_EVERY: u32 = 10;

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
    /// The unfiltered list was over the limit, and could not be read compressed.
    in_parts: bool,
    /// The unfiltered list was over the limit, and was read compressed.
    compressed: bool,
    /// The states that are over the limit by themselves.
    tight: BTreeSet<i32>,
    /// Looks with fallbacks since the better ones were last tried.
    looks: u32,
    /// Weight of the rows found in the last incomplete list.
    tried: u64,
    refused_size: Option<RefusedSize>,
}

/// The sizes that the runtime reported when it refused the unfiltered list.
#[derive(Clone, Copy, Debug)]
struct RefusedSize {
    /// The list's weight.
    bytes: u64,
    /// The smallest limit that it exceeded.
    limit: u64,
    /// The weight of its rows, if all were found.
    rows: Option<RowsAtRefusal>,
    /// The most rows that a look has found since.
    shown: usize,
}

/// The rows of a list when the runtime reported its weight.
#[derive(Clone, Copy, Debug)]
struct RowsAtRefusal {
    count: usize,
    /// Average weight of the rows that were in no list answer.
    mean: u64,
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

    /// Returns the state in which this look begins.
    fn begin(&self, connection: u64) -> FallbackMemory {
        let mut memory = self.memory.lock();
        if memory.connection != connection {
            *memory = FallbackMemory {
                connection,
                ..FallbackMemory::default()
            };
        }
        if !memory.in_parts {
            return memory.clone();
        }
        memory.looks += 1;
        if memory.looks < RETRY_EVERY {
            return memory.clone();
        }
        memory.looks = 0;
        FallbackMemory {
            in_parts: false,
            tight: BTreeSet::new(),
            ..memory.clone()
        }
    }

    /// Stores the state in which the look ended.
    fn end(&self, kind: &'static str, ended: FallbackMemory) {
        let mut memory = self.memory.lock();
        if memory.connection != ended.connection {
            return;
        }
        if ended.is_over_limit() && !memory.is_over_limit() {
            let bytes = ended.refused_size.map(|refused_size| refused_size.bytes);
            let how = if ended.compressed {
                "compressed"
            } else {
                "in parts"
            };
            tracing::warn!(
                list = kind,
                bytes,
                "a list is over the message limit; read {how}"
            );
        } else if memory.is_over_limit() && !ended.is_over_limit() {
            tracing::info!(list = kind, "a list fits into a message again");
        }
        *memory = ended;
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

pub(super) async fn containers(client: &Client) -> Result<Listing<Container>, Error> {
    read::<cri::ContainerRow>(client).await
}

pub(super) async fn sandboxes(client: &Client) -> Result<Listing<PodSandbox>, Error> {
    read::<cri::PodSandboxRow>(client).await
}

async fn read<K: FallbackList>(client: &Client) -> Result<Listing<K::Model>, Error> {
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
    let link = client.runtime();
    link.begin::<K>();
    let state = K::list_state(&client.shared.list_states);
    let mut memory = state.begin(link.connection());
    if !memory.in_parts {
        match link.list::<K>(&K::LIST, clock.next()).await {
            Ok(answer) => return Ok(whole::<K>(client, memory, answer)),
            Err(error) => memory.refused(error)?,
        }
    }
    let (mut found, tight) = by_state::<K>(client, &memory, clock).await?;
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
    if let Some(RefusedSize { bytes, limit, .. }) = memory.refused_size
        && found.by_id.is_empty()
        && coverage != Coverage::Whole
    {
        let method = K::LIST.unary.name();
        return Err(Error::TooLarge {
            method,
            bytes,
            limit,
        });
    }
    memory.look_over(&found, tight, coverage);
    // The weight of an incomplete list is only known from the runtime: a pass that made the list fit must not take the
    // one before its removals for the present one.
    if !memory.in_parts && coverage != Coverage::Whole && !clock.is_up() {
        match link.list::<K>(&K::LIST, clock.next()).await {
            Ok(answer) => return Ok(whole::<K>(client, memory, answer)),
            Err(error @ Error::TooLarge { .. }) => {
                memory.refused(error)?;
                memory.note_shown(&found);
            }
            // The rows that were found are good; the next look tries again.
            Err(_) => {}
        }
    }
    let limit_bytes = memory.refused_size.map(|refused_size| refused_size.limit);
    let response_bytes = memory.weigh(&found, coverage);
    state.end(K::NAME, memory);
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

/// Returns a list that came in one answer, and forgets what was remembered for reading it in parts.
fn whole<K: FallbackList>(
    client: &Client,
    mut memory: FallbackMemory,
    mut list: Listing<K::Model>,
) -> Listing<K::Model> {
    memory.compressed = list.limit_bytes.is_some();
    if let Some(limit) = list.limit_bytes {
        memory.note_refusal(list.response_bytes, limit);
    }
    list.limit_bytes = memory.refused_size.map(|refused_size| refused_size.limit);
    let state = K::list_state(&client.shared.list_states);
    state.end(K::NAME, memory);
    *state.row_cache(client) = RowCache::default();
    list
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
    memory: &FallbackMemory,
    clock: Clock,
) -> Result<(FoundRows<K::Model>, BTreeSet<i32>), Error> {
    let mut found = FoundRows::default();
    let mut tight = BTreeSet::new();
    for state in K::STATES {
        if memory.tight.contains(state) {
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

impl FallbackMemory {
    fn is_over_limit(&self) -> bool {
        self.in_parts || self.compressed
    }

    /// Notes that the unfiltered list is over the limit; returns any other error.
    fn refused(&mut self, error: Error) -> Result<(), Error> {
        let Error::TooLarge { bytes, limit, .. } = error else {
            return Err(error);
        };
        self.note_refusal(bytes, limit);
        (self.in_parts, self.compressed) = (true, false);
        Ok(())
    }

    fn note_refusal(&mut self, bytes: u64, limit: u64) {
        let limit = self
            .refused_size
            .map_or(limit, |refused_size| refused_size.limit.min(limit));
        self.refused_size = Some(RefusedSize {
            bytes,
            limit,
            rows: None,
            shown: 0,
        });
    }

    fn note_shown<M>(&mut self, found: &FoundRows<M>) {
        if let Some(refused_size) = &mut self.refused_size {
            refused_size.shown = refused_size.shown.max(found.by_id.len());
        }
    }

    /// Decides from the rows where the next look begins.
    fn look_over<M>(&mut self, found: &FoundRows<M>, tight: BTreeSet<i32>, coverage: Coverage)
    where
        M: ListedRecord,
    {
        self.tight = tight;
        self.note_shown(found);
        let Some(refused_size) = &mut self.refused_size else {
            return;
        };
        if coverage == Coverage::Whole {
            let count = found.by_id.len();
            let mean = found.mean(refused_size.bytes);
            refused_size
                .rows
                .get_or_insert(RowsAtRefusal { count, mean });
        }
        let (limit, mean) = (refused_size.limit, refused_size.mean(found));
        let weighs = found.weigh(mean, |_| true);
        let fits = weighs <= limit;
        if coverage == Coverage::Whole {
            self.in_parts = !fits;
            self.tight
                .retain(|state| found.weigh(mean, |row| row.state() == *state) > limit);
            return;
        }
        // The weight of an incomplete list is unknown; try it each time it has shrunk.
        if fits && weighs < self.tried {
            self.in_parts = false;
            self.tight.clear();
        }
        self.tried = weighs;
    }

    /// Returns the weight of the unfiltered list. It is exact if every row was in a list answer, or if no row
    /// came or went since the runtime reported it; otherwise it uses average weights, or is a lower bound.
    fn weigh<M>(&self, found: &FoundRows<M>, coverage: Coverage) -> u64 {
        let weighed = found.weighed();
        let Some(refused_size) = self.refused_size else {
            return weighed;
        };
        if coverage != Coverage::Whole {
            return weighed.max(refused_size.bytes);
        }
        if found.is_all_weighed() {
            return weighed;
        }
        match refused_size.rows {
            Some(rows) if rows.count == found.by_id.len() => refused_size.bytes,
            _ => found.weigh(refused_size.mean(found), |_| true),
        }
    }
}

impl RefusedSize {
    /// Returns the average weight of a row that was in no list answer. While rows are missing, the most that were
    /// found together weigh what the runtime reported: removals since do not make the others heavier.
    fn mean<M>(&self, found: &FoundRows<M>) -> u64 {
        let count = self.shown.max(found.by_id.len()).max(1);
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let mean = || self.bytes.div_ceil(count);
        self.rows.map_or_else(mean, |rows| rows.mean)
    }
}
