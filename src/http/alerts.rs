//! `POST /webhook/alertmanager`: takes alerts, asks for passes, answers at once.
//!
//! Alertmanager repeats a notification only after a 5xx. So a failure that a repetition can heal gets 5xx, a
//! request that cannot be parsed gets 400, and everything else gets 2xx.

use std::collections::{BTreeMap, BTreeSet};

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::guard::By;
use super::{Problem, Service, body, json};
use crate::model::{AlertResult, Caller, Cause};
use crate::trigger::alert::{Alert, KEY_MAX_BYTES, judge, note_similar, shorten};
use crate::trigger::{Admission, Trigger};

/// Alerts that the answer lists; all are counted.
const LISTED_MAX: usize = 100;

/// The webhook's body. Unknown keys are ignored.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Webhook {
    version: String,
    /// Anything: passes only show it.
    #[serde(default)]
    receiver: serde_json::Value,
    alerts: Vec<Received>,
}

/// An [`Alert`] and its status. It repeats the fields of `Alert`, because serde's `flatten` would first copy
/// all keys that we do not read.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Alert"))]
struct Received {
    status: Status,
    labels: BTreeMap<String, String>,
    #[serde(default, rename = "startsAt")]
    starts_at: String,
    #[serde(default)]
    fingerprint: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AlertStatus"))]
#[serde(rename_all = "lowercase")]
enum Status {
    Firing,
    Resolved,
}

impl Received {
    fn alert(self, receiver: Option<&str>) -> (Status, Alert) {
        let alert = Alert {
            labels: self.labels,
            starts_at: self.starts_at,
            fingerprint: self.fingerprint,
            receiver: receiver.map(str::to_owned),
        };
        (self.status, alert)
    }
}

/// The answer to one webhook call.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "WebhookAnswer"))]
pub(super) struct Reply {
    result: &'static str,
    passes: BTreeSet<String>,
    counts: BTreeMap<&'static str, usize>,
    alerts: Vec<Answered>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "AnsweredAlert"))]
struct Answered {
    alertname: String,
    #[serde(flatten)]
    admission: Admission,
}

pub(super) async fn post(
    State(service): State<Service>,
    Extension(By(by)): Extension<By>,
    request: Request,
) -> Response {
    let alerts = match body(&service.fixed.limits, request.into_body())
        .await
        .and_then(|body| read(&body))
    {
        Ok(alerts) => alerts,
        Err(problem) => {
            service.metrics.alert(AlertResult::Malformed);
            return problem.into_response();
        }
    };
    let answered = ask(&service, alerts, by.as_ref());
    for alert in &answered {
        service.metrics.alert(alert.admission.result);
    }
    reply(answered)
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
            "webhook version \"{version}\" is not supported; only \"4\" is"
        )));
    }
    // Shortened before each alert gets a copy.
    let receiver = webhook.receiver.as_str().map(shorten);
    let receiver = receiver.as_deref();
    let alerts = webhook.alerts.into_iter();
    let alerts: Vec<(Status, Alert)> = alerts.map(|it| it.alert(receiver)).collect();
    if let Some((_, alert)) = alerts.iter().find(|(_, alert)| alert.is_too_long()) {
        return Err(Problem::bad(format!(
            "the fingerprint or startsAt of an alert \"{}\" is longer than {KEY_MAX_BYTES} bytes",
            alert.name()
        )));
    }
    Ok(alerts)
}

fn ask(service: &Service, alerts: Vec<(Status, Alert)>, by: Option<&Caller>) -> Vec<Answered> {
    let config = service.config();
    let node = &config.node.name;
    let mut answered = Vec::with_capacity(alerts.len());
    let (mut names, mut triggers) = (Vec::new(), Vec::new());
    // Resolved alerts first: a resolved alert must not take back the pass that a firing alert of the same call
    // asks for.
    let (resolved, firing): (Vec<_>, Vec<_>) = alerts
        .into_iter()
        .partition(|(status, _)| *status == Status::Resolved);
    for (status, alert) in resolved.iter().chain(&firing) {
        let alertname = alert.name();
        let admission = match judge(&config.alerts, node, Cause::Alert, alert) {
            Err(it) if it.result == AlertResult::Holds => match status {
                Status::Resolved => service.worker.over(&alert.info()),
                Status::Firing => service.worker.storm(&alert.info()),
            },
            Err(admission) => {
                note_similar(&service.metrics, node, alert);
                admission
            }
            Ok(_) if *status == Status::Resolved => service.worker.withdraw(&alert.info()),
            Ok(trigger) => {
                names.push(alertname);
                let by = by.cloned();
                triggers.push(Trigger { by, ..trigger });
                continue;
            }
        };
        answered.push(Answered {
            alertname,
            admission,
        });
    }
    let admissions = service.worker.submit(triggers);
    let pairs = names.into_iter().zip(admissions);
    answered.extend(pairs.map(|(alertname, admission)| Answered {
        alertname,
        admission,
    }));
    answered
}

fn reply(mut answered: Vec<Answered>) -> Response {
    let find = |wanted| answered.iter().find(|it| it.admission.result == wanted);
    let (status, result) = if find(AlertResult::Accepted).is_some() {
        (StatusCode::ACCEPTED, "accepted")
    } else if find(AlertResult::Merged).is_some() {
        (StatusCode::ACCEPTED, "merged")
    } else if find(AlertResult::Unavailable).is_some() {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    } else if let Some(bad) = find(AlertResult::BadTarget) {
        let why = bad.admission.why.clone().unwrap_or_default();
        return Problem::bad(why).into_response();
    } else {
        (StatusCode::OK, "nothing-to-do")
    };
    let (mut counts, mut passes) = (BTreeMap::new(), BTreeSet::new());
    for Admission { result, pass, .. } in answered.iter().map(|it| &it.admission) {
        *counts.entry(result.label()).or_default() += 1;
        if let AlertResult::Accepted | AlertResult::Merged = result {
            passes.extend(pass.clone());
        }
    }
    answered.truncate(LISTED_MAX);
    let alerts = answered;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_not_a_webhook_is_refused() {
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
    fn a_receiver_may_be_anything_and_a_long_one_is_shortened() {
        let receiver = |json: &str| {
            let alert = r#"{"status": "firing", "labels": {}}"#;
            let body = format!(r#"{{"version": "4", "receiver": {json}, "alerts": [{alert}]}}"#);
            read(body.as_bytes()).unwrap()[0].1.receiver.clone()
        };
        assert_eq!(receiver(r#""node-1""#).as_deref(), Some("node-1"));
        for other in ["null", "[1]", "{}"] {
            assert_eq!(receiver(other), None, "{other}");
        }
        let long = receiver(&format!("\"{}\"", "x".repeat(100_000))).unwrap();
        assert_eq!(long.len(), 200);
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
