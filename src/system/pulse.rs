//! Shows whether the service's loops make progress. A loop that waits, for a hung runtime too, has a pulse: it is
//! polled at every beat. A loop that blocks its thread, ended in a panic, or works on long after its deadline has none.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

/// The pulses of the loops that must run. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Pulses {
    /// The time between two beats; `None`: nothing asks for pulses, and they cost nothing.
    beat: Option<Duration>,
    taken: Arc<Mutex<Vec<Weak<Pulse>>>>,
}

/// The pulse of one loop. It counts as long as it has an owner, whatever became of the loop.
#[derive(Debug)]
pub struct Pulse {
    name: &'static str,
    beat: Option<Duration>,
    last: Mutex<Instant>,
}

impl Pulses {
    /// Returns pulses that beat so often.
    pub fn every(beat: Duration) -> Self {
        Self {
            beat: Some(beat),
            taken: Arc::default(),
        }
    }

    /// Returns the pulse of a loop that begins now.
    pub fn start(&self, name: &'static str) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse {
            name,
            beat: self.beat,
            last: Mutex::new(Instant::now()),
        });
        let mut taken = self.taken.lock();
        taken.retain(|pulse| pulse.strong_count() > 0);
        taken.push(Arc::downgrade(&pulse));
        pulse
    }

    /// Returns the name of a loop whose last beat is older than `limit`.
    pub fn missing(&self, limit: Duration) -> Option<&'static str> {
        let taken = self.taken.lock();
        let mut pulses = taken.iter().filter_map(Weak::upgrade);
        let missing = pulses.find(|pulse| pulse.last.lock().elapsed() > limit);
        missing.map(|pulse| pulse.name)
    }
}

impl Pulse {
    /// Runs the loop; the pulse beats in its task until it ends, and not after `until`.
    pub async fn carry<T>(&self, until: Option<Instant>, work: impl Future<Output = T>) -> T {
        let Some(beat) = self.beat else {
            return work.await;
        };
        let mut work = pin!(work);
        let mut beats = tokio::time::interval(beat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                done = &mut work => return done,
                now = beats.tick() => {
                    if until.is_none_or(|until| now < until) {
                        *self.last.lock() = Instant::now();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::mpsc;

    use super::*;

    const BEAT: Duration = Duration::from_millis(10);
    const LIMIT: Duration = Duration::from_millis(500);
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn until_missing(pulses: &Pulses) -> &'static str {
        let found = async {
            loop {
                if let Some(name) = pulses.missing(LIMIT) {
                    return name;
                }
                tokio::time::sleep(BEAT).await;
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_for_ever_has_a_pulse() {
        let pulses = Pulses::every(BEAT);
        let pulse = pulses.start("waits");
        tokio::spawn(async move { pulse.carry(None, pending::<()>()).await });
        tokio::time::sleep(100 * LIMIT).await;
        assert_eq!(pulses.missing(LIMIT), None);
    }

    /// From outside: a blocked thread may hold up every timer of the runtime.
    #[test]
    fn a_loop_that_blocks_its_thread_has_none_until_it_goes_on() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_time()
            .build()
            .unwrap();
        let pulses = Pulses::every(BEAT);
        let pulse = pulses.start("blocks");
        let (go_on, wait) = mpsc::channel::<()>();
        let work = async move {
            tokio::time::sleep(BEAT).await;
            let _ = wait.recv();
            pending::<()>().await;
        };
        runtime.spawn(async move { pulse.carry(None, work).await });
        let becomes = |wanted| {
            let deadline = std::time::Instant::now() + PATIENCE;
            while pulses.missing(LIMIT) != wanted {
                assert!(std::time::Instant::now() < deadline, "{wanted:?}");
                std::thread::sleep(BEAT);
            }
        };
        becomes(Some("blocks"));
        go_on.send(()).unwrap();
        becomes(None);
        runtime.shutdown_background();
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panicked_has_none_while_its_pulse_has_an_owner() {
        let pulses = Pulses::every(BEAT);
        let pulse = pulses.start("panics");
        let carried = Arc::clone(&pulse);
        let task = tokio::spawn(async move {
            carried.carry(None, async { panic!("on purpose") }).await;
        });
        assert!(task.await.is_err());
        assert_eq!(pulses.missing(LIMIT), None);
        assert_eq!(until_missing(&pulses).await, "panics");
        drop(pulse);
        assert_eq!(pulses.missing(LIMIT), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_overdue_has_none() {
        let pulses = Pulses::every(BEAT);
        let pulse = pulses.start("overdue");
        let until = Instant::now() + Duration::from_secs(600);
        tokio::spawn(async move { pulse.carry(Some(until), pending::<()>()).await });
        tokio::time::sleep(Duration::from_secs(599)).await;
        assert_eq!(pulses.missing(LIMIT), None);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(pulses.missing(LIMIT), Some("overdue"));
    }
}
