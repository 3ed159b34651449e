//! Prometheus and Alertmanager alone: an alert travels from a rule to a webhook.

use axum::Router;
use axum::extract::Json;
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::alertmanager::Alertmanager;
use crate::support::prometheus::{Prometheus, shipped_rules};
use crate::support::wait::{PATIENCE, wait_for};

/// Fires from the second scrape on, with the labels that the shipped rules have.
const RULE: &str = r#"
groups:
  - name: e2e
    rules:
      - alert: EndToEnd
        expr: up{job="prometheus"} == 1
        labels: { node: e2e-node, crisweep: containers, severity: warning }
"#;

/// Serves a webhook on loopback; returns its address and what it receives.
async fn webhook() -> (String, mpsc::Receiver<Value>) {
    let (sender, receiver) = mpsc::channel(16);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/webhook", listener.local_addr().unwrap());
    let receive = move |Json(body): Json<Value>| async move {
        sender.send(body).await.unwrap();
    };
    let router = Router::new().route("/webhook", post(receive));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, receiver)
}

#[tokio::test]
async fn an_alert_travels_from_a_rule_to_the_webhook() {
    let dir = tempfile::tempdir().unwrap();
    let (url, mut received) = webhook().await;
    let alertmanager = Alertmanager::start(dir.path(), &url).await;
    let mut rules = shipped_rules("1s");
    rules.push(("e2e.yml".to_owned(), RULE.to_owned()));
    let prometheus = Prometheus::start(dir.path(), &[], &rules, &alertmanager).await;

    wait_for("the first scrape", PATIENCE, || async {
        let up = prometheus.query_one(r#"up{job="prometheus"}"#).await?;
        if (up - 1.0).abs() < f64::EPSILON {
            Ok(())
        } else {
            Err(up.to_string())
        }
    })
    .await;
    wait_for("the alert to fire", PATIENCE, || async {
        let alerts = prometheus.alerts().await?;
        let firing = |name: &str| {
            alerts
                .iter()
                .any(|alert| alert.state == "firing" && alert.labels["alertname"] == name)
        };
        if firing("EndToEnd") {
            Ok(())
        } else {
            Err(format!("{alerts:?}"))
        }
    })
    .await;

    let message = tokio::time::timeout(PATIENCE, received.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(message["version"], "4");
    let alert = &message["alerts"][0];
    assert_eq!(alert["status"], "firing");
    assert_eq!(alert["labels"]["node"], "e2e-node");
    assert_eq!(alert["labels"]["crisweep"], "containers");
    let names: Vec<Value> = alertmanager
        .alerts()
        .await
        .unwrap()
        .iter()
        .map(|a| a["labels"]["alertname"].clone())
        .collect();
    assert!(names.contains(&"EndToEnd".into()), "{names:?}");
}

#[tokio::test]
async fn every_shipped_rule_evaluates() {
    let dir = tempfile::tempdir().unwrap();
    let (url, _received) = webhook().await;
    let alertmanager = Alertmanager::start(dir.path(), &url).await;
    let rules = shipped_rules("1s");
    assert!(!rules.is_empty(), "no rules in alerts/");
    let prometheus = Prometheus::start(dir.path(), &[], &rules, &alertmanager).await;

    wait_for("every rule to be evaluated", PATIENCE, || async {
        let rules = prometheus.rules().await?;
        let unwell: Vec<&Value> = rules.iter().filter(|rule| rule["health"] != "ok").collect();
        if unwell.is_empty() {
            Ok(())
        } else {
            Err(format!("{unwell:?}"))
        }
    })
    .await;
}
