//! Runs calls that a disk or a name server may block for ever on tokio's threads for such calls: one that hangs costs a
//! bounded number of threads and a bounded wait, and no other work waits for it.
//!
//! All reads of the running service go through here; writes have one thread (`state/writer`). Each kind of call is
//! bounded, and all kinds together are far from [`THREADS_MAX`]: what hangs takes no thread from work that only
//! computes (plans, pages, passwords), which runs on the same threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout, timeout_at};

/// More threads than all that is bounded here may take at once: some 100 of the service, most of them for token reviews.
pub const THREADS_MAX: usize = 512;

/// How long a thread waits for its next call: for ever. On a node that allows no new thread the one of the start serves
/// all calls; without any, tokio panics.
pub const THREAD_KEEP_ALIVE: Duration = Duration::MAX;

/// Threads that a start needs: two of tokio, one for calls that may hang, one of the log.
const THREADS_AT_START: usize = 4;

/// Makes as many threads as a start needs, and ends them: where the system allows fewer, tokio panics or hangs.
///
/// # Errors
/// If the system allows fewer.
pub fn try_threads() -> io::Result<()> {
    let gate = Mutex::new(());
    let made = thread::scope(|scope| -> io::Result<()> {
        let closed = gate.lock();
        let wait = || drop(gate.lock());
        let made = (0..THREADS_AT_START).map(|_| thread::Builder::new().spawn_scoped(scope, wait));
        let made: io::Result<Vec<_>> = made.collect();
        drop(closed);
        for thread in made? {
            drop(thread.join());
        }
        Ok(())
    });
    made.map_err(|error| {
        let limits = "TasksMax, pids.max, ulimit -u and -v, kernel.threads-max";
        io::Error::other(format!("no new thread is allowed ({limits}): {error}"))
    })
}

/// Threads for one kind of call. Cloning shares.
#[derive(Clone, Debug)]
pub struct BlockingPool {
    calls_max: usize,
    /// A hung call keeps its permit, so at most this many threads are lost.
    permits: Arc<Semaphore>,
    /// Number of callers that wait for a call.
    waiting: Arc<AtomicUsize>,
}

/// Why a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// It took too long.
    #[error("the file system does not answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// Earlier calls took too long and have not ended; this one was not started.
    #[error("the file system still hangs since an earlier call")]
    Hangs,
    /// The call panicked.
    #[error("a thread for the file system failed")]
    Failed,
}

impl BlockingPool {
    /// Allows `calls_max` calls at a time, which is also the number of threads that may be lost.
    pub fn new(calls_max: usize) -> Self {
        Self {
            calls_max,
            permits: Arc::new(Semaphore::new(calls_max)),
            waiting: Arc::default(),
        }
    }

    /// Runs `work` and waits for its end, at most `at_most`. Fails at once if all allowed calls hang without
    /// a waiting caller.
    ///
    /// # Errors
    /// If there is no answer in time. The work may still go on then.
    pub async fn run<T: Send + 'static>(
        &self,
        at_most: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let until = Instant::now() + at_most;
        let thread = self.free_thread(at_most).await?;
        thread.run_until(until, at_most, work).await
    }

    /// Waits for a free thread, at most `at_most`; its call then waits for no other. Fails at once as [`Self::run`]
    /// does.
    ///
    /// # Errors
    /// If none is free in time.
    pub async fn free_thread(&self, at_most: Duration) -> Result<FreeThread, NoAnswer> {
        if self.hanging() >= self.calls_max {
            return Err(NoAnswer::Hangs);
        }
        let waiting = Waiting::new(&self.waiting);
        let permit = Arc::clone(&self.permits).acquire_owned();
        let permit = timeout(at_most, permit).await;
        let permit = permit.map_err(|_elapsed| NoAnswer::Timeout(at_most))?;
        Ok(FreeThread {
            permit: permit.map_err(|_closed| NoAnswer::Failed)?,
            waiting,
        })
    }

    /// Returns how many running calls have no waiting caller.
    fn hanging(&self) -> usize {
        let under_way = self.calls_max - self.permits.available_permits();
        under_way.saturating_sub(self.waiting.load(Ordering::Acquire))
    }
}

/// A thread of a pool that is free for one call.
#[derive(Debug)]
pub struct FreeThread {
    permit: OwnedSemaphorePermit,
    waiting: Waiting,
}

impl FreeThread {
    /// Runs `work` and waits for its end, at most `at_most`.
    ///
    /// # Errors
    /// As [`BlockingPool::run`].
    pub async fn run<T: Send + 'static>(
        self,
        at_most: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let until = Instant::now() + at_most;
        self.run_until(until, at_most, work).await
    }

    async fn run_until<T: Send + 'static>(
        self,
        until: Instant,
        at_most: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let (to, result) = oneshot::channel();
        self.carry(until, at_most, Box::new(move || drop(to.send(work()))))
            .await?;
        result.await.map_err(|_panicked| NoAnswer::Failed)
    }

    /// Compiled once, not for each kind of work.
    async fn carry(
        self,
        until: Instant,
        at_most: Duration,
        work: Box<dyn FnOnce() + Send>,
    ) -> Result<(), NoAnswer> {
        let Self { permit, waiting } = self;
        let call = spawn_blocking(move || {
            work();
            drop(permit);
        });
        let arrived = timeout_at(until, call).await;
        drop(waiting);
        let arrived = arrived.map_err(|_elapsed| NoAnswer::Timeout(at_most))?;
        arrived.map_err(|_panicked| NoAnswer::Failed)
    }
}

/// Counts a waiting caller while it lives.
#[derive(Debug)]
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(20);

    /// Leaves a hung call behind, until the sender is dropped.
    async fn hang(pool: &BlockingPool) -> Sender<()> {
        let (end, may_end) = channel::<()>();
        let hangs = pool.run(SHORT, move || may_end.recv().is_ok()).await;
        assert_eq!(hangs, Err(NoAnswer::Timeout(SHORT)));
        end
    }

    #[tokio::test]
    async fn calls_that_hang_cost_so_many_threads_and_later_ones_fail_at_once() {
        let pool = BlockingPool::new(2);
        assert_eq!(pool.run(LONG, || 7).await, Ok(7));
        let first = hang(&pool).await;
        assert_eq!(pool.run(LONG, || 7).await, Ok(7), "one more is allowed");
        let second = hang(&pool).await;
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(pool.run(LONG, || 7).await, Err(NoAnswer::Hangs));
        }
        assert!(began.elapsed() < LONG);
        // One of them ends: there is room again.
        drop(first);
        while pool.hanging() > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(LONG, || 7).await, Ok(7));
        drop(second);
    }

    #[tokio::test]
    async fn a_call_whose_asker_left_counts_as_hanging_until_it_ends() {
        let pool = BlockingPool::new(1);
        let (end, may_end) = channel::<()>();
        let asking = tokio::spawn({
            let pool = pool.clone();
            async move { pool.run(LONG, move || may_end.recv().is_ok()).await }
        });
        while pool.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        asking.abort();
        assert!(asking.await.is_err());
        assert_eq!(pool.run(LONG, || 7).await, Err(NoAnswer::Hangs));
        drop(end);
        while pool.hanging() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(LONG, || 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_call_that_panics_gives_its_thread_back() {
        let pool = BlockingPool::new(1);
        let panics = pool
            .run(LONG, || assert!(std::hint::black_box(false)))
            .await;
        assert_eq!(panics, Err(NoAnswer::Failed));
        assert_eq!(pool.run(LONG, || 7).await, Ok(7));
    }
}
