//! Webhook calls as Alertmanager sends them.

use serde_json::{Value, json};

use crate::support::{Answer, Rig};

pub(crate) const PATH: &str = "/webhook/alertmanager";

/// A firing alert as Alertmanager writes it, with these labels.
pub(crate) fn alert(labels: &Value) -> Value {
    let fingerprint = labels.to_string();
    json!({
        "status": "firing",
        "labels": labels,
        "annotations": { "summary": "too many" },
        "startsAt": "2026-01-02T03:04:05.678Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.example/graph",
        "fingerprint": fingerprint,
    })
}

/// An alert with the label that asks for these targets.
pub(crate) fn asks(targets: &str) -> Value {
    alert(&json!({ "alertname": "TooMany", "node": "node-1", "crisweep": targets }))
}

/// The same alert, resolved.
pub(crate) fn resolved(mut alert: Value) -> Value {
    alert["status"] = json!("resolved");
    alert["endsAt"] = json!("2026-01-02T04:04:05.678Z");
    alert
}

/// A whole call.
pub(crate) fn call(alerts: Vec<Value>) -> Value {
    let alerts = Value::Array(alerts);
    json!({
        "version": "4",
        "groupKey": "{}:{alertname=\"TooMany\"}",
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "crisweep",
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example",
        "alerts": alerts,
    })
}

/// Sends alerts.
pub(crate) async fn send(rig: &Rig, alerts: Vec<Value>) -> Answer {
    rig.post_json(PATH, &call(alerts)).await
}

/// Sends one alert, asserts the answer's status and result, and returns it.
pub(crate) async fn sent(rig: &Rig, alert: Value, status: u16, result: &str) -> Value {
    let answer = send(rig, vec![alert]).await;
    assert_eq!(answer.status, status, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["alerts"][0]["result"], result, "{body:#}");
    body
}

/// Returns the id of the pass that an answer names.
pub(crate) fn pass_of(answer: &Value) -> String {
    answer["alerts"][0]["pass"].as_str().unwrap().to_owned()
}

/// Asserts how many alerts were counted with a result.
pub(crate) async fn counted(rig: &Rig, result: &str, count: f64) {
    rig.metrics().await.is(
        &format!("crisweep_alerts_total{{result=\"{result}\"}}"),
        count,
    );
}
