//! Asks the runtime about many objects, a few at a time. An object that does not answer never delays the
//! others: a slow call no longer counts against the limit and outlives the look that began it, and an object
//! whose call failed is skipped with exponential back-off. One whose call ends the runtime is found out: each that was
//! asked when it went away is asked last and alone.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use crate::runtime;

/// Fast calls in flight: enough to hide the round trip, too few to burden a sick runtime.
const IN_FLIGHT: usize = 4;
/// A call is slow after this time: another one may start beside it.
const SLOW: Duration = Duration::from_millis(250);
/// The same while another call is slow: where some hang, more will.
const SLOW_AGAIN: Duration = Duration::from_millis(50);
/// Slow calls at a time.
const SLOW_MAX: usize = 64;
/// A look stops waiting if no good answer came for this long and no new call could start.
const STALL: Duration = Duration::from_secs(1);
/// How long a look waits for objects that failed before, if it waits for no others.
const RETRIES: Duration = Duration::from_millis(250);
/// First back-off of an object; doubled with each further failure.
const BACK_OFF: Duration = Duration::from_secs(2);
const BACK_OFF_MAX: Duration = Duration::from_secs(300);

/// How long a look asks, and for which pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryLimits {
    /// When the look stops asking.
    pub(super) until: Instant,
    /// When the look's pass began, if it has one.
    pub(super) pass_began: Option<Instant>,
}

impl QueryLimits {
    /// Limits that end this long from now.
    pub(super) fn within(budget: Duration, pass_began: Option<Instant>) -> Self {
        Self {
            until: Instant::now() + budget,
            pass_began,
        }
    }
}

/// Which look's call an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerAge {
    /// This look's.
    Now,
    /// An earlier look's: what it says about the present is out of date.
    Earlier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallResult {
    Answer,
    Failure,
    /// The runtime went away.
    Lost,
}

/// The calls about one kind of object, over all looks.
#[derive(Debug)]
pub(super) struct Queries<Id, T> {
    calls: JoinSet<(Id, Result<T, runtime::Error>)>,
    in_flight: BTreeMap<Id, CallInFlight>,
    failed: BTreeMap<Id, FailedCall>,
    look: u64,
}

#[derive(Clone, Copy, Debug)]
struct CallInFlight {
    since: Instant,
    look: u64,
    first_try: bool,
}

#[derive(Clone, Copy, Debug)]
struct FailedCall {
    /// Failures of its own in a row.
    times: u32,
    /// The runtime went away during its last call.
    is_suspect: bool,
    last_try: Instant,
    next_try: Instant,
}

impl FailedCall {
    /// Says whether the object may be asked again. A pass asks each object that failed before the pass began
    /// once more, whatever its back-off: a person may have repaired the runtime and started the pass.
    fn is_due(&self, now: Instant, limits: QueryLimits) -> bool {
        let rested = now.saturating_duration_since(self.last_try) >= BACK_OFF;
        let once_more = limits.pass_began.is_some_and(|began| self.last_try < began);
        self.next_try <= now || (once_more && rested)
    }
}

impl<Id, T> Default for Queries<Id, T> {
    fn default() -> Self {
        Self {
            calls: JoinSet::new(),
            in_flight: BTreeMap::new(),
            failed: BTreeMap::new(),
            look: 0,
        }
    }
}

impl<Id, T> Queries<Id, T>
where
    Id: Clone + Ord + Send + 'static,
    T: Send + 'static,
{
    /// Forgets the failures of objects that no longer exist.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Id) -> bool) {
        self.failed.retain(|id, _| is_there(id));
    }

    /// Asks about each of `ids` in order, previously failed ones last, and passes answers to `answered`.
    /// Returns when all are asked, when no more good answers come, or when time is up.
    pub(super) async fn each<F>(
        &mut self,
        ids: Vec<Id>,
        limits: QueryLimits,
        call: impl Fn(Id) -> F,
        mut answered: impl FnMut(Id, T, AnswerAge),
    ) where
        F: Future<Output = Result<T, runtime::Error>> + Send + 'static,
    {
        self.look += 1;
        let ended_since: Vec<_> = std::iter::from_fn(|| self.calls.try_join_next()).collect();
        let mut ids = ids;
        for ended in ended_since {
            if let Ok((id, Ok(_))) = &ended {
                ids.retain(|due| due != id);
            }
            self.note(ended, &mut answered);
        }
        let mut queue = self.queue(ids, limits).into_iter();
        let mut progress = Instant::now();
        let mut retries_until = None;
        loop {
            while let Some(id) = queue.as_slice().first().cloned()
                && self.may_start(&id)
            {
                queue.next();
                self.start(&id, call(id.clone()));
                progress = Instant::now();
            }
            let mut of_now = self
                .in_flight
                .values()
                .filter(|call| call.look == self.look);
            let is_over = queue.len() == 0 && of_now.clone().next().is_none();
            let next = queue.as_slice().first();
            let only_retries =
                next.is_none_or(|id| self.has_failed(id)) && of_now.all(|call| !call.first_try);
            let mut stop = limits.until.min(progress + STALL);
            if only_retries {
                let end = Instant::now() + RETRIES;
                stop = stop.min(*retries_until.get_or_insert(end));
            }
            if is_over || Instant::now() >= stop {
                return;
            }
            let wake = self.turns_slow().map_or(stop, |slow| slow.min(stop));
            let Ok(Some(ended)) = timeout_at(wake, self.calls.join_next()).await else {
                continue;
            };
            match self.note(ended, &mut answered) {
                CallResult::Answer => progress = Instant::now(),
                CallResult::Failure => {}
                // The next look asks again.
                CallResult::Lost => return,
            }
        }
    }

    /// Notes a finished call, and passes on its answer.
    fn note(
        &mut self,
        ended: Result<(Id, Result<T, runtime::Error>), JoinError>,
        mut answered: impl FnMut(Id, T, AnswerAge),
    ) -> CallResult {
        let Ok((id, answer)) = ended else {
            // A panic is a bug: do not wait for its call.
            self.calls.abort_all();
            self.in_flight.clear();
            return CallResult::Failure;
        };
        let asked = match self.in_flight.remove(&id) {
            Some(call) if call.look == self.look => AnswerAge::Now,
            Some(_) | None => AnswerAge::Earlier,
        };
        match answer {
            Ok(answer) => {
                self.failed.remove(&id);
                answered(id, answer, asked);
                CallResult::Answer
            }
            // The runtime is gone, or was gone for an earlier look.
            Err(error) if error.is_lost() => match asked {
                AnswerAge::Now => {
                    self.lost(id);
                    CallResult::Lost
                }
                AnswerAge::Earlier => CallResult::Failure,
            },
            Err(_failed) => {
                self.failed(id).is_suspect = false;
                CallResult::Failure
            }
        }
    }

    /// Returns the objects that may be asked now.
    fn queue(&self, ids: Vec<Id>, limits: QueryLimits) -> Vec<Id> {
        let now = Instant::now();
        let mut queue = ids;
        queue.retain(|id| {
            let failed = self.failed.get(id);
            let is_due = failed.is_none_or(|failed| failed.is_due(now, limits));
            is_due && !self.in_flight.contains_key(id)
        });
        queue.sort_by_key(|id| self.failed.get(id).map(|failed| failed.next_try));
        queue
    }

    fn may_start(&self, next: &Id) -> bool {
        let fast = self.fast().count();
        let mut with_it = self.in_flight.keys().chain([next]);
        let limit = if with_it.any(|id| self.is_suspect(id)) {
            1
        } else {
            IN_FLIGHT
        };
        fast < limit && self.in_flight.len() - fast < SLOW_MAX
    }

    fn has_failed(&self, id: &Id) -> bool {
        self.failed.get(id).is_some_and(|failed| failed.times > 0)
    }

    fn is_suspect(&self, id: &Id) -> bool {
        self.failed.get(id).is_some_and(|failed| failed.is_suspect)
    }

    /// Notes that the runtime went away: by chance, or because of any of this look's calls. Twice is no chance.
    fn lost(&mut self, id: Id) {
        let calls = self.in_flight.iter();
        let of_now = calls.filter(|(_, call)| call.look == self.look);
        let asked: Vec<Id> = of_now.map(|(id, _)| id.clone()).chain([id]).collect();
        for id in asked {
            if self.is_suspect(&id) {
                self.failed(id);
            } else {
                self.failure(id).is_suspect = true;
            }
        }
    }

    fn fast(&self) -> impl Iterator<Item = &CallInFlight> {
        let slow = self.slow();
        self.in_flight
            .values()
            .filter(move |call| call.since.elapsed() < slow)
    }

    /// Returns after what time a call is slow at the moment.
    fn slow(&self) -> Duration {
        let is_slow = |call: &CallInFlight| call.since.elapsed() >= SLOW;
        if self.in_flight.values().any(is_slow) {
            SLOW_AGAIN
        } else {
            SLOW
        }
    }

    /// Returns when the next call becomes slow.
    fn turns_slow(&self) -> Option<Instant> {
        let slow = self.slow();
        self.fast().map(|call| call.since + slow).min()
    }

    fn start<F>(&mut self, id: &Id, call: F)
    where
        F: Future<Output = Result<T, runtime::Error>> + Send + 'static,
    {
        let call_in_flight = CallInFlight {
            since: Instant::now(),
            look: self.look,
            first_try: !self.has_failed(id),
        };
        self.in_flight.insert(id.clone(), call_in_flight);
        let id = id.clone();
        self.calls.spawn(async move { (id, call.await) });
    }

    fn failed(&mut self, id: Id) -> &mut FailedCall {
        let failed = self.failure(id);
        let doubled = BACK_OFF.saturating_mul(1 << failed.times.min(16));
        failed.times += 1;
        failed.last_try = Instant::now();
        failed.next_try = failed.last_try + doubled.min(BACK_OFF_MAX);
        failed
    }

    /// Returns what is known of an object's failures; it may be asked again at once.
    fn failure(&mut self, id: Id) -> &mut FailedCall {
        let now = Instant::now();
        self.failed.entry(id).or_insert(FailedCall {
            times: 0,
            is_suspect: false,
            last_try: now,
            next_try: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LOOK: Duration = Duration::from_secs(60);

    /// How the test's objects answer: even numbers at once; odd ones below 1,000 fail after ten seconds, larger
    /// odd ones at once.
    async fn call(id: u32) -> Result<u32, runtime::Error> {
        if id.is_multiple_of(2) {
            return Ok(id);
        }
        let after = Duration::from_secs(10);
        if id < 1_000 {
            tokio::time::sleep(after).await;
        }
        let method = "ContainerStatus";
        Err(runtime::Error::Timeout { method, after })
    }

    fn limits() -> QueryLimits {
        QueryLimits {
            until: Instant::now() + LOOK,
            pass_began: None,
        }
    }

    async fn look(
        asker: &mut Queries<u32, u32>,
        ids: &[u32],
    ) -> (Vec<u32>, BTreeSet<u32>, Duration) {
        look_on(asker, ids, limits()).await
    }

    /// Takes a look; returns who was asked, who answered, and how long it took.
    async fn look_on(
        asker: &mut Queries<u32, u32>,
        ids: &[u32],
        limits: QueryLimits,
    ) -> (Vec<u32>, BTreeSet<u32>, Duration) {
        let (called, mut answers) = (RefCell::new(Vec::new()), BTreeSet::new());
        let began = Instant::now();
        let call = |id| {
            called.borrow_mut().push(id);
            call(id)
        };
        asker
            .each(ids.to_vec(), limits, call, |id, _, _| {
                answers.insert(id);
            })
            .await;
        (called.into_inner(), answers, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_answer_do_not_wait_for_those_that_hang() {
        let asker = &mut Queries::default();
        // Three that hang, first in line.
        let ids: Vec<u32> = [1, 3, 5].into_iter().chain((2..200).step_by(2)).collect();
        let (called, answers, took) = look(asker, &ids).await;
        assert_eq!((called.len(), answers.len()), (102, 99));
        assert!(took <= 3 * STALL, "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn looks_stay_short_beside_hundreds_that_hang_and_each_is_asked_seldom() {
        let asker = &mut Queries::default();
        let hanging: Vec<u32> = (1..800).step_by(2).collect();
        let (mut called, mut took) = (Vec::new(), Duration::ZERO);
        for _ in 0..60 {
            let (now, _, time) = look(asker, &hanging).await;
            assert!(time <= 3 * STALL, "{time:?}");
            assert!(asker.in_flight.len() <= IN_FLIGHT + SLOW_MAX);
            called.extend(now);
            took += time;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let everyone: BTreeSet<u32> = called.iter().copied().collect();
        assert_eq!(everyone.len(), 400);
        assert!(called.len() < 3 * 400, "{}", called.len());
        // One that can answer comes before those that failed.
        let with_one: Vec<u32> = hanging.iter().copied().chain([2]).collect();
        let (_, answers, _) = look(asker, &with_one).await;
        assert_eq!(answers, [2].into());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_rests_each_time_for_longer_and_is_forgotten_when_it_is_gone() {
        let asker = &mut Queries::default();
        let mut rests = Vec::new();
        let mut last = None;
        while rests.len() < 10 {
            let (called, ..) = look(asker, &[1_001]).await;
            if !called.is_empty() {
                rests.extend(last.map(|last: Instant| last.elapsed().as_secs()));
                last = Some(Instant::now());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(rests, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        asker.retain(|_| false);
        assert_eq!(look(asker, &[1_001]).await.0, [1_001]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_asks_each_that_failed_before_once_more_and_waits_for_none() {
        let asker = &mut Queries::default();
        // Five that fail at once and five that hang, until their back-off is minutes long.
        let ids: Vec<u32> = (1..10)
            .step_by(2)
            .chain((1_001..1_010).step_by(2))
            .collect();
        for pause in [310; 12].into_iter().chain([11; 4]) {
            look(asker, &ids).await;
            tokio::time::sleep(Duration::from_secs(pause)).await;
        }
        assert_eq!(look(asker, &ids).await.0, [0; 0], "a scrape asks none");
        let pass_began = Some(Instant::now());
        let pass = || QueryLimits {
            pass_began,
            ..limits()
        };
        let mut called = Vec::new();
        for _ in 0..3 {
            let (now, _, took) = look_on(asker, &ids, pass()).await;
            called.extend(now);
            assert!(took <= RETRIES + SLOW, "{took:?}");
            tokio::time::sleep(Duration::from_secs(11)).await;
        }
        called.sort_unstable();
        assert_eq!(called, ids, "each one, and once");
        // Later looks of the pass ask none of them again.
        assert_eq!(look_on(asker, &ids, pass()).await.0, [0; 0]);
        // The next pass comes within the shortest back-off after the last attempt: it asks none either.
        let asker = &mut Queries::default();
        look(asker, &[1_001]).await;
        tokio::time::sleep(BACK_OFF / 2).await;
        let pass_began = Some(Instant::now());
        let pass = QueryLimits {
            pass_began,
            ..limits()
        };
        assert_eq!(look_on(asker, &[1_001], pass).await.0, [0; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_comes_after_its_look_is_handed_to_the_next_as_an_earlier_one() {
        let asker = &mut Queries::default();
        let slow = |id: u32| async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(id)
        };
        let mut answers = Vec::new();
        for ids in [vec![1, 2], vec![1, 2, 4]] {
            let note = |id, _, asked| answers.push((id, asked));
            asker.each(ids, limits(), slow, note).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(answers, [(1, AnswerAge::Earlier), (2, AnswerAge::Earlier)]);
        asker
            .each(vec![4, 6], limits(), call, |id, _, asked| {
                answers.push((id, asked));
            })
            .await;
        assert_eq!(answers[2..], [(4, AnswerAge::Earlier), (6, AnswerAge::Now)]);
    }

    /// Asks about objects of which 1 ends the runtime, with all calls in flight.
    async fn look_beside_a_crash(
        asker: &mut Queries<u32, u32>,
        ids: &[u32],
        crashes: &Arc<AtomicU32>,
    ) -> BTreeSet<u32> {
        let mut answers = BTreeSet::new();
        let call = |id| {
            let crashes = Arc::clone(crashes);
            async move {
                let before = crashes.load(Ordering::Relaxed);
                if id == 1 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    crashes.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                if crashes.load(Ordering::Relaxed) == before {
                    return Ok(id);
                }
                Err(runtime::Error::Unreachable {
                    method: "ContainerStatus",
                    endpoint: std::path::Path::new("/cri.sock").into(),
                    why: "connection reset".to_owned(),
                })
            }
        };
        let note = |id, _, _| {
            answers.insert(id);
        };
        asker.each(ids.to_vec(), limits(), call, note).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        answers
    }

    #[tokio::test(start_paused = true)]
    async fn one_during_whose_call_the_runtime_ends_holds_back_no_other_and_is_asked_seldom() {
        let asker = &mut Queries::default();
        let crashes = Arc::default();
        let mut ids: Vec<u32> = (1..100).collect();
        for look in 0..60 {
            let answers = look_beside_a_crash(asker, &ids, &crashes).await;
            ids.retain(|id| !answers.contains(id));
            assert!(look < 3 || ids == [1], "{look}: {ids:?}");
        }
        let crashes = crashes.load(Ordering::Relaxed);
        assert!((2..=12).contains(&crashes), "{crashes}");
    }
}
