//! Asks for parts of a list and for single records, a few at a time.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::MutexGuard;

use super::fallback_list::{ListFilter, ListedRecord};
use super::found::{FoundRow, FoundRows};
use super::row_cache::{ResumePoint, RowCache, in_turn};
use super::{Client, Clock, Error, FallbackList, ask};
use crate::runtime::codec::ListChunk;

/// Calls about single ids in flight: enough to hide the round trip, too few to burden a sick runtime.
const IDS_IN_FLIGHT: usize = 16;
/// Filtered lists in flight: each makes the runtime walk through all its records.
const LISTS_IN_FLIGHT: usize = 4;
/// After this many timeouts a look asks no more.
const TIMEOUTS_MAX: usize = 4;
/// After this many answers over the limit, with none below it, the runtime evidently ignores the filter.
const OVER_LIMIT_MAX: usize = 3;

/// How long a look asks again for rows that an earlier look has read and that nothing confirms: ids first, then
/// parts.
const AGAIN: Duration = Duration::from_millis(250);

/// The result of asking for ids.
pub(super) struct IdsResult {
    /// Each id was found or is gone.
    pub(super) all: bool,
    /// At least one was found.
    pub(super) any: bool,
    /// The first id for which time ran out.
    next: Option<Box<str>>,
}

/// What a look asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadRound {
    /// Objects that no look has read.
    First,
    /// Objects that an earlier look has read.
    Again,
}

/// The calls about one list.
pub(super) struct Questions<'a, K> {
    client: &'a Client,
    pub(super) clock: Clock,
    answers: usize,
    over_limit: usize,
    timeouts: usize,
    /// Time ran out before everything was asked for.
    pub(super) cut_short: bool,
    /// The runtime answered a call about a record or a part.
    pub(super) answered: bool,
    asks: ReadRound,
    /// No call begins after this.
    begins_until: Instant,
    /// Whether the rows are cached for the next look.
    keeps: bool,
    kind: PhantomData<fn() -> K>,
}

impl<'a, K: FallbackList> Questions<'a, K> {
    pub(super) fn new(client: &'a Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            answers: 0,
            over_limit: 0,
            timeouts: 0,
            cut_short: false,
            answered: false,
            asks: ReadRound::First,
            begins_until: clock.until,
            keeps: false,
            kind: PhantomData,
        }
    }

    /// Returns an instance that caches its rows for the next look.
    pub(super) fn keeping(client: &'a Client, clock: Clock) -> Self {
        Self {
            keeps: true,
            ..Self::new(client, clock)
        }
    }

    /// Says whether asking for more is pointless.
    fn is_over(&self) -> bool {
        Instant::now() >= self.begins_until || self.clock.is_up() || self.timeouts >= TIMEOUTS_MAX
    }

    /// Says whether the runtime applies filters, as far as is known.
    fn has_filters(&self) -> bool {
        self.answers > 0 || self.over_limit < OVER_LIMIT_MAX
    }

    fn row_cache(&self) -> MutexGuard<'a, RowCache<K::Model>> {
        K::list_state(&self.client.shared.list_states).row_cache(self.client)
    }

    /// Changes where the next look goes on.
    fn resume<T>(&self, change: impl FnOnce(&mut ResumePoint) -> T) -> T {
        let mut row_cache = self.row_cache();
        change(match self.asks {
            ReadRound::First => &mut row_cache.reading,
            ReadRound::Again => &mut row_cache.again,
        })
    }

    /// Asks for parts of the list, starting where the last look ran out of time. Says whether all were asked
    /// for.
    pub(super) async fn parts(
        &mut self,
        parts: BTreeSet<ListFilter>,
        found: &mut FoundRows<K::Model>,
    ) -> Result<bool, Error> {
        let (client, clock) = (self.client, self.clock);
        let parts = self.resume(|from| in_turn(parts, from.part.as_ref()));
        let mut queue = parts.into_iter();
        let mut calls = FuturesUnordered::new();
        loop {
            while self.has_filters() && !self.is_over() && calls.len() < LISTS_IN_FLIGHT {
                let Some(part) = queue.next() else { break };
                calls.push(async move {
                    let answer = ask::<K>(client, part.clone(), clock).await;
                    (part, answer)
                });
            }
            let Some((part, answer)) = calls.next().await else {
                break;
            };
            self.take(part, answer, found)?;
        }
        if self.keeps && !self.has_filters() {
            let mut row_cache = self.row_cache();
            for part in queue.by_ref() {
                row_cache.note_unread(&part);
                row_cache.refused.insert(part);
            }
        }
        let next = queue.next();
        let got_to_each = next.is_none();
        self.cut_short |= !got_to_each && self.has_filters();
        self.resume(|from| from.part = next);
        Ok(got_to_each)
    }

    /// Takes an answer. Any failure except a lost runtime only leaves a gap.
    fn take(
        &mut self,
        part: ListFilter,
        answer: Result<ListChunk<K::Model>, Error>,
        found: &mut FoundRows<K::Model>,
    ) -> Result<(), Error> {
        match answer {
            Ok(page) => {
                self.answers += 1;
                self.answered = true;
                if self.keeps {
                    let mut row_cache = self.row_cache();
                    let gone = row_cache.forget_others(&part, &page);
                    for id in &gone {
                        found.by_id.remove(id);
                    }
                    row_cache.keep_page(&page);
                    row_cache.note_part(&part, &page);
                    row_cache.read.insert(part);
                }
                found.add(page);
            }
            Err(error) if error.is_lost() => return Err(error),
            Err(Error::TooLarge { .. }) => {
                self.over_limit += 1;
                if self.keeps {
                    let mut row_cache = self.row_cache();
                    row_cache.note_unread(&part);
                    row_cache.refused.insert(part);
                }
            }
            Err(error) => {
                if self.keeps {
                    self.row_cache().note_unread(&part);
                }
                self.timed_out(&error);
                tracing::debug!(%error, ?part, "a part of a list cannot be read");
            }
        }
        Ok(())
    }

    /// Asks id by id, starting where the last look ran out of time. Says whether each was found or is gone.
    pub(super) async fn one_by_one(
        &mut self,
        ids: BTreeSet<Box<str>>,
        found: &mut FoundRows<K::Model>,
    ) -> Result<bool, Error> {
        let ids = self.resume(|from| in_turn(ids, from.id.as_ref()));
        let ended = self.ids(ids, found).await?;
        self.resume(|from| from.id = ended.next);
        Ok(ended.all)
    }

    /// Asks again, for a short time each, for records and parts that earlier looks have read, in turn.
    pub(super) async fn again(
        &mut self,
        ids: BTreeSet<Box<str>>,
        parts: BTreeSet<ListFilter>,
        found: &mut FoundRows<K::Model>,
    ) -> Result<(), Error> {
        let mut again = Self::keeping(self.client, self.clock);
        again.asks = ReadRound::Again;
        again.begins_until = Instant::now() + AGAIN;
        again.one_by_one(ids, found).await?;
        again.begins_until = Instant::now() + AGAIN;
        again.parts(parts, found).await?;
        self.answered |= again.answered;
        Ok(())
    }

    /// Asks id by id.
    pub(super) async fn ids(
        &mut self,
        ids: Vec<Box<str>>,
        found: &mut FoundRows<K::Model>,
    ) -> Result<IdsResult, Error> {
        let (client, clock) = (self.client, self.clock);
        let (mut all, mut any) = (true, false);
        let mut queue = ids.into_iter();
        let mut calls = FuturesUnordered::new();
        loop {
            while !self.is_over() && calls.len() < IDS_IN_FLIGHT {
                let Some(id) = queue.next() else { break };
                let sandbox = self
                    .row_cache()
                    .row(&id)
                    .map(ListedRecord::sandbox)
                    .cloned();
                calls.push(async move {
                    let record = K::record(client, &id, sandbox);
                    let record = tokio::time::timeout(clock.next(), record).await;
                    (id, record)
                });
            }
            let Some((id, record)) = calls.next().await else {
                break;
            };
            self.answered |= matches!(record, Ok(Ok(_)));
            match record {
                Ok(Ok(Some((row, mounted)))) => {
                    any = true;
                    let entry = FoundRow::asked(row, mounted);
                    if self.keeps {
                        self.row_cache().keep(&id, entry.clone());
                    }
                    found.by_id.insert(id, entry);
                }
                Ok(Ok(None)) => {
                    self.row_cache().note_gone(&id);
                    found.by_id.remove(&id);
                }
                Ok(Err(error)) if error.is_lost() => return Err(error),
                Ok(Err(error)) => {
                    all = false;
                    self.timed_out(&error);
                    tracing::debug!(%error, %id, "a record cannot be read");
                }
                Err(_elapsed) => {
                    all = false;
                    self.timeouts += 1;
                    self.cut_short = true;
                }
            }
        }
        let next = queue.next();
        all &= next.is_none();
        self.cut_short |= next.is_some();
        Ok(IdsResult { all, any, next })
    }

    /// Notes a failed call. A call cut short by the list's own time limit does not count.
    fn timed_out(&mut self, error: &Error) {
        if error.is_timeout() {
            self.timeouts += 1;
            self.cut_short |= self.clock.is_up();
        }
    }
}
