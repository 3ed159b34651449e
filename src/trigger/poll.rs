//! Asks Alertmanagers for the alerts about this node (`alertmanager.poll`), for clusters in which no webhook
//! reaches the node. Needs no inbound port, and respects silences and inhibitions.
//!
//! Polled alerts are handled like the webhook's: same routes, duplicate check and brakes. Never follows a
//! redirect, never uses a proxy, never waits longer than its bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Url;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::config::Alertmanager;
use crate::metrics::Metrics;
use crate::model::{AlertInfo, AlertResult, Cause, PollResult};
use crate::telemetry;
use crate::trigger::Worker;
use crate::trigger::alert::{Alert, judge, note_similar};

/// Timeout of one answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer; 1,000 alerts are about a megabyte.
const ANSWER_MAX_BYTES: usize = 4 << 20;
/// Alerts of one answer that are read; a node has a few.
const ALERTS_MAX: usize = 1000;
/// After this many answers the poller also asks for this node's name with or without a domain.
const SIMILAR_EVERY: u64 = 100;

/// Which Alertmanagers to ask, and for which node.
#[derive(Clone, Debug)]
pub struct Poll {
    /// The Alertmanagers, and how often to ask them.
    pub alertmanager: Alertmanager,
    /// This node's name: the alerts' label `node`.
    pub node: String,
}

/// Why polling an Alertmanager failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("it is not an HTTP URL")]
    Url,
    #[error("no answer: {}", telemetry::chain(.0))]
    Request(#[source] reqwest::Error),
    #[error("it answered {0}")]
    Refused(reqwest::StatusCode),
    #[error("the answer is larger than {ANSWER_MAX_BYTES} bytes")]
    TooLarge,
    #[error("the answer is not a list of alerts: {0}")]
    NotAlerts(#[from] serde_json::Error),
}

impl Error {
    fn result(&self) -> PollResult {
        match self {
            Self::Url | Self::Request(_) => PollResult::Unreachable,
            Self::Refused(_) => PollResult::Refused,
            Self::TooLarge | Self::NotAlerts(_) => PollResult::Malformed,
        }
    }
}

/// The alerts of one Alertmanager that ask for a pass, by fingerprint and start.
type AskingAlerts = BTreeMap<(String, String), AlertInfo>;

/// One Alertmanager, and its last answer.
struct AlertSource {
    url: Url,
    asking: AskingAlerts,
    failing: bool,
    /// Number of good answers so far.
    answers: u64,
}

/// What handling an answer needs.
#[derive(Clone, Debug)]
pub struct PollContext {
    /// Admits passes.
    pub worker: Worker,
    /// Own counters.
    pub metrics: Metrics,
}

/// Polls every `interval` until the service shuts down.
pub async fn run(poll: Poll, context: PollContext, shutdown: CancellationToken) {
    let client = match client(&poll.alertmanager.poll) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!(
                error = telemetry::chain(&error),
                "no Alertmanager is polled"
            );
            return;
        }
    };
    let mut peers: Vec<AlertSource> = poll
        .alertmanager
        .poll
        .iter()
        .filter_map(|url| AlertSource::new(url))
        .collect();
    while !shutdown.is_cancelled() {
        // Random delay: a thousand nodes that start together must not poll together.
        let wait = poll
            .alertmanager
            .interval
            .mul_f64(0.9 + 0.2 * fastrand::f64());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => return,
        }
        for index in 0..peers.len() {
            let Some(peer) = peers.get_mut(index) else {
                continue;
            };
            let filter = format!("node=\"{}\"", poll.node);
            let answer = tokio::select! {
                answer = ask(&client, &peer.url, &filter) => answer,
                () = shutdown.cancelled() => return,
            };
            if answer.is_ok() && peer.answers.is_multiple_of(SIMILAR_EVERY) {
                let similar = tokio::select! {
                    similar = ask_similar(&client, &peer.url, &poll.node) => similar,
                    () = shutdown.cancelled() => return,
                };
                let few = similar.iter().take(ALERTS_MAX);
                few.for_each(|alert| note_similar(&context.metrics, &poll.node, alert));
            }
            peer.answers += u64::from(answer.is_ok());
            let resolved = peer.note(answer, &poll.node, &context);
            for (key, alert) in resolved {
                // The other half of an HA pair may still report it.
                if !peers.iter().any(|peer| peer.asking.contains_key(&key)) {
                    context.worker.withdraw(&alert);
                }
            }
        }
    }
}

/// Makes a client that trusts the system's CAs. Without `https` it needs none, so an image without CA
/// certificates works.
fn client(urls: &[String]) -> Result<reqwest::Client, reqwest::Error> {
    // Fails only if a provider is already installed, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let builder = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent(concat!("crisweep/", env!("CARGO_PKG_VERSION")));
    if urls.iter().any(|url| url.starts_with("https:")) {
        return builder.build();
    }
    let none = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    builder.tls_backend_preconfigured(none).build()
}

/// Asks for the alerts of a node whose name is this one's with or without a domain. They are not obeyed, but
/// counted and logged: an operator learns of the wrong name only here.
async fn ask_similar(client: &reqwest::Client, url: &Url, node: &str) -> Vec<Alert> {
    let host = node.split('.').next().unwrap_or(node);
    let filter = format!("node=~\"{host}([.].+)?\"");
    ask(client, url, &filter).await.unwrap_or_default()
}

async fn ask(client: &reqwest::Client, url: &Url, filter: &str) -> Result<Vec<Alert>, Error> {
    let mut url = url.clone();
    url.path_segments_mut()
        .map_err(|()| Error::Url)?
        .pop_if_empty()
        .extend(["api", "v2", "alerts"]);
    url.query_pairs_mut()
        .clear()
        .append_pair("filter", filter)
        .append_pair("active", "true")
        .append_pair("silenced", "false")
        .append_pair("inhibited", "false");
    let request = client.get(url).header("accept", "application/json");
    let failed = |error: reqwest::Error| Error::Request(error.without_url());
    let mut response = request.send().await.map_err(failed)?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(Error::Refused(response.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if bytes.len() + chunk.len() > ANSWER_MAX_BYTES {
            return Err(Error::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    read(&bytes)
}

/// Reads the active alerts; drops all others whatever the query asked for.
fn read(bytes: &[u8]) -> Result<Vec<Alert>, Error> {
    #[derive(Deserialize)]
    struct FoundAlert {
        status: AlertStatus,
        #[serde(flatten)]
        alert: Alert,
    }
    #[derive(Deserialize)]
    struct AlertStatus {
        state: String,
    }
    let found: Vec<FoundAlert> = serde_json::from_slice(bytes)?;
    let active = found
        .into_iter()
        .filter(|found| found.status.state == "active");
    Ok(active.map(|found| found.alert).collect())
}

impl AlertSource {
    fn new(url: &str) -> Option<Self> {
        let url = Url::parse(url).map_err(|error| {
            tracing::error!(%error, "an entry of alertmanager.poll is not a URL");
        });
        Some(Self {
            url: url.ok()?,
            asking: AskingAlerts::new(),
            failing: false,
            answers: 0,
        })
    }

    /// Returns the URL without its password.
    fn name(&self) -> String {
        let mut url = self.url.clone();
        // Both fail only for a URL without a host, which has no password.
        let _ = (url.set_username(""), url.set_password(None));
        url.to_string()
    }

    /// Submits the alerts that ask for a pass; returns those of the previous answer that no longer do.
    fn note(
        &mut self,
        answer: Result<Vec<Alert>, Error>,
        node: &str,
        context: &PollContext,
    ) -> AskingAlerts {
        let alerts = match answer {
            Ok(alerts) => alerts,
            Err(error) => {
                context.metrics.polled(error.result());
                if !self.failing {
                    tracing::warn!(alertmanager = self.name(), %error, "the Alertmanager cannot be polled");
                }
                self.failing = true;
                // After a failed answer no alert is known to be resolved.
                return AskingAlerts::new();
            }
        };
        context.metrics.polled(PollResult::Ok);
        if std::mem::take(&mut self.failing) {
            tracing::info!(alertmanager = self.name(), "it answers again");
        }
        let asking = submit(&alerts, node, context);
        let before = std::mem::replace(&mut self.asking, asking);
        let gone = before
            .into_iter()
            .filter(|(key, _)| !self.asking.contains_key(key));
        gone.collect()
    }
}

/// Asks for a pass for every alert that wants one; returns those alerts.
fn submit(alerts: &[Alert], node: &str, context: &PollContext) -> AskingAlerts {
    let config = context.worker.config();
    let (mut asking, mut triggers) = (AskingAlerts::new(), Vec::new());
    for alert in alerts.iter().take(ALERTS_MAX) {
        // An Alertmanager may ignore the filter: an alert without the label is not about this node.
        let is_ours = alert.labels.get("node").is_some_and(|name| name == node);
        let result = match judge(&config.alerts, node, Cause::Poll, alert) {
            Ok(trigger) if is_ours && !alert.is_too_long() => {
                let info = alert.info();
                asking.insert((info.fingerprint.clone(), info.starts_at.clone()), info);
                triggers.push(trigger);
                continue;
            }
            Ok(_) if is_ours => AlertResult::Malformed,
            Ok(_) => AlertResult::OtherNode,
            Err(admission) => admission.result,
        };
        note_similar(&context.metrics, node, alert);
        context.metrics.alert(result);
    }
    for admission in context.worker.submit(triggers) {
        context.metrics.alert(admission.result);
    }
    asking
}

#[cfg(test)]
mod tests {
    mod fuzz;
}
