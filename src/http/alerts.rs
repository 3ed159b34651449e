//! `POST /webhook/alertmanager`: takes alerts, asks for passes, answers at once.
//!
//! Alertmanager repeats a notification only after a 5xx. So a failure that a repetition can heal gets 5xx, a
//! request that cannot be parsed gets 400, and everything else gets 2xx.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::guard::Requester;
use super::{HttpError, HttpResult, Service, body, json};
use crate::model::{AlertResult, Caller, Cause};
use crate::trigger::Admission;
use crate::trigger::alert::{Alert, KEY_MAX_BYTES, judge, note_similar, shorten};

/// Alerts that the answer lists; all are counted.
const LISTED_MAX: usize = 100;
/// Characters of the text that refuses a call.
const REFUSAL_MAX_CHARS: usize = 500;

/// The webhook's body. Unknown keys are ignored.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Webhook {
    version: String,
    /// Any JSON value: passes only show it.
    #[serde(default)]
    receiver: serde_json::Value,
    /// How many alerts the call leaves out (`max_alerts` of the receiver). Any JSON value.
    #[serde(default, rename = "truncatedAlerts")]
    truncated_alerts: serde_json::Value,
    #[cfg_attr(test, schemars(with = "Vec<WebhookAlert>"))]
    alerts: Vec<JsonObject<WebhookAlert>>,
}

/// An [`Alert`] and its status. It repeats the fields of `Alert`, because serde's `flatten` would first copy
/// all keys that we do not read.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Alert"))]
struct WebhookAlert {
    #[serde(deserialize_with = "status")]
    status: WebhookStatus,
    labels: BTreeMap<String, String>,
    #[serde(default, rename = "startsAt")]
    starts_at: String,
    /// When a resolved one ended. Any JSON value.
    #[serde(default, rename = "endsAt")]
    ends_at: serde_json::Value,
    #[serde(default)]
    fingerprint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "AlertStatus", rename_all = "lowercase"))]
enum WebhookStatus {
    Firing,
    Resolved,
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WebhookStatus, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "firing" => Ok(WebhookStatus::Firing),
        "resolved" => Ok(WebhookStatus::Resolved),
        other => Err(D::Error::custom(format!(
            "the status \"{other}\" is neither \"firing\" nor \"resolved\""
        ))),
    }
}

/// A value that is written as an object. Serde's structs also take an array of their values, in the order of the
/// fields.
#[derive(Debug)]
struct JsonObject<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = JsonObject<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<JsonObject<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(object)).map(JsonObject)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl WebhookAlert {
    fn alert(self, receiver: Option<&str>) -> (WebhookStatus, Alert) {
        let alert = Alert {
            labels: self.labels,
            starts_at: self.starts_at,
            ends_at: self.ends_at.as_str().map(shorten).unwrap_or_default(),
            fingerprint: self.fingerprint,
            receiver: receiver.map(str::to_owned),
        };
        (self.status, alert)
    }
}

/// The answer to one webhook call.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct WebhookAnswer {
    result: &'static str,
    passes: BTreeSet<String>,
    counts: BTreeMap<&'static str, usize>,
    /// In the order of the call; the first 100.
    alerts: Vec<AnsweredAlert>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AnsweredAlert {
    alertname: String,
    /// The alert's fingerprint, cut if it is too long; empty if it has none.
    fingerprint: String,
    #[serde(flatten)]
    admission: Admission,
}

pub(super) async fn post(
    State(service): State<Service>,
    Extension(Requester(by)): Extension<Requester>,
    request: Request,
) -> Response {
    let read = body(&service.fixed.limits, request.into_body())
        .await
        .and_then(|body| read(&body));
    let answer = match read {
        Ok((alerts, truncated)) => {
            if truncated > 0 {
                let text = "alerts are left out: set max_alerts of Alertmanager's receiver to 0";
                warn(&service, text, &truncated.to_string());
            }
            let answered = ask(&service, alerts, by.as_ref());
            for alert in &answered {
                service.metrics.alerts.count(alert.admission.result);
            }
            reply(answered)
        }
        Err(problem) => {
            service.metrics.alerts.count(AlertResult::Malformed);
            Err(problem)
        }
    };
    answer.unwrap_or_else(|problem| {
        warn(&service, "it is not understood", &problem.error);
        problem.into_response()
    })
}

/// Says in the log what is wrong with a call: Alertmanager reads no answer, and repeats none of these.
fn warn(service: &Service, text: &str, why: &str) {
    let fixed = &service.fixed;
    if let Some(left_out) = fixed.refusals.admit(fixed.started.elapsed()) {
        let left_out = NonZeroU64::new(left_out);
        tracing::warn!(why, left_out, "a call of the webhook: {text}");
    }
}

/// Refuses a body, which the text may quote, in a text of a bounded length.
fn not_understood(text: &str) -> HttpError {
    HttpError::bad(text.chars().take(REFUSAL_MAX_CHARS).collect::<String>())
}

/// Returns where a body is wrong, such as `alerts[0].labels.node: `; nothing if it is wrong as a whole. Reads it again,
/// because a path costs time that the right ones need not take.
fn place_of_the_error(body: &[u8]) -> String {
    let mut reader = serde_json::Deserializer::from_slice(body);
    match serde_path_to_error::deserialize::<_, JsonObject<Webhook>>(&mut reader) {
        Err(error) if error.path().iter().next().is_some() => format!("{}: ", error.path()),
        Err(_) | Ok(_) => String::new(),
    }
}

/// Returns the alerts of a call, and how many more it leaves out.
fn read(body: &[u8]) -> Result<(Vec<(WebhookStatus, Alert)>, u64), HttpError> {
    let JsonObject(webhook) =
        serde_json::from_slice::<JsonObject<Webhook>>(body).map_err(|error| {
            let place = place_of_the_error(body);
            not_understood(&format!(
                "this is not an Alertmanager webhook of version \"4\": {place}{error}"
            ))
        })?;
    if webhook.version != "4" {
        let version = &webhook.version;
        return Err(not_understood(&format!(
            "only version \"4\" of the webhook is supported, not \"{version}\""
        )));
    }
    // Shortened before each alert gets a copy.
    let receiver = webhook.receiver.as_str().map(shorten);
    let receiver = receiver.as_deref();
    let alerts = webhook.alerts.into_iter();
    let alerts = alerts.map(|JsonObject(it)| it.alert(receiver)).collect();
    Ok((alerts, webhook.truncated_alerts.as_u64().unwrap_or(0)))
}

/// The answer to an alert that could not be remembered. Those beside it are obeyed: Alertmanager does not repeat a call
/// that was refused.
fn too_long() -> Admission {
    let why = format!("its fingerprint or startsAt is longer than {KEY_MAX_BYTES} bytes");
    Admission::without_pass(AlertResult::Malformed, why)
}

fn ask(
    service: &Service,
    alerts: Vec<(WebhookStatus, Alert)>,
    by: Option<&Caller>,
) -> Vec<AnsweredAlert> {
    let config = service.config();
    let node = &config.node.name;
    let mut admissions = Vec::with_capacity(alerts.len());
    let (mut places, mut triggers) = (Vec::new(), Vec::new());
    // What asks for passes comes after all these. The end of a hold lets waiting passes begin, so it comes after what
    // else holds, and after what is withdrawn.
    let mut order: Vec<_> = alerts.iter().enumerate().collect();
    order.sort_by_key(|(_, (status, alert))| match status {
        WebhookStatus::Firing => 0,
        WebhookStatus::Resolved => 1 + i32::from(alert.is_hold()),
    });
    for (place, (status, alert)) in order {
        if alert.is_too_long() {
            admissions.push((place, too_long()));
            continue;
        }
        let admission = match judge(&config.alerts, node, Cause::Alert, alert) {
            Err(it) if it.result == AlertResult::Holds => match status {
                WebhookStatus::Resolved => service.worker.alert_ended(&alert.info(), alert.ended()),
                WebhookStatus::Firing => service.worker.alert_holds(&alert.info()),
            },
            Err(it)
                if it.result == AlertResult::BadTarget && *status == WebhookStatus::Resolved =>
            {
                service.worker.withdraw(&alert.info())
            }
            Err(admission) => {
                note_similar(&service.metrics, node, alert);
                admission
            }
            Ok(_) if *status == WebhookStatus::Resolved => service.worker.withdraw(&alert.info()),
            Ok(mut trigger) => {
                trigger.info.by = by.cloned();
                places.push(place);
                triggers.push(trigger);
                continue;
            }
        };
        admissions.push((place, admission));
    }
    admissions.extend(places.into_iter().zip(service.worker.submit(triggers)));
    // In the order of the request, so that its sender can match the rows.
    admissions.sort_by_key(|(place, _)| *place);
    let rows = alerts.into_iter().zip(admissions);
    let rows = rows.map(|((_, alert), (_, admission))| AnsweredAlert {
        alertname: alert.name(),
        fingerprint: shorten(&alert.fingerprint),
        admission,
    });
    rows.collect()
}

/// Returns the first alert if none of the call could be understood.
fn all_malformed(answered: &[AnsweredAlert]) -> Option<&AnsweredAlert> {
    let mut all = answered.iter();
    all.all(|it| it.admission.result == AlertResult::Malformed)
        .then(|| answered.first())?
}

/// The answer; an error if nothing of the call can be obeyed because it is wrong.
fn reply(mut answered: Vec<AnsweredAlert>) -> HttpResult {
    let find = |wanted| answered.iter().find(|it| it.admission.result == wanted);
    let (status, result) = if find(AlertResult::Accepted).is_some() {
        (StatusCode::ACCEPTED, "accepted")
    } else if find(AlertResult::Merged).is_some() {
        (StatusCode::ACCEPTED, "merged")
    } else if find(AlertResult::Unavailable).is_some() {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    } else if let Some(bad) = find(AlertResult::BadTarget).or_else(|| all_malformed(&answered)) {
        let why = bad.admission.why.as_deref().unwrap_or_default();
        let error = format!("alert \"{}\": {why}", bad.alertname);
        return Err(HttpError::bad(error));
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
    let answer = WebhookAnswer {
        result,
        passes,
        counts,
        alerts,
    };
    Ok(json(status, &answer))
}
