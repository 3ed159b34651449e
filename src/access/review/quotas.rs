//! Keeps forged tokens from using up the reviews: tokens that the API server never authenticated share buckets and
//! places of their own. No call for a known token waits for them, and no client or account takes the places of all
//! others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::memory::{QuotaOwner, make_room};
use crate::access::digest::Digest;
use crate::access::rate_limit::{RateLimit, TokenBucket};
use crate::telemetry::LineLimit;

/// Calls at a time for unknown tokens.
const UNKNOWN_CALLS_MAX: usize = 8;
/// Calls at a time for known tokens: one account has at most half of them, 4 for its tokens and 4 for its rights.
const KNOWN_CALLS_MAX: usize = 16;
/// Calls at a time.
pub(super) const CALLS_MAX: usize = UNKNOWN_CALLS_MAX + KNOWN_CALLS_MAX;
/// Questions about unknown tokens. With what `CALL_TIMEOUT` lets pile up they stay below the number of questions
/// that may be under way.
const UNKNOWN: RateLimit = RateLimit {
    interval: Duration::from_millis(100),
    burst: 32,
};
/// Questions about unknown tokens of one client.
const UNKNOWN_EACH: RateLimit = RateLimit {
    interval: Duration::from_millis(500),
    burst: 8,
};
/// Clients whose buckets are remembered. The fullest bucket is forgotten first: a new one gives its client little more.
const CLIENTS_MAX: usize = 256;
/// Tokens that are known.
const KNOWN_MAX: usize = 256;
/// Known tokens of one account, which can have any number of them.
const KNOWN_EACH_MAX: usize = 16;
/// The shortest time between two lines of the log.
pub(super) const SAY_EVERY: Duration = Duration::from_secs(60);

/// How many reviews may be asked for (buckets) and run at a time (places). Tokens that were authenticated before use no
/// bucket, and places of their own.
pub(super) struct ReviewQuotas {
    pub(super) began: Instant,
    buckets: Mutex<Buckets>,
    unknown: Semaphore,
    known: Semaphore,
    /// Tokens that were authenticated.
    tokens: Mutex<BTreeMap<Digest, KnownToken>>,
    /// For the line that a bucket is empty.
    line: LineLimit,
}

#[derive(Default)]
struct Buckets {
    all: TokenBucket,
    each: BTreeMap<IpAddr, TokenBucket>,
}

/// A token that was authenticated.
struct KnownToken {
    account: Arc<str>,
    /// When last.
    at: Instant,
}

impl ReviewQuotas {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            buckets: Mutex::default(),
            unknown: Semaphore::new(UNKNOWN_CALLS_MAX),
            known: Semaphore::new(KNOWN_CALLS_MAX),
            tokens: Mutex::default(),
            line: LineLimit::new(1, SAY_EVERY),
        }
    }

    /// Returns whose quota the review of a token uses that this client shows.
    pub(super) fn owner(&self, token: &Digest, client: IpAddr) -> QuotaOwner {
        match self.tokens.lock().get(token) {
            Some(known) => QuotaOwner::Account(Arc::clone(&known.account)),
            None => QuotaOwner::Client(client),
        }
    }

    /// Says whether a token may be reviewed now: an unknown one only while its buckets last.
    pub(super) fn admits(&self, owner: &QuotaOwner) -> bool {
        let QuotaOwner::Client(client) = owner else {
            return true;
        };
        let now = self.began.elapsed();
        if self.buckets.lock().admit(*client, now) {
            return true;
        }
        if self.line.admit(now).is_some() {
            tracing::warn!(
                %client,
                "more unknown tokens come than are reviewed: some get 503 unreviewed"
            );
        }
        false
    }

    /// Waits for a place, at most until then.
    pub(super) async fn place(
        &self,
        owner: &QuotaOwner,
        until: Instant,
    ) -> Option<SemaphorePermit<'_>> {
        let places = match owner {
            QuotaOwner::Account(_) => &self.known,
            QuotaOwner::Client(_) => &self.unknown,
        };
        let place = timeout_at(until, places.acquire()).await.ok()?.ok()?;
        // A place that another call left only at `until` is too late: the call must have ended by then.
        (Instant::now() < until).then_some(place)
    }

    /// Remembers that the API server authenticated a token. Of its account's tokens, then of all, the one that was
    /// so longest ago makes room.
    pub(super) fn authenticated(&self, token: Digest, account: &Arc<str>) {
        let mut tokens = self.tokens.lock();
        let known = KnownToken {
            account: Arc::clone(account),
            at: Instant::now(),
        };
        tokens.insert(token, known);
        let is_own = |known: &KnownToken| known.account == *account;
        make_room(&mut tokens, KNOWN_EACH_MAX, is_own, |known| known.at);
        make_room(&mut tokens, KNOWN_MAX, |_any| true, |known| known.at);
    }

    /// Forgets a token that belongs to no account any more.
    pub(super) fn refused(&self, token: &Digest) {
        self.tokens.lock().remove(token);
    }
}

impl Buckets {
    /// `now` is the time since any fixed moment.
    fn admit(&mut self, client: IpAddr, now: Duration) -> bool {
        let own = self.each.entry(client).or_default();
        // The client's own bucket first: a client with an empty one must not take from the bucket of all.
        let is_admitted =
            own.admit(UNKNOWN_EACH, now).is_ok() && self.all.admit(UNKNOWN, now).is_ok();
        if self.each.len() > CLIENTS_MAX {
            let others = self.each.iter().filter(|(other, _)| **other != client);
            let fullest = others.min_by_key(|(_, bucket)| **bucket);
            if let Some(fullest) = fullest.map(|(other, _)| *other) {
                self.each.remove(&fullest);
            }
        }
        is_admitted
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

    fn client(number: u32) -> QuotaOwner {
        QuotaOwner::Client(IpAddr::V4(number.into()))
    }

    fn account(name: &str) -> QuotaOwner {
        QuotaOwner::Account(name.into())
    }

    /// Returns how many of so many questions are admitted now.
    fn admitted(quotas: &ReviewQuotas, owner: &QuotaOwner, questions: usize) -> usize {
        (0..questions).filter(|_| quotas.admits(owner)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_guesses_tokens_leaves_the_others_their_first_ones() {
        let quotas = ReviewQuotas::new();
        assert_eq!(admitted(&quotas, &client(1), 1_000), 8);
        assert_eq!(admitted(&quotas, &client(2), 1), 1);
        // Its own bucket gains a token in half a second, that of all five.
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(admitted(&quotas, &client(1), 1_000), 1);
        // All clients together have a bucket too.
        let guessers = 3..1_003;
        let of_all: usize = guessers
            .map(|it| admitted(&quotas, &client(it), 1_000))
            .sum();
        assert_eq!(of_all, 32 - 8 - 1 + 5 - 1);
        assert_eq!(admitted(&quotas, &account("known"), 1_000), 1_000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_buckets_of_clients_are_bounded_and_the_fullest_makes_room() {
        let quotas = ReviewQuotas::new();
        let each = |quotas: &ReviewQuotas| quotas.buckets.lock().each.len();
        assert_eq!(admitted(&quotas, &client(0), 1_000), 8);
        for number in 1..3 * u32::try_from(CLIENTS_MAX).unwrap() {
            admitted(&quotas, &client(number), 1);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(each(&quotas), CLIENTS_MAX);
        // That many others came in three quarters of a second, and its empty bucket is still known.
        assert!(admitted(&quotas, &client(0), 1_000) <= 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_its_accounts_until_it_is_refused() {
        let quotas = ReviewQuotas::new();
        let owner = || quotas.owner(&digest(0), IpAddr::from([10, 0, 0, 1]));
        assert!(matches!(owner(), QuotaOwner::Client(_)));
        quotas.authenticated(digest(0), &"scraper".into());
        assert_eq!(owner(), account("scraper"));
        quotas.refused(&digest(0));
        assert!(matches!(owner(), QuotaOwner::Client(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_places_of_known_tokens_are_free_while_the_others_are_taken() {
        let quotas = ReviewQuotas::new();
        let soon = || Instant::now() + Duration::from_secs(1);
        let mut taken = Vec::new();
        for number in 0..8 {
            taken.push(quotas.place(&client(number), soon()).await.unwrap());
        }
        assert!(quotas.place(&client(9), soon()).await.is_none());
        assert!(quotas.place(&account("known"), soon()).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_many_tokens_of_one_account_displace_each_other_alone() {
        let quotas = ReviewQuotas::new();
        let is_known = |number| {
            let owner = quotas.owner(&digest(number), IpAddr::from([10, 0, 0, 1]));
            matches!(owner, QuotaOwner::Account(_))
        };
        quotas.authenticated(digest(0), &"scraper".into());
        for number in 1..=2 * KNOWN_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            quotas.authenticated(digest(number), &"stranger".into());
        }
        assert!(is_known(0));
        assert_eq!(quotas.tokens.lock().len(), 1 + KNOWN_EACH_MAX);
        assert!(!is_known(1) && is_known(2 * KNOWN_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn the_token_that_was_good_longest_ago_makes_room() {
        let quotas = ReviewQuotas::new();
        for number in 0..=KNOWN_MAX {
            let account = format!("account-{number}");
            quotas.authenticated(digest(number), &account.into());
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let tokens = quotas.tokens.lock();
        assert_eq!(tokens.len(), KNOWN_MAX);
        assert!(!tokens.contains_key(&digest(0)) && tokens.contains_key(&digest(1)));
    }
}
