//! The running service, as commands ask it: where it is, what it answers, and why it does not. Sends a credential only
//! to a service that was named (`--service.url`).

mod address;
mod remote;

use std::sync::Once;
use std::time::Duration;

use anyhow::Context;
use reqwest::{Client, ClientBuilder, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::output::note;
use crate::config::Config;
use crate::gc::Policy;
use crate::http::HANGS;
pub use address::ServiceAddress;
use address::own_addresses;
pub use remote::RemoteArgs;

/// What is said of an answer in another form than this command reads.
pub(super) const NOT_UNDERSTOOD: &str =
    "the service's answer is not understood (another version than this command?)";
/// How the commands name themselves.
const USER_AGENT: &str = concat!("crisweep-command/", env!("CARGO_PKG_VERSION"));
/// How long a connection may take: an address that drops packets must not use up the time of the next one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer that is read, where the question names no other bound.
const ANSWER_MAX_BYTES: usize = 4 << 20;

/// Why a command does not ask the service where `--runtime-endpoint` is given.
const RUNTIME_NAMED: &str = "--runtime-endpoint names a runtime";

/// What a command is about: this node, or the service that was named.
#[derive(Debug)]
pub struct Site {
    /// The configuration.
    pub config: Config,
    /// `--runtime-endpoint`: the command asks this runtime, and no service.
    pub endpoint: Option<String>,
    /// `--service.url`: the command asks this service, and nothing else.
    pub remote: Option<ServiceAddress>,
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
    /// It is not asked: `--runtime-endpoint` names a runtime.
    NotAsked,
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

impl ServiceFailureKind {
    fn with(self, words: impl Into<String>) -> ServiceFailure {
        ServiceFailure {
            kind: self,
            words: words.into(),
        }
    }
}

/// Questions to the service, within a time.
pub(super) struct ServiceQuery {
    /// `--runtime-endpoint` is given: no service is asked.
    names_runtime: bool,
    addresses: Vec<ServiceAddress>,
    /// Whether it was said that the service answers.
    said: Once,
    /// When a probe that was sent now must be answered: a service that works answers at once.
    patience: Duration,
    by: Instant,
    answer_max_bytes: usize,
    /// What the command does where the service tells nothing.
    instead: String,
}

impl ServiceQuery {
    /// Prepares questions that are answered within the limit.
    pub(super) async fn within(site: &Site, limit: Duration) -> Self {
        Self::new(site, limit, Instant::now() + limit).await
    }

    /// The same with an end that was set before.
    pub(super) async fn new(site: &Site, limit: Duration, by: Instant) -> Self {
        let names_runtime = site.endpoint.is_some();
        let addresses = match &site.remote {
            _ if names_runtime => Vec::new(),
            Some(remote) => vec![remote.clone()],
            None => own_addresses(&site.config, limit / 4).await,
        };
        Self {
            names_runtime,
            addresses,
            said: Once::new(),
            patience: limit / 4,
            by,
            answer_max_bytes: ANSWER_MAX_BYTES,
            instead: "this command looks for itself".to_owned(),
        }
    }

    /// Takes answers of up to so many bytes.
    pub(super) fn up_to(mut self, bytes: usize) -> Self {
        self.answer_max_bytes = bytes;
        self
    }

    /// Says in these words what the command does where the service tells nothing.
    pub(super) fn or_else(mut self, instead: impl Into<String>) -> Self {
        self.instead = instead.into();
        self
    }

    /// Asks for a path, and says on standard error that the service answers. `None`: the command works by itself, and
    /// standard error says why.
    ///
    /// # Errors
    /// With the service's own words, if it refuses; or if it was named and does not answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        let body = self.bytes(path).await?;
        let answer = body.map(|body| serde_json::from_slice(&body).context(NOT_UNDERSTOOD));
        answer.transpose()
    }

    /// The same for an answer that is no JSON.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub(super) async fn bytes(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
        let (found, status, body) = match self.answer(path).await {
            Ok(answer) => answer,
            Err(failure) => return self.instead(failure.words),
        };
        match status {
            StatusCode::OK => {
                let words = format!("the running service answers ({})", found.shown);
                self.said.call_once(|| note(&words));
                Ok(Some(body))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                self.instead(found.refusal(status, &body))
            }
            _ => anyhow::bail!("{}", found.refusal(status, &body)),
        }
    }

    /// The command works by itself, unless a service was named.
    pub(super) fn instead<T>(&self, why: String) -> anyhow::Result<Option<T>> {
        if self.named().is_some() {
            anyhow::bail!(why);
        }
        note(&format!("{why}: {}", self.instead));
        Ok(None)
    }

    /// Returns the service that `--service.url` names, if it names one.
    pub(super) fn named(&self) -> Option<&ServiceAddress> {
        self.addresses.iter().find(|it| it.is_named)
    }

    /// Asks for a path; returns which service answers and what, whatever the status.
    pub(super) async fn answer(
        &self,
        path: &str,
    ) -> Result<(&ServiceAddress, StatusCode, Vec<u8>), ServiceFailure> {
        let found = self.reach().await?;
        let (status, body) = self.get(found, path).await?;
        Ok((found, status, body))
    }

    /// Asks the service that was found.
    pub(super) async fn get(
        &self,
        found: &ServiceAddress,
        path: &str,
    ) -> Result<(StatusCode, Vec<u8>), ServiceFailure> {
        found.get(path, self.by, self.answer_max_bytes).await
    }

    /// Finds the first address where a healthy service answers.
    pub(super) async fn reach(&self) -> Result<&ServiceAddress, ServiceFailure> {
        if self.names_runtime {
            return Err(ServiceFailureKind::NotAsked.with(RUNTIME_NAMED));
        }
        let mut failed: Option<ServiceFailure> = None;
        for address in &self.addresses {
            let by = self.by.min(Instant::now() + self.patience);
            let answer = address.get("/-/healthy", by, self.answer_max_bytes).await;
            let failure = match answer {
                Ok((StatusCode::OK, body)) if body.starts_with(b"crisweep") => return Ok(address),
                Ok((StatusCode::SERVICE_UNAVAILABLE, body)) if says_that_it_hangs(&body) => {
                    let words = format!("{} says that it hangs: restart it", address.at());
                    return Err(ServiceFailureKind::Hangs.with(words));
                }
                // A service of crisweep says itself that it speaks TLS there.
                Ok((status, body)) if is_refusal(status) || body.starts_with(b"crisweep") => {
                    ServiceFailureKind::Refuses.with(address.refusal(status, &body))
                }
                Ok(_) => address.foreign(""),
                Err(failure) => failure,
            };
            if failed.is_none() || failure.kind != ServiceFailureKind::Down {
                failed = Some(failure);
            }
        }
        let nowhere =
            "no service answers: web.listen of this configuration names no address of this machine";
        Err(failed.unwrap_or_else(|| ServiceFailureKind::Down.with(nowhere)))
    }
}

/// Says whether a service may refuse a probe with this status.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 401 | 403 | 503)
}

fn says_that_it_hangs(body: &[u8]) -> bool {
    body.windows(HANGS.len()).any(|it| it == HANGS.as_bytes())
}

/// Returns what the HTTP clients of commands have in common.
fn builder() -> ClientBuilder {
    // Fails only if a provider is already installed, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
        // A caller that verifies certificates adds the CAs. To load the system's here would fail where it has none.
        .tls_certs_only([])
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .user_agent(USER_AGENT)
}
