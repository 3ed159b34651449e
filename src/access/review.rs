//! Asks the API server who a bearer token belongs to and what that account may do, as kube-rbac-proxy does: a
//! `TokenReview`, then a `SubjectAccessReview` for the path and the verb. Fails closed: without a clear answer
//! nothing is allowed.
//!
//! Never keeps or shows a token: answers are remembered under a keyed hash.

mod memory;
mod quotas;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::digest::digest;
use super::tokens::TOKEN_MAX_BYTES;
use crate::kubernetes::{ApiClient, ApiServer};
use crate::system::blocking::BlockingPool;
use crate::system::opaque_debug;
use crate::telemetry::{self, LineLimit};

use memory::{AnswerCache, QuotaOwner};
use quotas::{CALLS_MAX, ReviewQuotas, SAY_EVERY};
use wire::{AccessStatus, ReviewStatus, TokenStatus, User};

/// How long a good answer holds.
const ALLOWED_FOR: Duration = Duration::from_secs(120);
/// How long a refusal holds.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Timeout of one call, with the wait for its turn.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
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
    /// Whose token it is.
    users: Arc<AnswerCache<Answer<Arc<User>>>>,
    /// Whether an account may do something.
    grants: Arc<AnswerCache<Answer<()>>>,
}

opaque_debug!(Review);

/// What the API server answers.
#[derive(Clone)]
enum Answer<T> {
    Yes(T),
    No,
    /// There is no clear answer, and why.
    Unknown(String),
}

impl<T> Answer<T> {
    fn holds_for(&self) -> Option<Duration> {
        match self {
            Self::Yes(_) => Some(ALLOWED_FOR),
            Self::No => Some(REFUSED_FOR),
            Self::Unknown(_) => None,
        }
    }
}

/// Makes the calls.
struct Reviewer {
    client: ApiClient,
    quotas: ReviewQuotas,
    /// For the line that a call failed.
    line: LineLimit,
}

impl Review {
    /// Returns reviews by an API server; asks nothing yet.
    pub fn new(api_server: ApiServer) -> Self {
        // A call that its caller gave up must not make the others believe that the disk hangs.
        let disk = BlockingPool::new(CALLS_MAX);
        let client = ApiClient::new(api_server, ANSWER_MAX_BYTES, disk);
        Self {
            reviewer: Arc::new(Reviewer {
                client,
                quotas: ReviewQuotas::new(),
                line: LineLimit::new(1, SAY_EVERY),
            }),
            users: Arc::default(),
            grants: Arc::default(),
        }
    }

    /// Says whether the token's account may do `verb` on `path`. Each pair of them is one more question, so their
    /// number must be bounded. `client` stands for the client ([`Peer::client`](super::Peer::client)).
    pub async fn allowed(&self, token: &str, client: IpAddr, verb: &str, path: &str) -> Reviewed {
        // The API server answers a question about an empty token with an error.
        if token.is_empty() || token.len() > TOKEN_MAX_BYTES {
            return Reviewed::Unauthenticated;
        }
        let user = match self.user(token, client).await {
            Answer::Yes(user) => user,
            Answer::No => return Reviewed::Unauthenticated,
            Answer::Unknown(why) => return Reviewed::Unavailable(why),
        };
        let name = user.username.clone();
        match self.grant(token, &user, verb, path).await {
            Answer::Yes(()) => Reviewed::Allowed(name),
            Answer::No => Reviewed::Denied(name),
            Answer::Unknown(why) => Reviewed::Unavailable(why),
        }
    }

    async fn user(&self, token: &str, client: IpAddr) -> Answer<Arc<User>> {
        let (reviewer, text) = (Arc::clone(&self.reviewer), token.to_owned());
        let digest = digest(&[token.as_bytes()]);
        let owner = reviewer.quotas.owner(&digest, client);
        let of = owner.clone();
        let asking = async move {
            if !reviewer.quotas.admits(&of) {
                let why = "more unknown tokens come than are reviewed; try again later";
                return (Answer::Unknown(why.to_owned()), None);
            }
            let user = reviewer.user(&text, &of).await;
            match &user {
                Answer::Yes(user) => reviewer.quotas.authenticated(digest, &user.account()),
                Answer::No => reviewer.quotas.refused(&digest),
                Answer::Unknown(_) => {}
            }
            let holds_for = user.holds_for();
            (user, holds_for)
        };
        let user = self.users.get(digest, owner, asking).await;
        user.unwrap_or_else(|too_many| Answer::Unknown(too_many.to_string()))
    }

    async fn grant(&self, token: &str, user: &User, verb: &str, path: &str) -> Answer<()> {
        let spec = wire::access(user, verb, path);
        // With the groups: a right by one that the account has left must not outlive the answer that named it.
        let key = digest(&[token.as_bytes(), spec.to_string().as_bytes()]);
        let owner = QuotaOwner::Account(user.account());
        let (reviewer, of) = (Arc::clone(&self.reviewer), owner.clone());
        let asking = async move {
            let grant = reviewer.grant(spec, &of).await;
            let holds_for = grant.holds_for();
            (grant, holds_for)
        };
        let grant = self.grants.get(key, owner, asking).await;
        grant.unwrap_or_else(|too_many| Answer::Unknown(too_many.to_string()))
    }
}

impl Reviewer {
    async fn user(&self, token: &str, owner: &QuotaOwner) -> Answer<Arc<User>> {
        let status = match self.call::<TokenStatus>(wire::token(token), owner).await {
            Ok(status) if status.authenticated => status,
            Ok(_) => return Answer::No,
            Err(why) => return Answer::Unknown(why),
        };
        match status.user.filter(|user| !user.username.is_empty()) {
            Some(user) => Answer::Yes(Arc::new(user)),
            None => Answer::Unknown("the API server authenticates a user without a name".into()),
        }
    }

    async fn grant(&self, spec: Value, owner: &QuotaOwner) -> Answer<()> {
        match self.call::<AccessStatus>(spec, owner).await {
            Ok(status) if status.allowed && !status.denied => Answer::Yes(()),
            Ok(_) => Answer::No,
            Err(why) => Answer::Unknown(why),
        }
    }

    /// Asks for a review; returns its status, or why there is none.
    async fn call<S: ReviewStatus>(&self, spec: Value, owner: &QuotaOwner) -> Result<S, String> {
        let until = Instant::now() + CALL_TIMEOUT;
        let answer = timeout_at(until, self.ask::<S>(&spec, owner, until)).await;
        let answer = answer.unwrap_or_else(|_elapsed| Err(late()));
        if let Err(error) = &answer
            && self.line.admit(self.quotas.began.elapsed()).is_some()
        {
            tracing::warn!(error, "a token cannot be reviewed, and is not accepted");
        }
        answer
    }

    async fn ask<S: ReviewStatus>(
        &self,
        spec: &Value,
        owner: &QuotaOwner,
        until: Instant,
    ) -> Result<S, String> {
        let place = self.quotas.place(owner, until).await;
        let _place = place.ok_or_else(late)?;
        let failed = |error| format!("the API server: {}", telemetry::chain(&error));
        let sending = self
            .client
            .send(Method::POST, S::PATH, wire::request::<S>(spec));
        let answer = sending.await.map_err(failed)?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => wire::status::<S>(&answer.bytes)
                .ok_or_else(|| format!("the API server's answer is no {}", S::KIND)),
            status => Err(advice(&self.client.server, status)),
        }
    }
}

fn late() -> String {
    let after = humantime::format_duration(CALL_TIMEOUT);
    format!("the API server gave no answer in {after}")
}

fn advice(server: &ApiServer, status: StatusCode) -> String {
    let (keys, url) = (server.credential_keys(), server.url_key());
    let words = match status {
        StatusCode::UNAUTHORIZED => format!("it refuses crisweep's own credentials ({keys})"),
        StatusCode::FORBIDDEN => {
            "bind crisweep's account to the ClusterRole system:auth-delegator".to_owned()
        }
        StatusCode::NOT_FOUND => format!("that is no API server ({url})"),
        status if status.is_redirection() => format!("redirects are not followed ({url})"),
        _ => "it cannot answer".to_owned(),
    };
    format!("the API server answered {status}: {words}")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::routing::post;
    use axum::{Json, Router};
    use serde_json::json;

    use super::*;
    use crate::outgoing::TlsConfig;

    /// Starts an API server at which the account is in these groups, of which `admins` may do everything.
    async fn api_server(groups: &Arc<Mutex<Vec<&'static str>>>) -> ApiServer {
        let groups = Arc::clone(groups);
        let user = move || async move {
            let groups = groups.lock().unwrap().clone();
            let user = json!({ "username": "ann", "groups": groups });
            let status = json!({ "authenticated": true, "user": user });
            Json(
                json!({ "apiVersion": TokenStatus::VERSION, "kind": TokenStatus::KIND, "status": status }),
            )
        };
        let grant = |Json(review): Json<Value>| async move {
            let status = json!({ "allowed": review["spec"]["groups"] == json!(["admins"]) });
            Json(
                json!({ "apiVersion": AccessStatus::VERSION, "kind": AccessStatus::KIND, "status": status }),
            )
        };
        let router = Router::new().route(TokenStatus::PATH, post(user));
        let router = router.route(AccessStatus::PATH, post(grant));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        ApiServer::new(url, None, TlsConfig::default())
    }

    #[tokio::test]
    async fn a_right_by_a_group_ends_with_the_answer_that_named_the_group() {
        let groups = Arc::new(Mutex::new(vec!["admins"]));
        let review = Review::new(api_server(&groups).await);
        let asked = |path| review.allowed("token", IpAddr::from([10, 0, 0, 1]), "post", path);
        let later = |seconds| async move {
            tokio::time::pause();
            tokio::time::advance(Duration::from_secs(seconds)).await;
            tokio::time::resume();
        };
        let (may, may_not) = (
            Reviewed::Allowed("ann".into()),
            Reviewed::Denied("ann".into()),
        );
        assert_eq!(asked("/first").await, may);
        groups.lock().unwrap().clear();
        later(100).await;
        assert_eq!(asked("/gc").await, may);
        later(30).await;
        assert_eq!(asked("/gc").await, may_not);
    }
}
