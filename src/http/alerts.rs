//! `POST /webhook/alertmanager`: alerts in, a pass asked for, an answer at once.
//!
//! Alertmanager repeats a 5xx within its flush and nothing else, so 5xx is for what a repetition can
//! heal, 400 for what cannot be understood, and everything else is 2xx.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::{Problem, Service, body, json};
use crate::gc::PassOptions;
use crate::model::{AlertResult, Cause};
use crate::trigger::alert::{Alert, KEY_MAX_BYTES, judge, note_similar};
use crate::trigger::{Answer, Request as PassRequest};

/// Alerts that the answer lists one by one; all are counted.
const LISTED_MAX: usize = 100;

/// The webhook's body, as far as we read it; other keys are fine.
#[derive(Debug, Deserialize)]
struct Webhook {
    version: String,
    alerts: Vec<Received>,
}

/// An [`Alert`] and its status. Its fields are named here again, because flattening would first keep a
/// copy of all keys that we do not read.
#[derive(Debug, Deserialize)]
struct Received {
    status: Status,
    labels: BTreeMap<String, String>,
    #[serde(default, rename = "startsAt")]
    starts_at: String,
    #[serde(default)]
    fingerprint: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Status {
    Firing,
    Resolved,
}

impl From<Received> for (Status, Alert) {
    fn from(received: Received) -> Self {
        let alert = Alert {
            labels: received.labels,
            starts_at: received.starts_at,
            fingerprint: received.fingerprint,
        };
        (received.status, alert)
    }
}

/// What the call comes to.
#[derive(Debug, Serialize)]
struct Reply {
    result: &'static str,
    /// The passes that the alerts asked for.
    passes: BTreeSet<String>,
    counts: BTreeMap<&'static str, usize>,
    alerts: Vec<Handled>,
}

#[derive(Debug, Serialize)]
struct Handled {
    alertname: String,
    result: AlertResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    pass: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Handles `POST /webhook/alertmanager`.
pub(super) async fn post(State(service): State<Service>, request: Request) -> Response {
    let alerts = match body(&service.fixed.budgets, request.into_body())
        .await
        .and_then(|body| read(&body))
    {
        Ok(alerts) => alerts,
        Err(problem) => {
            service.metrics.alert(AlertResult::Malformed);
            return problem.into_response();
        }
    };
    let handled = handle(&service, alerts);
    for alert in &handled {
        service.metrics.alert(alert.result);
    }
    reply(handled)
}

fn read(body: &[u8]) -> Result<Vec<(Status, Alert)>, Problem> {
    let webhook: Webhook = serde_json::from_slice(body).map_err(|error| {
        Problem::bad(format!(
            "this is not an Alertmanager webhook of version \"4\": {error}"
        ))
    })?;
    if webhook.version != "4" {
        let version = &webhook.version;
        return Err(Problem::bad(format!(
            "webhook version \"{version}\" is not understood; only \"4\" is"
        )));
    }
    let alerts: Vec<(Status, Alert)> = webhook.alerts.into_iter().map(Into::into).collect();
    if let Some((_, alert)) = alerts.iter().find(|(_, alert)| alert.is_too_long()) {
        return Err(Problem::bad(format!(
            "the fingerprint or startsAt of an alert \"{}\" is longer than {KEY_MAX_BYTES} bytes",
            alert.name()
        )));
    }
    Ok(alerts)
}

fn handle(service: &Service, alerts: Vec<(Status, Alert)>) -> Vec<Handled> {
    let config = service.config();
    let node = &config.node.name;
    let mut handled = Vec::with_capacity(alerts.len());
    let (mut asking, mut requests) = (Vec::new(), Vec::new());
    // Resolved ones first: what they take back shall not swallow what fires now.
    let (resolved, firing): (Vec<_>, Vec<_>) = alerts
        .into_iter()
        .partition(|(status, _)| *status == Status::Resolved);
    for (status, alert) in resolved.iter().chain(&firing) {
        match judge(&config.alerts, node, alert) {
            Err((result, why)) => {
                note_similar(&service.metrics, node, alert);
                handled.push(Handled::new(alert, result, None, why));
            }
            Ok(_) if *status == Status::Resolved => {
                let withdrawn = service.worker.withdraw(&alert.info());
                let pass = withdrawn.map(|record| record.id().to_owned());
                let result = if pass.is_some() {
                    AlertResult::Withdrawn
                } else {
                    AlertResult::Resolved
                };
                handled.push(Handled::new(alert, result, pass, None));
            }
            Ok(targets) => {
                requests.push(PassRequest {
                    cause: Cause::Alert,
                    targets,
                    options: PassOptions::default(),
                    alert: Some(alert.info()),
                });
                asking.push(alert);
            }
        }
    }
    let answers = service.worker.submit(requests);
    handled.extend(asking.into_iter().zip(answers).map(|(alert, answer)| {
        let (result, pass, why) = outcome(answer);
        Handled::new(alert, result, pass, why)
    }));
    handled
}

fn outcome(answer: Answer) -> (AlertResult, Option<String>, Option<String>) {
    let result = answer.alert_result();
    let (pass, why) = match answer {
        Answer::Queued(record) | Answer::Merged(record) => {
            let not_before = record.read(|pass| pass.not_before);
            let why = not_before.map(|at| format!("it waits until {at} (brakes.cooldown)"));
            (Some(record.id().to_owned()), why)
        }
        Answer::Duplicate(id) => (Some(id), None),
        Answer::Braked(brake) => (None, Some(brake.to_string())),
        Answer::QueueFull => (None, Some("too many passes are waiting".to_owned())),
        Answer::ShuttingDown => (None, Some("the service is going down".to_owned())),
    };
    (result, pass, why)
}

fn reply(handled: Vec<Handled>) -> Response {
    let any = |wanted: AlertResult| handled.iter().any(|alert| alert.result == wanted);
    let (status, result) = if any(AlertResult::Accepted) {
        (StatusCode::ACCEPTED, "accepted")
    } else if any(AlertResult::Merged) {
        (StatusCode::ACCEPTED, "merged")
    } else if any(AlertResult::Unavailable) {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    } else if any(AlertResult::BadTarget) {
        let bad = handled
            .iter()
            .find(|alert| alert.result == AlertResult::BadTarget);
        let why = bad.and_then(|alert| alert.why.clone()).unwrap_or_default();
        return Problem::bad(why).into_response();
    } else {
        (StatusCode::OK, "nothing-to-do")
    };
    let mut counts = BTreeMap::new();
    for alert in &handled {
        *counts.entry(alert.result.label()).or_default() += 1;
    }
    let wanted = [AlertResult::Accepted, AlertResult::Merged];
    let passes = handled
        .iter()
        .filter(|alert| wanted.contains(&alert.result));
    let passes = passes.filter_map(|alert| alert.pass.clone()).collect();
    let mut alerts = handled;
    alerts.truncate(LISTED_MAX);
    json(
        status,
        &Reply {
            result,
            passes,
            counts,
            alerts,
        },
    )
}

impl Handled {
    fn new(alert: &Alert, result: AlertResult, pass: Option<String>, why: Option<String>) -> Self {
        Self {
            alertname: alert.name(),
            result,
            pass,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_webhook_is_refused() {
        for body in [
            "",
            "{}",
            "[]",
            r#"{"alerts": []}"#,
            r#"{"version": "3", "alerts": []}"#,
            r#"{"version": 4, "alerts": []}"#,
            r#"{"version": "4"}"#,
            r#"{"version": "4", "alerts": [{"status": "firing", "labels": {"a": 1}}]}"#,
            r#"{"version": "4", "alerts": [{"status": "burning", "labels": {}}]}"#,
            r#"{"version": "4", "alerts": [{"labels": {}}]}"#,
        ] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
        let fine = r#"{"version": "4", "new": 1, "alerts": [
            {"status": "firing", "labels": {}, "annotations": {}, "new": {}}]}"#;
        assert_eq!(read(fine.as_bytes()).unwrap().len(), 1);
    }

    #[test]
    fn keys_that_would_be_remembered_at_length_are_refused() {
        let with = |key: &str, length: usize| {
            let value = "f".repeat(length);
            let alert = format!(r#"{{"status": "firing", "labels": {{}}, "{key}": "{value}"}}"#);
            read(format!(r#"{{"version": "4", "alerts": [{alert}]}}"#).as_bytes())
        };
        for key in ["fingerprint", "startsAt"] {
            assert!(with(key, KEY_MAX_BYTES).is_ok(), "{key}");
            let problem = with(key, KEY_MAX_BYTES + 1).unwrap_err();
            assert!(problem.error.contains("longer than"), "{}", problem.error);
        }
    }
}
