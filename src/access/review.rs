//! Asks the API server who a bearer token belongs to and what that account may do, as kube-rbac-proxy does: a
//! `TokenReview`, then a `SubjectAccessReview` for the path and the verb. Fails closed: without a clear answer
//! nothing is allowed.
//!
//! Never keeps or shows a token: answers are remembered under a keyed hash.

mod memory;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::StatusCode;
use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::outgoing::{HttpClient, HttpClientConfig};
use crate::system::blocking::BlockingPool;
use crate::telemetry;
use memory::{Digest, Memory};
use wire::{AccessSpec, TokenSpec, User, Wire};

/// How long a good answer holds.
const ALLOWED_FOR: Duration = Duration::from_secs(120);
/// How long a refusal holds.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Timeout of one call, with the wait for its turn.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Calls at a time.
const CALLS_MAX: usize = 8;
/// The longest token. Those of service accounts have about 1 KiB.
const TOKEN_MAX_BYTES: usize = 8 << 10;
/// The largest answer: it repeats the token and lists the account's groups.
const ANSWER_MAX_BYTES: u64 = 64 << 10;

/// What a token's account may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reviewed {
    /// The account of this name may do it.
    Allowed(String),
    /// The token belongs to no account.
    Unauthenticated,
    /// The account of this name may not do it.
    Denied(String),
    /// There is no clear answer, and why. Nothing is allowed.
    Unavailable(String),
}

/// Reviews of tokens by the API server. Cloning shares what is remembered.
#[derive(Clone)]
pub struct Review {
    reviewer: Arc<Reviewer>,
    users: Arc<Memory<Authentication>>,
    grants: Arc<Memory<Grant>>,
    key: hmac::Key,
}

impl fmt::Debug for Review {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Review")
            .field("client", &self.reviewer.client)
            .finish_non_exhaustive()
    }
}

/// Whose token it is.
#[derive(Clone)]
enum Authentication {
    User(Arc<User>),
    Nobody,
    Unknown(String),
}

/// Whether an account may do something.
#[derive(Clone)]
enum Grant {
    Allowed,
    Denied,
    Unknown(String),
}

/// Makes the calls.
struct Reviewer {
    client: HttpClient,
    turns: Semaphore,
    /// The last call failed.
    is_failing: AtomicBool,
}

impl Review {
    /// Returns reviews by the API server at `url`; asks nothing yet.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new(url: String, client: HttpClientConfig) -> Result<Self, ring::error::Unspecified> {
        // A call that its asker gave up must not make the others believe that the disk hangs.
        let disk = BlockingPool::new(CALLS_MAX);
        let client = HttpClient::new(url, client, ANSWER_MAX_BYTES, disk);
        Ok(Self {
            reviewer: Arc::new(Reviewer {
                client,
                turns: Semaphore::new(CALLS_MAX),
                is_failing: AtomicBool::new(false),
            }),
            users: Arc::default(),
            grants: Arc::default(),
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
        })
    }

    /// Says whether the token's account may do `method` on `path`, the request's path without its query.
    pub async fn allowed(&self, token: &str, method: &str, path: &str) -> Reviewed {
        // A guess must not cost the API server anything.
        if token.len() > TOKEN_MAX_BYTES || !looks_like_jwt(token) {
            return Reviewed::Unauthenticated;
        }
        let user = match self.user(token).await {
            Authentication::User(user) => user,
            Authentication::Nobody => return Reviewed::Unauthenticated,
            Authentication::Unknown(why) => return Reviewed::Unavailable(why),
        };
        let name = user.username.clone();
        match self.grant(token, user, method, path).await {
            Grant::Allowed => Reviewed::Allowed(name),
            Grant::Denied => Reviewed::Denied(name),
            Grant::Unknown(why) => Reviewed::Unavailable(why),
        }
    }

    async fn user(&self, token: &str) -> Authentication {
        let (reviewer, asked) = (Arc::clone(&self.reviewer), token.to_owned());
        let asking = async move {
            let user = reviewer.user(asked).await;
            let keep = match &user {
                Authentication::User(_) => Some(ALLOWED_FOR),
                Authentication::Nobody => Some(REFUSED_FOR),
                Authentication::Unknown(_) => None,
            };
            (user, keep)
        };
        let user = self.users.get(self.digest(&[token]), asking).await;
        user.unwrap_or_else(|too_many| Authentication::Unknown(too_many.to_string()))
    }

    async fn grant(&self, token: &str, user: Arc<User>, method: &str, path: &str) -> Grant {
        let verb = method.to_ascii_lowercase();
        let key = self.digest(&[token, &verb, path]);
        let (reviewer, path) = (Arc::clone(&self.reviewer), path.to_owned());
        let asking = async move {
            let grant = reviewer.grant(&user, &verb, &path).await;
            let keep = match &grant {
                Grant::Allowed => Some(ALLOWED_FOR),
                Grant::Denied => Some(REFUSED_FOR),
                Grant::Unknown(_) => None,
            };
            (grant, keep)
        };
        let grant = self.grants.get(key, asking).await;
        grant.unwrap_or_else(|too_many| Grant::Unknown(too_many.to_string()))
    }

    /// Returns the keyed hash of some texts.
    fn digest(&self, texts: &[&str]) -> Digest {
        let mut hash = hmac::Context::with_key(&self.key);
        for text in texts {
            // The length keeps neighbours apart.
            hash.update(&text.len().to_be_bytes());
            hash.update(text.as_bytes());
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(hash.sign().as_ref());
        digest
    }
}

impl Reviewer {
    async fn user(&self, token: String) -> Authentication {
        match self.call(&TokenSpec { token }).await {
            Ok(status) => match status.user {
                Some(user) if status.authenticated && !user.username.is_empty() => {
                    Authentication::User(Arc::new(user))
                }
                Some(_) | None if status.authenticated => Authentication::Unknown(
                    "the API server authenticates a user without a name".into(),
                ),
                Some(_) | None => Authentication::Nobody,
            },
            Err(why) => Authentication::Unknown(why),
        }
    }

    async fn grant(&self, user: &User, verb: &str, path: &str) -> Grant {
        match self.call(&AccessSpec::new(user, verb, path)).await {
            Ok(status) if status.allowed && !status.denied => Grant::Allowed,
            Ok(_) => Grant::Denied,
            Err(why) => Grant::Unknown(why),
        }
    }

    /// Asks for a review; returns its status, or why there is none.
    async fn call<S: Wire>(&self, spec: &S) -> Result<S::Status, String> {
        let until = Instant::now() + CALL_TIMEOUT;
        let answer = timeout_at(until, self.ask(spec, until)).await;
        let answer = answer.unwrap_or_else(|_elapsed| Err(late()));
        self.say(answer.as_ref().err());
        answer
    }

    async fn ask<S: Wire>(&self, spec: &S, until: Instant) -> Result<S::Status, String> {
        let turn = self.turns.acquire().await;
        // The turns of calls that ended late come too late for those who waited as long.
        let _turn = turn
            .ok()
            .filter(|_| Instant::now() < until)
            .ok_or_else(late)?;
        let failed = |error| format!("the API server: {}", telemetry::chain(&error));
        let url = self.client.url(S::PATH).map_err(failed)?;
        let answer = self.client.post(url, wire::request(spec)).await;
        let answer = answer.map_err(failed)?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => wire::status::<S>(&answer.bytes)
                .ok_or_else(|| format!("the API server's answer is no {}", S::KIND)),
            status => Err(advice(status)),
        }
    }

    /// Logs the first failure, and the end of failures.
    fn say(&self, error: Option<&String>) {
        let was_failing = self.is_failing.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_failing => {
                tracing::warn!(error, "no token can be reviewed, and none is accepted");
            }
            None if was_failing => tracing::info!("tokens are reviewed again"),
            Some(_) | None => {}
        }
    }
}

fn late() -> String {
    let after = humantime::format_duration(CALL_TIMEOUT);
    format!("the API server gave no answer in {after}")
}

fn advice(status: StatusCode) -> String {
    let words = match status {
        StatusCode::UNAUTHORIZED => "it refuses crisweep's own token (pods.api_token_file)",
        StatusCode::FORBIDDEN => {
            "bind crisweep's service account to the ClusterRole system:auth-delegator"
        }
        StatusCode::NOT_FOUND => "that is no API server (pods.api_url)",
        status if status.is_redirection() => "redirects are not followed (pods.api_url)",
        _ => "it cannot answer",
    };
    format!("the API server answered {status}: {words}")
}

/// Says whether a text has the three parts of a signed JWT.
fn looks_like_jwt(token: &str) -> bool {
    let is_base64url = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let is_part =
        |part: &str| !part.is_empty() && part.len() % 4 != 1 && part.bytes().all(is_base64url);
    token.split('.').count() == 3 && token.split('.').all(is_part)
}
