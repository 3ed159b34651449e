//! Remembers answers for a time, and asks for each only once at a time. Both are bounded.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Answers that are remembered.
const KEPT_MAX: usize = 256;
/// Questions under way.
const FLIGHTS_MAX: usize = 64;

/// The keyed hash of a question.
pub(super) type Digest = [u8; 32];

/// Too many questions are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{FLIGHTS_MAX} reviews are under way")]
pub(super) struct TooMany;

/// Answers of one kind.
pub(super) struct Memory<T>(Mutex<State<T>>);

struct State<T> {
    /// Each answer, and until when it holds.
    kept: BTreeMap<Digest, (Instant, T)>,
    /// Weak: a question that nobody waits for any more is dropped.
    flights: BTreeMap<Digest, WeakShared<BoxFuture<'static, T>>>,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self(Mutex::new(State {
            kept: BTreeMap::new(),
            flights: BTreeMap::new(),
        }))
    }
}

impl<T: Clone + Send + Sync + 'static> Memory<T> {
    /// Returns the remembered answer, else that of the question under way, else asks. `asking` returns the answer
    /// and how long it holds.
    pub(super) async fn get(
        self: &Arc<Self>,
        key: Digest,
        asking: impl Future<Output = (T, Option<Duration>)> + Send + 'static,
    ) -> Result<T, TooMany> {
        let flight = {
            let mut state = self.0.lock();
            if let Some(answer) = state.kept(&key) {
                return Ok(answer);
            }
            let under_way = state.flights.get(&key).and_then(WeakShared::upgrade);
            if let Some(flight) = under_way {
                flight
            } else {
                state.flights.retain(|_, flight| flight.upgrade().is_some());
                if state.flights.len() >= FLIGHTS_MAX {
                    return Err(TooMany);
                }
                let memory = Arc::clone(self);
                let flight = async move {
                    let (answer, holds_for) = asking.await;
                    memory.0.lock().end(key, &answer, holds_for);
                    answer
                };
                let flight = flight.boxed().shared();
                let weak = flight.downgrade();
                state.flights.extend(weak.map(|weak| (key, weak)));
                flight
            }
        };
        Ok(flight.await)
    }
}

impl<T: Clone> State<T> {
    fn kept(&self, key: &Digest) -> Option<T> {
        let (until, answer) = self.kept.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    fn end(&mut self, key: Digest, answer: &T, holds_for: Option<Duration>) {
        self.flights.remove(&key);
        let Some(holds_for) = holds_for else {
            return;
        };
        let now = Instant::now();
        self.kept.insert(key, (now + holds_for, answer.clone()));
        if self.kept.len() > KEPT_MAX {
            self.kept.retain(|_, (until, _)| now < *until);
        }
        while self.kept.len() > KEPT_MAX {
            // Refusals hold for a shorter time, so guesses displace each other first.
            let next = self.kept.iter().min_by_key(|(_, (until, _))| *until);
            let Some(next) = next.map(|(key, _)| *key) else {
                return;
            };
            self.kept.remove(&next);
        }
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
        memory: Arc<Memory<usize>>,
        asked: Arc<AtomicUsize>,
    }

    impl Counted {
        async fn get(&self, key: usize, holds_for: Option<Duration>) -> Result<usize, TooMany> {
            let asked = Arc::clone(&self.asked);
            let asking = async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                (asked.fetch_add(1, Ordering::SeqCst) + 1, holds_for)
            };
            self.memory.get(digest(key), asking).await
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
