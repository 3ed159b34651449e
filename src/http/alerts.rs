//! `POST /webhook/alertmanager`: alerts in, a pass asked for, an answer at once.
//!
//! Alertmanager repeats a 5xx within its flush and nothing else, so 5xx is for what a repetition can
//! heal, 400 for what nobody understands, and everything else is 2xx.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::{Problem, Route, Service, body, json};
use crate::gc::gate::Options;
use crate::gc::{Target, Targets};
use crate::report::{AlertInfo, AlertResult, Cause};
use crate::worker::{Answer, Request as PassRequest};

/// Alerts that the answer lists one by one; all are counted.
const LISTED_MAX: usize = 100;

/// A fingerprint or start may be this long: Alertmanager's have 16 and some 30 characters. They are
/// remembered, so that what nobody bounds would grow with each call.
const KEY_MAX_BYTES: usize = 128;
/// Characters of an alert's name that are remembered and shown.
const NAME_MAX_CHARS: usize = 200;

/// The webhook's body, as far as we read it; other keys are fine.
#[derive(Debug, Deserialize)]
struct Webhook {
    version: String,
    alerts: Vec<Alert>,
}

#[derive(Debug, Deserialize)]
struct Alert {
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
    let webhook = match body(request.into_body()).await.and_then(|body| read(&body)) {
        Ok(webhook) => webhook,
        Err(problem) => {
            service.metrics.alert(AlertResult::Malformed);
            return problem.into_response();
        }
    };
    let handled = handle(&service, webhook.alerts);
    for alert in &handled {
        service.metrics.alert(alert.result);
    }
    reply(handled)
}

fn read(body: &[u8]) -> Result<Webhook, Problem> {
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
    let too_long = |alert: &&Alert| {
        alert.fingerprint.len() > KEY_MAX_BYTES || alert.starts_at.len() > KEY_MAX_BYTES
    };
    if let Some(alert) = webhook.alerts.iter().find(too_long) {
        return Err(Problem::bad(format!(
            "the fingerprint or startsAt of an alert \"{}\" is longer than {KEY_MAX_BYTES} bytes",
            alert.name()
        )));
    }
    Ok(webhook)
}

fn handle(service: &Service, alerts: Vec<Alert>) -> Vec<Handled> {
    let routes = service.live().routes;
    let mut handled = Vec::with_capacity(alerts.len());
    let (mut asking, mut requests) = (Vec::new(), Vec::new());
    // Resolved ones first: what they take back shall not swallow what fires now.
    let (resolved, firing): (Vec<_>, Vec<_>) = alerts
        .into_iter()
        .partition(|alert| alert.status == Status::Resolved);
    for alert in resolved.iter().chain(&firing) {
        match judge(&routes, &service.fixed.node, alert) {
            Err((result, why)) => handled.push(Handled::new(alert, result, None, why)),
            Ok(_) if alert.status == Status::Resolved => {
                let withdrawn = service.worker.withdraw(&alert.info());
                let pass = withdrawn.map(|record| record.id());
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
                    options: Options::default(),
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

/// Which targets an alert asks for, if it is for us at all.
fn judge(
    routes: &[Route],
    node: &str,
    alert: &Alert,
) -> Result<BTreeSet<Target>, (AlertResult, Option<String>)> {
    match alert.labels.get("node").map(String::as_str) {
        None | Some("") => {}
        Some(other) if other == node => {}
        Some(other) => {
            return Err((
                AlertResult::OtherNode,
                Some(format!("it is about node \"{other}\"")),
            ));
        }
    }
    if !routes.is_empty() {
        let matching = routes.iter().find(|route| {
            route
                .matches
                .iter()
                .all(|(label, value)| alert.labels.get(label) == Some(value))
        });
        let why = "no entry of `alerts` in the configuration matches it";
        return match matching {
            Some(route) => Ok(route.targets.clone()),
            None => Err((AlertResult::NotRouted, Some(why.to_owned()))),
        };
    }
    match alert
        .labels
        .get("crisweep")
        .map(|word| word.parse::<Targets>())
    {
        None => Err((
            AlertResult::NotRouted,
            Some("it has no label `crisweep`".to_owned()),
        )),
        Some(Ok(targets)) => Ok(targets.0),
        Some(Err(error)) => Err((
            AlertResult::BadTarget,
            Some(format!("label `crisweep`: {error}")),
        )),
    }
}

fn outcome(answer: Answer) -> (AlertResult, Option<String>, Option<String>) {
    match answer {
        Answer::Queued(record) => (AlertResult::Accepted, Some(record.id()), None),
        Answer::Merged(record) => (AlertResult::Merged, Some(record.id()), None),
        Answer::Duplicate(id) => (AlertResult::Duplicate, Some(id), None),
        Answer::Braked(brake) => (AlertResult::Braked, None, Some(brake.to_string())),
        Answer::QueueFull => (
            AlertResult::Unavailable,
            None,
            Some("too many passes are waiting".to_owned()),
        ),
        Answer::ShuttingDown => (
            AlertResult::Unavailable,
            None,
            Some("the service is going down".to_owned()),
        ),
    }
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

impl Alert {
    fn name(&self) -> String {
        let name = self.labels.get("alertname").map(String::as_str);
        let name = name.unwrap_or_default().chars();
        name.take(NAME_MAX_CHARS).collect()
    }

    /// An alert without fingerprint is told apart by its labels, which is what a fingerprint is.
    fn info(&self) -> AlertInfo {
        let fingerprint = if self.fingerprint.is_empty() {
            let mut hasher = DefaultHasher::new();
            self.labels.hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        } else {
            self.fingerprint.clone()
        };
        AlertInfo {
            name: self.name(),
            fingerprint,
            starts_at: self.starts_at.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(labels: &[(&str, &str)]) -> Alert {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Alert {
            status: Status::Firing,
            labels,
            starts_at: String::new(),
            fingerprint: String::new(),
        }
    }

    fn routed(labels: &[(&str, &str)]) -> Result<BTreeSet<Target>, AlertResult> {
        judge(&[], "node-1", &alert(labels)).map_err(|(result, _)| result)
    }

    #[test]
    fn the_crisweep_label_names_the_targets() {
        assert_eq!(
            routed(&[("crisweep", "containers")]),
            Ok([Target::Containers].into())
        );
        assert_eq!(routed(&[("crisweep", "all")]), Ok(Target::ALL.into()));
        assert_eq!(
            routed(&[("alertname", "Other")]),
            Err(AlertResult::NotRouted)
        );
        assert_eq!(
            routed(&[("crisweep", "images")]),
            Ok([Target::Images].into())
        );
        assert_eq!(
            routed(&[("crisweep", "everything")]),
            Err(AlertResult::BadTarget)
        );
    }

    #[test]
    fn only_alerts_about_this_node_are_obeyed() {
        let of_node = |node| routed(&[("crisweep", "all"), ("node", node)]);
        assert!(of_node("node-1").is_ok());
        assert!(of_node("").is_ok());
        assert_eq!(of_node("node-10"), Err(AlertResult::OtherNode));
    }

    #[test]
    fn routes_replace_the_label_and_the_first_match_counts() {
        let route = |name: &str, target| Route {
            matches: [("alertname".to_owned(), name.to_owned())].into(),
            targets: [target].into(),
        };
        let routes = [
            route("A", Target::Containers),
            route("A", Target::Sandboxes),
            route("B", Target::Sandboxes),
        ];
        let targets = |labels: &[(&str, &str)]| judge(&routes, "n", &alert(labels)).ok();
        assert_eq!(
            targets(&[("alertname", "A")]),
            Some([Target::Containers].into())
        );
        assert_eq!(targets(&[("alertname", "C"), ("crisweep", "all")]), None);
    }

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
        assert_eq!(read(fine.as_bytes()).unwrap().alerts.len(), 1);
    }

    #[test]
    fn alerts_without_fingerprint_are_told_apart_by_their_labels() {
        let one = alert(&[("a", "1"), ("b", "2")]).info();
        assert_eq!(one, alert(&[("b", "2"), ("a", "1")]).info());
        assert_ne!(one, alert(&[("a", "1")]).info());
    }

    #[test]
    fn what_is_remembered_of_an_alert_is_bounded() {
        let long = "x".repeat(1 << 19);
        let info = alert(&[("alertname", &long), ("other", &long)]).info();
        assert_eq!(info.name.len(), NAME_MAX_CHARS);
        assert_eq!(info.fingerprint.len(), 16);
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
