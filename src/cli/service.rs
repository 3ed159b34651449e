//! The running service, as commands ask it: where it is, what it answers, and why it does not. Sends a credential only
//! to a service that was named (`--service.url`).

mod remote;
mod way;
mod words;

use std::sync::Once;
use std::time::Duration;

use anyhow::Context;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::output::note;
use crate::config::Config;
use crate::gc::Policy;
use crate::http::{HANGS, NO_SUCH_PATH};
pub use remote::{Remote, RemoteArgs};
use way::{Way, ways};
pub(super) use words::NOT_UNDERSTOOD;
use words::{cause, own_words, said};

/// How the commands name themselves.
const USER_AGENT: &str = concat!("crisweep-command/", env!("CARGO_PKG_VERSION"));
/// How long a connection may take: an address that drops packets must not use up the time of the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read, where the question names no other bound.
const ANSWER_MAX_BYTES: usize = 4 << 20;

/// What a command does without the service.
pub(super) const LOOKS_ITSELF: &str = "this command looks for itself";

/// Why a command does not ask the service where `--runtime-endpoint` is given.
pub(super) const RUNTIME_NAMED: &str = "--runtime-endpoint names a runtime";

/// What a command is about: this node, or the service that was named.
#[derive(Debug)]
pub struct Site {
    /// The configuration.
    pub config: Config,
    /// `--runtime-endpoint`: the command asks this runtime, and no service.
    pub endpoint: Option<String>,
    /// `--service.url`: the command asks this service, and nothing else.
    pub remote: Option<Remote>,
}

impl Site {
    /// Returns what passes on the node keep; `None`: the named service has a configuration of its own.
    pub(super) fn policy(&self) -> Option<&Policy> {
        Some(&self.config.policy).filter(|_| self.remote.is_none())
    }
}

/// Why the service told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceFailureKind {
    /// Nothing listens there, or the service has no address that can be known.
    Down,
    /// It did not answer in time.
    NoAnswer,
    /// It says itself that it hangs.
    Hangs,
    /// It wants a credential, or another one.
    Refuses,
    /// Something else answered.
    Foreign,
}

/// Why the service told nothing, and in words what to do about it.
#[derive(Clone, Debug)]
pub(super) struct ServiceFailure {
    pub(super) kind: ServiceFailureKind,
    pub(super) words: String,
}

/// A service that said that it is healthy.
pub(super) struct HealthyService<'a> {
    way: &'a Way,
    client: Client,
}

impl HealthyService<'_> {
    /// Returns a request to a path of it.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.way.url(path))
    }

    /// Returns where it is, for people.
    pub(super) fn at(&self) -> String {
        format!("the service at {}", self.way)
    }

    /// Returns its own words about a question that it cannot answer. Where they are no words of crisweep, or it does not
    /// know the question, they alone would not be understood.
    fn refused(&self, status: StatusCode, body: &[u8]) -> String {
        match own_words(body) {
            Some(words) if !words.starts_with(NO_SUCH_PATH) => words,
            _ => self.refusal(status, body),
        }
    }

    /// Returns why it refused, with its own words and what to do about it.
    pub(super) fn refusal(&self, status: StatusCode, body: &[u8]) -> String {
        let said = said(body);
        let hint = match (status.as_u16(), self.way) {
            (401 | 403, Way::Remote(remote)) if remote.has_credential => {
                "; it does not take the credential of --service.token-file for this"
            }
            (401 | 403, Way::Remote(_)) => "; name a credential with --service.token-file",
            (401 | 403, Way::Unix(_) | Way::Tcp { .. }) => {
                "; name it with --service.url, and its credential with --service.token-file"
            }
            (404, _) if said.starts_with(NO_SUCH_PATH) => "; is it older than this command?",
            _ => "",
        };
        format!("{} answers {status}: {said}{hint}", self.at())
    }
}

/// Questions to the service, within a time.
pub(super) struct ServiceQuery {
    ways: Vec<Way>,
    is_remote: bool,
    /// Whether it was said that the service answers.
    said: Once,
    /// When a probe that was sent now must be answered: a service that works answers at once.
    patience: Duration,
    by: Instant,
    answer_max_bytes: usize,
}

impl ServiceQuery {
    /// Asks for one path of the service within the limit, unless the site names a runtime. `None`: the command works by
    /// itself, which is said with these words and the reason.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) async fn once(
        site: &Site,
        limit: Duration,
        path: &str,
        instead: &str,
    ) -> anyhow::Result<Option<Value>> {
        let answer = match site.endpoint {
            None => Self::within(site, limit).await.ask(path).await?,
            Some(_) => Err(RUNTIME_NAMED.to_owned()),
        };
        Ok(answer
            .inspect_err(|why| note(&format!("{why}: {instead}")))
            .ok())
    }

    /// Prepares questions that are answered within the limit.
    pub(super) async fn within(site: &Site, limit: Duration) -> Self {
        Self::new(site, limit, Instant::now() + limit).await
    }

    /// The same with an end that was set before.
    pub(super) async fn new(site: &Site, limit: Duration, by: Instant) -> Self {
        let ways = match &site.remote {
            Some(remote) => vec![Way::Remote(remote.clone())],
            None => ways(&site.config, limit / 4).await,
        };
        Self {
            ways,
            is_remote: site.remote.is_some(),
            said: Once::new(),
            patience: limit / 4,
            by,
            answer_max_bytes: ANSWER_MAX_BYTES,
        }
    }

    /// Takes answers of up to so many bytes.
    pub(super) fn up_to(mut self, bytes: usize) -> Self {
        self.answer_max_bytes = bytes;
        self
    }

    /// Asks for a path, and says on standard error that the service answers. The inner error says why it told nothing;
    /// the command then works by itself.
    ///
    /// # Errors
    /// With the service's own words, if it refuses; or if it was named and does not answer.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> anyhow::Result<Result<T, String>> {
        match self.bytes(path).await? {
            Ok(body) => Ok(Ok(serde_json::from_slice(&body).context(NOT_UNDERSTOOD)?)),
            Err(why) => Ok(Err(why)),
        }
    }

    /// The same for an answer that is no JSON.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) async fn bytes(&self, path: &str) -> anyhow::Result<Result<Vec<u8>, String>> {
        let found = match self.reach().await {
            Ok(found) => found,
            Err(failure) => return self.instead(failure.words),
        };
        let (status, body) = match self.get(&found, path).await {
            Ok(answer) => answer,
            Err(failure) => return self.instead(failure.words),
        };
        match status {
            StatusCode::OK => {
                let words = format!("the running service answers ({})", found.way);
                self.said.call_once(|| note(&words));
                Ok(Ok(body))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                self.instead(found.refusal(status, &body))
            }
            _ => anyhow::bail!("{}", found.refused(status, &body)),
        }
    }

    /// Asks for what only completes an answer: nothing is said of it, and without it the answer has less.
    pub(super) async fn quietly<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let found = self.reach().await.ok()?;
        match self.get(&found, path).await.ok()? {
            (StatusCode::OK, body) => serde_json::from_slice(&body).ok(),
            _ => None,
        }
    }

    /// The command works by itself, unless a service was named.
    fn instead<T>(&self, why: String) -> anyhow::Result<Result<T, String>> {
        if self.is_remote {
            anyhow::bail!(why);
        }
        Ok(Err(why))
    }

    /// Asks a service for a path; returns its answer, whatever the status.
    pub(super) async fn get(
        &self,
        found: &HealthyService<'_>,
        path: &str,
    ) -> Result<(StatusCode, Vec<u8>), ServiceFailure> {
        let request = found.request(Method::GET, path);
        answer(request, found.way, self.by, self.answer_max_bytes).await
    }

    /// Finds the first address where a healthy service answers.
    pub(super) async fn reach(&self) -> Result<HealthyService<'_>, ServiceFailure> {
        let mut failed: Option<ServiceFailure> = None;
        for way in &self.ways {
            let Ok(client) = way.client() else {
                continue;
            };
            let found = HealthyService { way, client };
            let by = self.by.min(Instant::now() + self.patience);
            let request = found.request(Method::GET, "/-/healthy");
            let failure = match answer(request, way, by, self.answer_max_bytes).await {
                Ok((StatusCode::OK, body)) if body.starts_with(b"crisweep") => return Ok(found),
                Ok((
                    status @ (StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN),
                    body,
                )) => {
                    let says_so = body.windows(HANGS.len()).any(|it| it == HANGS.as_bytes());
                    if says_so && status == StatusCode::SERVICE_UNAVAILABLE {
                        return Err(service_failure(ServiceFailureKind::Hangs, None, way));
                    }
                    failed = Some(ServiceFailure {
                        kind: ServiceFailureKind::Refuses,
                        words: found.refusal(status, &body),
                    });
                    continue;
                }
                Ok(_) => service_failure(ServiceFailureKind::Foreign, None, way),
                Err(failure) => failure,
            };
            if failed.is_none() || failure.kind != ServiceFailureKind::Down {
                failed = Some(failure);
            }
        }
        Err(failed.unwrap_or_else(no_way))
    }
}

/// Returns what the HTTP clients of commands have in common.
fn builder() -> ClientBuilder {
    // Fails only if a provider is already installed, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(USER_AGENT)
}

fn no_way() -> ServiceFailure {
    ServiceFailure {
        kind: ServiceFailureKind::Down,
        words:
            "no service answers: web.listen of this configuration names no address of this machine"
                .to_owned(),
    }
}

/// Says why the service told nothing, and what caused that.
fn service_failure(kind: ServiceFailureKind, cause: Option<String>, way: &Way) -> ServiceFailure {
    let key = match way {
        Way::Remote(_) => "--service.url",
        Way::Unix(_) | Way::Tcp { .. } => "web.listen",
    };
    let cause = cause.map(|cause| format!(": {cause}"));
    let cause = cause.unwrap_or_default();
    let words = match kind {
        ServiceFailureKind::Down => format!("no service answers at {way} ({key}){cause}"),
        ServiceFailureKind::NoAnswer => {
            format!("the service at {way} ({key}) gives no answer in time")
        }
        ServiceFailureKind::Hangs => format!("the service at {way} says that it hangs: restart it"),
        ServiceFailureKind::Refuses => format!("the service at {way} refuses{cause}"),
        ServiceFailureKind::Foreign => {
            format!("what answers at {way} ({key}) is no crisweep{cause}")
        }
    };
    ServiceFailure { kind, words }
}

/// Sends a request and reads its answer, at most `max` bytes, until `by`.
async fn answer(
    request: RequestBuilder,
    way: &Way,
    by: Instant,
    max: usize,
) -> Result<(StatusCode, Vec<u8>), ServiceFailure> {
    let answer = async {
        let mut response = request.send().await?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > max {
                return Ok((response.status(), None));
            }
        }
        Ok((response.status(), Some(body)))
    };
    match timeout_at(by, answer).await {
        Ok(Ok((status, Some(body)))) => Ok((status, body)),
        Ok(Ok((_, None))) => {
            let cause = format!("its answer is longer than {max} bytes");
            Err(service_failure(
                ServiceFailureKind::Foreign,
                Some(cause),
                way,
            ))
        }
        Ok(Err(error)) => {
            let error: reqwest::Error = error;
            let kind = if error.is_connect() {
                ServiceFailureKind::Down
            } else {
                ServiceFailureKind::Foreign
            };
            Err(service_failure(kind, Some(cause(error)), way))
        }
        Err(_elapsed) => Err(service_failure(ServiceFailureKind::NoAnswer, None, way)),
    }
}
