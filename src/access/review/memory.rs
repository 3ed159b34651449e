//! Remembers answers for a time, and asks for each only once at a time. Both are bounded, and no
//! account or client takes more than its part.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::access::digest::Digest;

/// Answers that are remembered.
const KEPT_MAX: usize = 256;
/// Remembered answers of one account or client.
const KEPT_EACH_MAX: usize = 64;
/// Questions under way.
const FLIGHTS_MAX: usize = 64;
/// Questions of one account or client. All callers that show the same token for the same path share one.
const FLIGHTS_EACH_MAX: usize = 4;

/// Whose share of the bounds a question uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QuotaOwner {
    /// The account of a token that was authenticated before.
    Account(Arc<str>),
    /// The client that shows an unknown token.
    Client(IpAddr),
}

/// Too many questions are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many reviews are under way")]
pub(super) struct TooMany;

/// Answers of one kind.
pub(super) struct AnswerCache<T>(Mutex<CacheState<T>>);

struct CacheState<T> {
    kept: BTreeMap<Digest, CachedAnswer<T>>,
    /// Weak: a question is dropped when the last caller that waits for it leaves.
    flights: BTreeMap<Digest, (QuotaOwner, WeakShared<BoxFuture<'static, T>>)>,
}

struct CachedAnswer<T> {
    answer: T,
    until: Instant,
    owner: QuotaOwner,
}

impl<T> Default for AnswerCache<T> {
    fn default() -> Self {
        Self(Mutex::new(CacheState {
            kept: BTreeMap::new(),
            flights: BTreeMap::new(),
        }))
    }
}

impl<T: Clone + Send + Sync + 'static> AnswerCache<T> {
    /// Returns the remembered answer, else that of the question under way, else asks. `asking` returns the answer
    /// and how long it holds.
    pub(super) async fn get(
        self: &Arc<Self>,
        key: Digest,
        owner: QuotaOwner,
        asking: impl Future<Output = (T, Option<Duration>)> + Send + 'static,
    ) -> Result<T, TooMany> {
        let flight = {
            let mut state = self.0.lock();
            if let Some(answer) = state.kept(&key) {
                return Ok(answer);
            }
            let under_way = state.flights.get(&key);
            let under_way = under_way.and_then(|(_, flight)| flight.upgrade());
            if let Some(flight) = under_way {
                flight
            } else {
                if state.is_full(&owner) {
                    return Err(TooMany);
                }
                let (memory, of) = (Arc::clone(self), owner.clone());
                let flight = async move {
                    let (answer, holds_for) = asking.await;
                    memory.0.lock().end(key, &owner, &answer, holds_for);
                    answer
                };
                let flight = flight.boxed().shared();
                let weak = flight.downgrade();
                state.flights.extend(weak.map(|weak| (key, (of, weak))));
                flight
            }
        };
        Ok(flight.await)
    }
}

impl<T: Clone> CacheState<T> {
    fn kept(&self, key: &Digest) -> Option<T> {
        let kept = self.kept.get(key)?;
        (Instant::now() < kept.until).then(|| kept.answer.clone())
    }

    /// Says whether no further question of this owner may be asked.
    fn is_full(&mut self, owner: &QuotaOwner) -> bool {
        self.flights
            .retain(|_, (_, flight)| flight.upgrade().is_some());
        let own = self.flights.values().filter(|(of, _)| of == owner);
        own.count() >= FLIGHTS_EACH_MAX || self.flights.len() >= FLIGHTS_MAX
    }

    fn end(&mut self, key: Digest, owner: &QuotaOwner, answer: &T, holds_for: Option<Duration>) {
        self.flights.remove(&key);
        let Some(holds_for) = holds_for else {
            return;
        };
        let now = Instant::now();
        self.kept.retain(|_, kept| now < kept.until);
        let kept = CachedAnswer {
            answer: answer.clone(),
            until: now + holds_for,
            owner: owner.clone(),
        };
        self.kept.insert(key, kept);
        // Refusals hold for a shorter time, so guesses displace each other first.
        let until = |kept: &CachedAnswer<T>| kept.until;
        let is_own = |kept: &CachedAnswer<T>| kept.owner == *owner;
        make_room(&mut self.kept, KEPT_EACH_MAX, is_own, until);
        make_room(&mut self.kept, KEPT_MAX, |_any| true, until);
    }
}

/// Removes the entry with the earliest time if more than `most` are of these.
pub(super) fn make_room<T>(
    entries: &mut BTreeMap<Digest, T>,
    most: usize,
    is_of_these: impl Fn(&T) -> bool,
    time: impl Fn(&T) -> Instant,
) {
    let these = || entries.iter().filter(|(_, entry)| is_of_these(entry));
    if these().count() <= most {
        return;
    }
    let earliest = these().min_by_key(|(_, entry)| time(entry));
    if let Some(earliest) = earliest.map(|(key, _)| *key) {
        entries.remove(&earliest);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const LONG: Duration = Duration::from_secs(120);
    const SHORT: Duration = Duration::from_secs(10);

    fn digest(number: usize) -> Digest {
        let mut digest = Digest::default();
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    /// A memory, and how often it asked.
    #[derive(Default)]
    struct Counted {
        memory: Arc<AnswerCache<usize>>,
        asked: Arc<AtomicUsize>,
    }

    impl Counted {
        async fn get(&self, key: usize, holds_for: Option<Duration>) -> Result<usize, TooMany> {
            // Each owner has its own part: here every question is another's.
            self.get_for(u32::try_from(key).unwrap(), key, holds_for)
                .await
        }

        async fn get_for(
            &self,
            client: u32,
            key: usize,
            holds_for: Option<Duration>,
        ) -> Result<usize, TooMany> {
            let owner = QuotaOwner::Client(IpAddr::V4(client.into()));
            let count = Arc::clone(&self.asked);
            let asking = async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                (count.fetch_add(1, Ordering::SeqCst) + 1, holds_for)
            };
            self.memory.get(digest(key), owner, asking).await
        }

        fn kept(&self) -> usize {
            self.memory.0.lock().kept.len()
        }

        fn flights(&self) -> usize {
            self.memory.0.lock().flights.len()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_its_time_and_no_longer() {
        let memory = Counted::default();
        assert_eq!(memory.get(1, Some(SHORT)).await, Ok(1));
        tokio::time::advance(SHORT.mul_f64(0.99)).await;
        assert_eq!(memory.get(1, Some(SHORT)).await, Ok(1));
        tokio::time::advance(SHORT.mul_f64(0.02)).await;
        assert_eq!(memory.get(1, None).await, Ok(2));
        assert_eq!(memory.get(1, None).await, Ok(3), "not remembered");
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_ask_at_a_time_share_one_question() {
        let memory = Counted::default();
        let answers = join_all((0..50).map(|_| memory.get(1, None))).await;
        assert_eq!(answers, vec![Ok(1); 50]);
        assert_eq!(memory.flights(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_goes_on_while_one_of_its_askers_waits_and_no_longer() {
        let memory = Counted::default();
        let mut first = Box::pin(memory.get(1, Some(LONG)));
        let mut second = Box::pin(memory.get(1, Some(LONG)));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert_eq!(second.await, Ok(1));
        // All askers leave: the next one asks anew.
        let mut left = Box::pin(memory.get(2, Some(LONG)));
        assert!((&mut left).now_or_never().is_none());
        drop(left);
        assert_eq!(memory.get(2, Some(LONG)).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_and_answers_are_bounded() {
        let memory = Counted::default();
        let answers = join_all((0..=FLIGHTS_MAX).map(|key| memory.get(key, Some(LONG)))).await;
        let (last, others) = answers.split_last().unwrap();
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(*last, Err(TooMany));
        for chunk in (0..2 * KEPT_MAX).collect::<Vec<_>>().chunks(FLIGHTS_MAX) {
            join_all(chunk.iter().map(|key| memory.get(*key, Some(LONG)))).await;
        }
        assert_eq!(memory.kept(), KEPT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn one_asker_has_a_part_of_the_questions_and_of_the_answers() {
        let memory = Counted::default();
        let all = join_all((0..10).map(|key| memory.get_for(1, key, Some(SHORT))));
        let (all, other) = tokio::join!(all, memory.get_for(2, 1_000, Some(SHORT)));
        assert!(other.is_ok(), "another owner is not concerned");
        assert_eq!(all.iter().filter(|it| it.is_ok()).count(), FLIGHTS_EACH_MAX);
        // A refusal ends earlier than all that follows, and stays nevertheless: it is another's.
        for chunk in (0..3 * KEPT_EACH_MAX)
            .collect::<Vec<_>>()
            .chunks(FLIGHTS_EACH_MAX)
        {
            join_all(
                chunk
                    .iter()
                    .map(|key| memory.get_for(1, *key, Some(LONG * 3))),
            )
            .await;
        }
        let kept = KEPT_EACH_MAX;
        assert!(
            (kept..=kept + 1).contains(&memory.kept()),
            "{}",
            memory.kept()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_displace_no_good_answer() {
        let memory = Counted::default();
        let good = memory.get(0, Some(LONG)).await;
        let guesses = 1..=KEPT_MAX + FLIGHTS_MAX;
        for chunk in guesses.collect::<Vec<_>>().chunks(FLIGHTS_MAX) {
            join_all(chunk.iter().map(|key| memory.get(*key, Some(SHORT)))).await;
        }
        assert!(memory.kept() <= KEPT_MAX);
        assert_eq!(memory.get(0, None).await, good);
    }
}
