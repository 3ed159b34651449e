//! `alertmanager.poll`: fetched alerts, if no webhook can reach the node.

use serde_json::{Value, json};

use super::pass_by;
use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, nodes, until};

/// An alert as Alertmanager's API writes it.
fn alert(labels: &Value, state: &str) -> Value {
    json!({
        "labels": labels,
        "annotations": { "summary": "too many" },
        "startsAt": "2026-01-02T03:04:05.678Z",
        "endsAt": "2026-01-02T09:04:05.678Z",
        "updatedAt": "2026-01-02T03:09:05.678Z",
        "fingerprint": "1122334455667788",
        "generatorURL": "http://prometheus.example/graph",
        "receivers": [{ "name": "crisweep" }],
        "status": { "state": state, "silencedBy": [], "inhibitedBy": [], "mutedBy": [] },
    })
}

pub(super) fn asks(node: &str) -> Value {
    alert(
        &json!({ "alertname": "TooMany", "node": node, "crisweep": "containers" }),
        "active",
    )
}

pub(super) fn reply(alerts: &Value) -> Reply {
    Reply::json(&alerts.to_string())
}

async fn rig(alertmanagers: &[&PodServer]) -> Rig {
    let urls: Vec<String> = alertmanagers
        .iter()
        .map(|a| format!("http://{}/am/", a.address))
        .collect();
    let poll = json!({ "alertmanager": { "poll": urls, "interval": "50ms" } });
    Rig::start(nodes::litter(2), poll).await
}

pub(super) async fn polled(rig: &Rig, result: &str) {
    let series = format!("crisweep_alertmanager_polls_total{{result=\"{result}\"}}");
    until("polls with that result", || async {
        (rig.metrics().await.get(&series) >= Some(3.0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_active_alert_about_this_node_brings_a_pass_and_its_repetitions_none() {
    let alertmanager = PodServer::plain().await;
    alertmanager.reply(reply(&json!([asks("node-1")])));
    let rig = rig(&[&alertmanager]).await;
    let pass = pass_by(&rig, "poll").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["trigger"]["alert"]["name"], "TooMany");
    assert_eq!(rig.exited_containers(), 0);
    polled(&rig, "ok").await;
    assert_eq!(rig.passes().await.len(), 1);
    let asked = alertmanager.asked().remove(0).line;
    let query = "filter=node%3D%22node-1%22&active=true&silenced=false&inhibited=false";
    assert_eq!(asked, format!("GET /am/api/v2/alerts?{query}"));
}

#[tokio::test]
async fn the_same_alert_by_webhook_is_a_duplicate() {
    let alertmanager = PodServer::plain().await;
    alertmanager.reply(reply(&json!([asks("node-1")])));
    let rig = rig(&[&alertmanager]).await;
    pass_by(&rig, "poll").await;
    let mut same = asks("node-1");
    same["status"] = json!("firing");
    // The webhook writes nanoseconds that the API omits.
    same["startsAt"] = json!("2026-01-02T03:04:05.678000000Z");
    let call = json!({ "version": "4", "alerts": [same] });
    let answer = rig.post_json("/webhook/alertmanager", &call).await;
    assert_eq!(
        answer.json()["alerts"][0]["result"],
        "duplicate",
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn alerts_that_are_not_active_or_about_another_node_are_ignored() {
    let alertmanager = PodServer::plain().await;
    let labels = |node: &str| json!({ "node": node, "crisweep": "all" });
    // An Alertmanager that ignores every filter.
    alertmanager.reply(reply(&json!([
        alert(&labels("node-1"), "suppressed"),
        alert(&labels("node-2"), "active"),
        alert(&json!({ "crisweep": "all" }), "active"),
        alert(&json!({ "node": "node-1" }), "active"),
    ])));
    let rig = rig(&[&alertmanager]).await;
    polled(&rig, "ok").await;
    assert_eq!(rig.passes().await, Vec::<Value>::new());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn bad_answers_are_counted_and_the_next_good_one_is_taken() {
    let alertmanager = PodServer::plain().await;
    let rig = rig(&[&alertmanager]).await;
    for (bad, result) in [
        (Reply::status("503 Service Unavailable"), "refused"),
        (Reply::redirect("http://127.0.0.1:1/"), "refused"),
        (Reply::json("{}"), "malformed"),
        (Reply::json("[{\"labels\": {\"a\": 1}}]"), "malformed"),
        (Reply::flood(false), "malformed"),
        (Reply::cut("[]          "), "unreachable"),
    ] {
        alertmanager.reply(bad);
        let series = format!("crisweep_alertmanager_polls_total{{result=\"{result}\"}}");
        let before = rig.metrics().await.get(&series);
        until(result, || async {
            (rig.metrics().await.get(&series) > before).then_some(())
        })
        .await;
    }
    rig.nothing_was_touched();
    alertmanager.reply(reply(&json!([asks("node-1")])));
    assert_eq!(pass_by(&rig, "poll").await["outcome"], "completed");
    // One line for each kind of failure in a row.
    let mut lines = rig.log();
    lines.retain(|line| line["message"] == "the Alertmanager cannot be polled");
    let begins = ["it answered 503", "the answer is not a list", "no answer"];
    assert_eq!(lines.len(), begins.len(), "{lines:?}");
    for (line, begin) in lines.iter().zip(begins) {
        let error = line["error"].as_str().unwrap();
        assert!(error.starts_with(begin), "{error}");
    }
}

#[tokio::test]
async fn one_silent_alertmanager_of_two_does_not_stop_the_other() {
    let (silent, fine) = (PodServer::plain().await, PodServer::plain().await);
    silent.reply(Reply::silence());
    fine.reply(reply(&json!([asks("node-1")])));
    let rig = rig(&[&silent, &fine]).await;
    assert_eq!(pass_by(&rig, "poll").await["outcome"], "completed");
}

#[tokio::test]
async fn an_alert_that_is_gone_before_its_pass_began_takes_it_back() {
    let alertmanager = PodServer::plain().await;
    let rig = rig(&[&alertmanager]).await;
    // A manual pass that waits for its look keeps the alert's pass waiting.
    rig.sim.set_fault(
        crisweep_sim::Rpc::RemoveContainer,
        crisweep_sim::Fault::hang(),
    );
    let answer = rig.post("/gc?target=containers&max_removals=1").await;
    let first = answer.json()["id"].as_str().unwrap().to_owned();
    rig.removing().await;
    alertmanager.reply(reply(&json!([asks("node-1")])));
    let queued = until("the alert's pass waits", || async {
        let passes = rig.passes().await;
        let waits = |pass: &&Value| pass["trigger"]["cause"] == "poll" && pass["state"] == "queued";
        passes
            .iter()
            .find(waits)
            .map(|pass| pass["id"].as_str().unwrap().to_owned())
    })
    .await;
    alertmanager.reply(reply(&json!([])));
    let pass = rig.finished(&queued).await;
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");
    assert!(pass["errors"].to_string().contains("resolved"), "{pass:#}");
    rig.sim.clear_fault(crisweep_sim::Rpc::RemoveContainer);
    rig.finished(&first).await;
}

#[tokio::test]
async fn alerts_that_name_this_node_with_its_domain_are_reported_and_not_obeyed() {
    let alertmanager = PodServer::plain().await;
    alertmanager.reply(reply(&json!([asks("node-1.example.com")])));
    let rig = rig(&[&alertmanager]).await;
    let series = "crisweep_node_name_mismatches_total";
    until("the other name is noticed", || async {
        (rig.metrics().await.get(series) >= Some(1.0)).then_some(())
    })
    .await;
    // After the questions for this node's alerts and for those that hold.
    let asked = alertmanager.asked().remove(2).line;
    assert!(
        asked.contains("filter=node%3D%7E%22node-1%28%5B.%5D.%2B%29%3F%22"),
        "{asked}"
    );
    rig.nothing_was_touched();
}
