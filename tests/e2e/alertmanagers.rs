//! An alert finds its node and no other, by each way and with Alertmanagers of three versions: asked by the nodes,
//! with a receiver for each node, and with the URL's template that `alerts/alertmanagerconfig.sample.yaml` ships.
//!
//! The nodes are simulated; the service and the Alertmanagers are real.

mod inhibited;
mod polled;
mod webhook;

use serde_json::{Value, json};

use crate::support::alertmanager::Alertmanager;
use crate::support::release::Release;

const X: &str = "node-x";
const Y: &str = "node-y";

/// Returns the newer releases of Debian with theirs; each must be what it is tested for.
fn trixie() -> Option<Release> {
    let release = Release::unpacked("trixie")?;
    assert!(!release.has_templates(), "{:?}", release.version);
    Some(release)
}

fn forky() -> Option<Release> {
    let release = Release::unpacked("forky")?;
    assert!(release.has_templates(), "{:?}", release.version);
    Some(release)
}

/// Makes an alert fire at an Alertmanager, as Prometheus does; `more` are further labels.
async fn fire(alertmanager: &Alertmanager, name: &str, node: &str, more: &Value) {
    post(alertmanager, name, node, more, "2999-01-02T03:04:05Z").await;
}

/// Tells an Alertmanager that an alert no longer fires.
async fn resolve(alertmanager: &Alertmanager, name: &str, node: &str) {
    post(alertmanager, name, node, &json!({}), "2026-01-02T04:04:05Z").await;
}

async fn post(alertmanager: &Alertmanager, name: &str, node: &str, more: &Value, ends: &str) {
    let mut labels = json!({ "alertname": name, "node": node, "crisweep": "containers" });
    for (label, value) in more.as_object().into_iter().flatten() {
        labels[label] = value.clone();
    }
    // The same start wherever it is posted: two Alertmanagers then have the same alert.
    let alert = json!([{
        "labels": labels,
        "startsAt": "2026-01-02T03:04:05.678Z",
        "endsAt": ends,
    }]);
    alertmanager.post("/api/v2/alerts", &alert).await;
}

/// A time interval that mutes a route at all times, and the route for the alert that it mutes.
fn always() -> Value {
    let all_day = json!({ "times": [{ "start_time": "00:00", "end_time": "24:00" }] });
    json!([{ "name": "always", "time_intervals": [all_day] }])
}
