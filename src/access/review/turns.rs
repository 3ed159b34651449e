//! Keeps forged tokens from using up the reviews: tokens that the API server never authenticated share a bucket and
//! places of their own. Nobody who holds a known token waits for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::memory::Digest;
use crate::access::rate_limit::{RateLimit, TokenBucket};

/// Calls at a time for unknown tokens, and as many for known ones.
pub(super) const CALLS_MAX: usize = 8;
/// Questions about unknown tokens. With what `CALL_TIMEOUT` lets pile up they stay below the number of questions
/// that may be under way.
const UNKNOWN: RateLimit = RateLimit {
    interval: Duration::from_millis(100),
    burst: 32,
};
/// Tokens that are known.
const KNOWN_MAX: usize = 256;
/// The shortest time between two lines of the log.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// Whether the API server has authenticated a token before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Known,
    Unknown,
}

/// The bucket, the places, and the tokens that need neither bucket nor luck.
pub(super) struct Turns {
    began: Instant,
    bucket: Mutex<TokenBucket>,
    unknown: Semaphore,
    known: Semaphore,
    /// Tokens that were authenticated, and when last.
    tokens: Mutex<BTreeMap<Digest, Instant>>,
    /// When the log said last that the bucket is empty.
    said: Mutex<Option<Instant>>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            bucket: Mutex::default(),
            unknown: Semaphore::new(CALLS_MAX),
            known: Semaphore::new(CALLS_MAX),
            tokens: Mutex::default(),
            said: Mutex::default(),
        }
    }

    /// Admits a question about a token; `None`: too many unknown ones came.
    pub(super) fn admit(&self, token: &Digest) -> Option<Standing> {
        if self.tokens.lock().contains_key(token) {
            return Some(Standing::Known);
        }
        if self
            .bucket
            .lock()
            .admit(UNKNOWN, self.began.elapsed())
            .is_ok()
        {
            return Some(Standing::Unknown);
        }
        if is_due(&mut self.said.lock()) {
            tracing::warn!("more unknown tokens come than are reviewed: some get 503 unreviewed");
        }
        None
    }

    /// Waits for a place, at most until then.
    pub(super) async fn turn(
        &self,
        standing: Standing,
        until: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        let places = match standing {
            Standing::Known => &self.known,
            Standing::Unknown => &self.unknown,
        };
        let turn = timeout_at(until, places.acquire()).await.ok()?.ok()?;
        // The turns of calls that ended late come too late for those who waited as long.
        (Instant::now() < until).then_some(turn)
    }

    /// Remembers that the API server authenticated a token. The one that was so longest ago makes room.
    pub(super) fn authenticated(&self, token: Digest) {
        let mut tokens = self.tokens.lock();
        tokens.insert(token, Instant::now());
        if tokens.len() > KNOWN_MAX {
            let oldest = tokens.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(token, _)| *token) {
                tokens.remove(&oldest);
            }
        }
    }

    /// Forgets a token that belongs to no account any more.
    pub(super) fn refused(&self, token: &Digest) {
        self.tokens.lock().remove(token);
    }
}

/// Says whether so much time has passed since the last line that another one may be written.
fn is_due(said: &mut Option<Instant>) -> bool {
    let is_due = said.is_none_or(|at| at.elapsed() >= SAY_EVERY);
    if is_due {
        *said = Some(Instant::now());
    }
    is_due
}

/// Tells when calls begin to fail and when they work again, with at most one line in [`SAY_EVERY`].
#[derive(Default)]
pub(super) struct Failing {
    /// What the log says.
    is_said: AtomicBool,
    said: Mutex<Option<Instant>>,
}

impl Failing {
    pub(super) fn say(&self, error: Option<&String>) {
        let is_failing = error.is_some();
        if self.is_said.load(Ordering::Relaxed) == is_failing || !is_due(&mut self.said.lock()) {
            return;
        }
        self.is_said.store(is_failing, Ordering::Relaxed);
        if let Some(error) = error {
            tracing::warn!(error, "no token can be reviewed, and none is accepted");
        } else {
            tracing::info!("tokens are reviewed again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        let mut digest = Digest::default();
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_tokens_share_a_bucket_and_known_ones_need_none() {
        let turns = Turns::new();
        turns.authenticated(digest(0));
        let admitted = (1..1_000).filter(|it| turns.admit(&digest(*it)).is_some());
        assert_eq!(admitted.count(), 32);
        assert_eq!(turns.admit(&digest(0)), Some(Standing::Known));
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!(turns.admit(&digest(1)), Some(Standing::Unknown));
        assert_eq!(turns.admit(&digest(1)), None);
        turns.refused(&digest(0));
        assert_eq!(turns.admit(&digest(0)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_places_of_known_tokens_are_free_while_the_others_are_taken() {
        let turns = Turns::new();
        let soon = || Instant::now() + Duration::from_secs(1);
        let mut taken = Vec::new();
        for _ in 0..CALLS_MAX {
            taken.push(turns.turn(Standing::Unknown, soon()).await.unwrap());
        }
        assert!(turns.turn(Standing::Unknown, soon()).await.is_none());
        assert!(turns.turn(Standing::Known, soon()).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_token_that_was_good_longest_ago_makes_room() {
        let turns = Turns::new();
        for number in 0..=KNOWN_MAX {
            turns.authenticated(digest(number));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(turns.tokens.lock().len(), KNOWN_MAX);
        assert_eq!(turns.admit(&digest(0)), Some(Standing::Unknown));
        assert_eq!(turns.admit(&digest(1)), Some(Standing::Known));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_and_work_in_turns_write_one_line_a_minute() {
        let failing = Failing::default();
        let error = "no answer".to_owned();
        let said = || failing.is_said.load(Ordering::Relaxed);
        failing.say(None);
        assert!(!said());
        failing.say(Some(&error));
        assert!(said());
        for _ in 0..59 {
            failing.say(None);
            failing.say(Some(&error));
            assert!(said(), "a second line within a minute");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        tokio::time::advance(SAY_EVERY).await;
        failing.say(None);
        assert!(!said());
    }
}
