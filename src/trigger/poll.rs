//! Asks Alertmanagers for the alerts about this node (`alertmanager.poll`), for clusters in which no webhook
//! reaches the node. Needs no inbound port, and respects silences and inhibitions; the API's list of alerts does not
//! tell of a route's time intervals.
//!
//! Polled alerts are handled like the webhook's: same routes, duplicate check and brakes. Never
//! waits longer than its bounds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::config::Alertmanager;
use crate::model::{AlertInfo, AlertResult, Cause, PollResult};
use crate::outgoing::{self, HttpClient};
use crate::system::blocking::BlockingPool;
use crate::telemetry;
use crate::trigger::Worker;
use crate::trigger::alert::{Alert, HOLD, judge, note_similar};

/// Alertmanagers that are asked at the same time.
const ASKED_AT_ONCE_MAX: usize = 4;
/// Timeout of one answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer; 1,000 alerts are about a megabyte.
const ANSWER_MAX_BYTES: u64 = 4 << 20;
/// Alerts of one answer that are read; a node has a few. Alerts that hold come in an answer of their own, so they crowd
/// none about the node out.
const ALERTS_MAX: usize = 1000;
/// After this many answers without an alert about this node the poller also asks for alerts that hold the passes of
/// all nodes: thresholds heed them too.
const HOLD_EVERY: u64 = 4;
/// Answers in a row without an alert that holds, after which it is over: an Alertmanager that was restarted knows of no
/// alert until Prometheus sends it again, a minute later.
const HOLD_GONE_AFTER: u32 = 4;
/// After this many answers the poller also asks for this node's name with or without a domain.
const SIMILAR_EVERY: u64 = 100;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{}", telemetry::chain(.0))]
    Request(#[from] outgoing::Error),
    #[error("no answer within {}", humantime::format_duration(TIMEOUT))]
    Timeout,
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("the answer is not a list of alerts: {0}")]
    NotAlerts(#[from] serde_json::Error),
}

impl Error {
    fn result(&self) -> PollResult {
        match self {
            Self::Request(outgoing::Error::TooLarge(_)) | Self::NotAlerts(_) => {
                PollResult::Malformed
            }
            Self::Request(_) | Self::Timeout => PollResult::Unreachable,
            Self::Refused(_) => PollResult::Refused,
        }
    }
}

/// An alert that asks for a pass, or holds passes.
#[derive(Clone, Debug)]
struct AskingAlert {
    info: AlertInfo,
    is_hold: bool,
    /// Answers in a row that lack it.
    missing: u32,
}

/// The alerts of one Alertmanager, by fingerprint and start.
type AskingAlerts = BTreeMap<(String, String), AskingAlert>;

fn insert(asking: &mut AskingAlerts, info: AlertInfo, is_hold: bool) {
    let key = (info.fingerprint.clone(), info.starts_at.clone());
    let alert = AskingAlert {
        info,
        is_hold,
        missing: 0,
    };
    asking.insert(key, alert);
}

/// One Alertmanager, as its answers show it.
#[derive(Debug, Default)]
struct AlertSource {
    /// Its URL without user and password.
    name: String,
    asking: AskingAlerts,
    /// How its last question failed, if it did.
    failing: Option<PollResult>,
    /// Number of good answers so far.
    answers: u64,
}

/// What the Alertmanagers said so far, which a reload keeps. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct PolledAlerts(Arc<Mutex<Vec<AlertSource>>>);

/// Polls each Alertmanager every `interval` until the service shuts down. One that hangs holds up no other.
pub async fn run(
    alertmanager: Alertmanager,
    worker: Worker,
    polled: PolledAlerts,
    shutdown: CancellationToken,
) {
    polled.follow(&alertmanager.poll);
    let disk = BlockingPool::new(1);
    let turns = Semaphore::new(ASKED_AT_ONCE_MAX);
    let (polled, worker, turns) = (&polled, &worker, &turns);
    let urls = alertmanager.poll.iter().enumerate();
    let asking = urls.map(|(index, url)| {
        let (config, interval) = (&alertmanager.http_client_config, alertmanager.interval);
        let (config, disk) = (config.clone(), disk.clone());
        let client = HttpClient::new(url.clone(), config, ANSWER_MAX_BYTES, disk);
        async move {
            loop {
                // Random delay: a thousand nodes that start together must not poll together.
                let pause = interval.mul_f64(0.9 + 0.2 * fastrand::f64());
                tokio::time::sleep(pause).await;
                // Fails only on a closed semaphore, and this one is never closed.
                let _turn = turns.acquire().await;
                polled.ask(index, &client, worker).await;
            }
        }
    });
    shutdown.run_until_cancelled(join_all(asking)).await;
}

impl PolledAlerts {
    /// Takes over the Alertmanagers of a configuration. The alerts of those that are no longer asked count until every
    /// other one has answered without them.
    fn follow(&self, urls: &[String]) {
        let mut sources = self.0.lock();
        let mut before = std::mem::take(&mut *sources);
        for name in urls.iter().map(|url| shown(url)) {
            let known = before.iter().position(|it| it.name == name);
            let known = known.map(|at| before.swap_remove(at)).unwrap_or_default();
            // After a reload the failure is logged again.
            let failing = None;
            sources.push(AlertSource {
                name,
                failing,
                ..known
            });
        }
        for left in before {
            for source in &mut *sources {
                source.asking.extend(left.asking.clone());
            }
        }
    }

    async fn ask(&self, index: usize, client: &HttpClient, worker: &Worker) {
        let node = &worker.config().node.name;
        let (asks_for_hold, asks_for_similar) = self.asks_for_more(index);
        let filter = format!("node=\"{node}\"");
        let answer = ask_both(client, &filter, asks_for_hold).await;
        if answer.is_ok() && asks_for_similar {
            for alert in &ask_similar(client, node).await {
                note_similar(&worker.runner().metrics, node, alert);
            }
        }
        self.note(index, answer, node, worker);
    }

    /// Says whether an Alertmanager is also asked for alerts that hold, and for other names of this node.
    fn asks_for_more(&self, index: usize) -> (bool, bool) {
        let sources = self.0.lock();
        sources.get(index).map_or((true, false), |it| {
            (
                !it.asking.is_empty() || it.answers.is_multiple_of(HOLD_EVERY),
                it.answers.is_multiple_of(SIMILAR_EVERY),
            )
        })
    }

    /// Handles an answer: submits the alerts that ask for a pass, and ends those that no Alertmanager reports any more.
    fn note(&self, index: usize, answer: Result<Vec<Alert>, Error>, node: &str, worker: &Worker) {
        let mut sources = self.0.lock();
        let Some(source) = sources.get_mut(index) else {
            return;
        };
        let mut gone = source.note(answer, node, worker);
        // Another Alertmanager of an HA pair may still report the alert.
        gone.retain(|key, _| !sources.iter().any(|it| it.asking.contains_key(key)));
        // Withdraw before any hold ends, because its end lets waiting passes begin.
        for alert in gone.values() {
            worker.withdraw(&alert.info);
        }
        // A hold goes on if its alert fires again with another start.
        gone.retain(|_, alert| !sources.iter().any(|it| it.has(&alert.info)));
        for alert in gone.values() {
            worker.alert_ended(&alert.info, None);
        }
    }
}

/// Asks for the alerts of this node, and for those that hold the passes of all. Both or nothing: an alert must not ask
/// for a pass because the one that holds it was not read.
///
/// A fleet at rest asks one question: the second is left out while nothing here asks for a pass, unless
/// `asks_for_hold`.
async fn ask_both(
    client: &HttpClient,
    node: &str,
    asks_for_hold: bool,
) -> Result<Vec<Alert>, Error> {
    let of_node = ask(client, node).await?;
    if of_node.is_empty() && !asks_for_hold {
        return Ok(of_node);
    }
    let filter = format!("crisweep=\"{HOLD}\"");
    let mut alerts = ask(client, &filter).await?;
    alerts.retain(Alert::is_hold);
    alerts.extend(of_node.into_iter().filter(|alert| !alert.is_hold()));
    Ok(alerts)
}

/// Asks for the alerts of a node whose name is this one's with or without a domain. They are not obeyed, but
/// counted and logged: an operator learns of the wrong name only here.
async fn ask_similar(client: &HttpClient, node: &str) -> Vec<Alert> {
    let host = node.split('.').next().unwrap_or(node);
    let filter = format!("node=~\"{host}([.].+)?\"");
    ask(client, &filter).await.unwrap_or_default()
}

async fn ask(client: &HttpClient, filter: &str) -> Result<Vec<Alert>, Error> {
    let mut url = client.url("/api/v2/alerts")?;
    url.query_pairs_mut()
        .append_pair("filter", filter)
        .append_pair("active", "true")
        .append_pair("silenced", "false")
        .append_pair("inhibited", "false");
    let answer = tokio::time::timeout(TIMEOUT, client.get(url)).await;
    let answer = answer.map_err(|_elapsed| Error::Timeout)??;
    if answer.status != StatusCode::OK {
        return Err(Error::Refused(answer.status));
    }
    let mut alerts = read(&answer.bytes)?;
    if alerts.len() > ALERTS_MAX {
        tracing::debug!(
            alerts = alerts.len(),
            filter,
            "only the first {ALERTS_MAX} alerts are read"
        );
        alerts.truncate(ALERTS_MAX);
    }
    Ok(alerts)
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
    /// Says whether the last answer has the alert, whenever it began.
    fn has(&self, alert: &AlertInfo) -> bool {
        let mut asking = self.asking.keys();
        asking.any(|(fingerprint, _)| *fingerprint == alert.fingerprint)
    }

    /// Submits the alerts that ask for a pass; returns those of the previous answer that no longer do.
    fn note(
        &mut self,
        answer: Result<Vec<Alert>, Error>,
        node: &str,
        worker: &Worker,
    ) -> AskingAlerts {
        let metrics = &worker.runner().metrics;
        let alerts = match answer {
            Ok(alerts) => alerts,
            Err(error) => {
                let result = error.result();
                metrics.polls.count(result);
                if self.failing.replace(result) != Some(result) {
                    tracing::warn!(alertmanager = self.name, %error, "the Alertmanager cannot be polled");
                }
                // After a failed answer no alert is known to be resolved.
                return AskingAlerts::new();
            }
        };
        metrics.polls.count(PollResult::Ok);
        self.answers += 1;
        if self.failing.take().is_some() {
            tracing::info!(alertmanager = self.name, "the Alertmanager answers again");
        }
        let asking = submit(&alerts, node, worker);
        let mut before = std::mem::replace(&mut self.asking, asking);
        before.retain(|key, _| !self.asking.contains_key(key));
        for alert in before.values_mut() {
            alert.missing += 1;
        }
        let (gone, kept): (_, AskingAlerts) = before
            .into_iter()
            .partition(|(_, it)| !it.is_hold || it.missing >= HOLD_GONE_AFTER);
        self.asking.extend(kept);
        gone
    }
}

/// Returns a URL without its user and password.
fn shown(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else {
        return String::new();
    };
    // Both calls fail only for a URL without a host, which has no password.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}

/// Asks for a pass for every alert that wants one; returns those alerts.
fn submit(alerts: &[Alert], node: &str, worker: &Worker) -> AskingAlerts {
    let (config, metrics) = (worker.config(), &worker.runner().metrics);
    let (mut asking, mut triggers) = (AskingAlerts::new(), Vec::new());
    for alert in alerts {
        // An Alertmanager may ignore the filter: an alert without the label is not about this node.
        let is_ours = alert.labels.get("node").is_some_and(|name| name == node);
        let result = match judge(&config.alerts, node, Cause::Poll, alert) {
            Ok(trigger) if is_ours && !alert.is_too_long() => {
                insert(&mut asking, alert.info(), false);
                triggers.push(trigger);
                continue;
            }
            Ok(_) if is_ours => AlertResult::Malformed,
            Ok(_) => AlertResult::OtherNode,
            Err(it) if it.result == AlertResult::Holds && !alert.is_too_long() => {
                let info = alert.info();
                let result = worker.alert_holds(&info).result;
                insert(&mut asking, info, true);
                result
            }
            Err(admission) => admission.result,
        };
        note_similar(metrics, node, alert);
        metrics.alerts.count(result);
    }
    for admission in worker.submit(triggers) {
        metrics.alerts.count(admission.result);
    }
    asking
}

#[cfg(test)]
mod tests {
    mod fuzz;
}
