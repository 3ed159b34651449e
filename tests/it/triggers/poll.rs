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
    let poll = json!({ "alertmanager": { "poll": urls, "interval": "100ms" } });
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
async fn a_silent_alertmanager_holds_up_no_round_of_the_other() {
    let (silent, fine) = (PodServer::plain().await, PodServer::plain().await);
    silent.reply(Reply::silence());
    fine.reply(reply(&json!([])));
    let _rig = rig(&[&silent, &fine]).await;
    until("the other is asked again and again", || async {
        (fine.asked().len() > 40).then_some(())
    })
    .await;
    let asked = silent.asked().len();
    assert!(asked <= 2, "it hangs for 10 s each time: {asked}");
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

const HOLD: &str = "GET /am/api/v2/alerts?filter=crisweep%3D%22hold%22";

/// Starts with an alert that asks for a pass and another that holds it, both polled. Then there are no more answers.
async fn held(alertmanager: &PodServer) -> Rig {
    let labels = json!({ "alertname": "Storm", "crisweep": "hold" });
    alertmanager.reply_to(HOLD, reply(&json!([alert(&labels, "active")])));
    alertmanager.reply(reply(&json!([asks("node-1")])));
    let rig = rig(&[alertmanager]).await;
    until("a pass waits for the end of the storm", || async {
        let waits = rig.passes().await.len() == 1 && is_held(&rig).await;
        waits.then_some(())
    })
    .await;
    alertmanager.set_away(true);
    polled(&rig, "refused").await;
    rig
}

/// Lets it answer that no alert fires.
fn at_rest(alertmanager: &PodServer) {
    alertmanager.reply_to(HOLD, reply(&json!([])));
    alertmanager.reply(reply(&json!([])));
    alertmanager.set_away(false);
}

async fn is_held(rig: &Rig) -> bool {
    let status = rig.get("/api/v1/status").await.json();
    status["brakes"]["holding"] == json!(["fleet-storm"])
}

async fn storm_ends(rig: &Rig) {
    until("the storm is over", || async {
        (!is_held(rig).await).then_some(())
    })
    .await;
    let passes = rig.passes().await;
    assert_eq!(passes[0]["outcome"], "aborted", "{passes:#?}");
    assert!(passes[0]["errors"].to_string().contains("resolved"));
    rig.nothing_was_touched();
}

async fn reload(rig: &mut Rig, alertmanagers: &[&PodServer], changes: Value) {
    let urls: Vec<_> = alertmanagers
        .iter()
        .map(|it| format!("http://{}/am/", it.address))
        .collect();
    let mut all = json!({ "alertmanager": { "poll": urls, "interval": "100ms" } });
    all.as_object_mut()
        .unwrap()
        .extend(changes.as_object().unwrap().clone());
    rig.configure(&all);
    assert_eq!(rig.post("/-/reload").await.status, 200);
}

async fn asked_a_while(alertmanagers: &[&PodServer]) {
    let before: Vec<usize> = alertmanagers.iter().map(|it| it.asked().len()).collect();
    until("they are asked for a while", || async {
        let mut all = alertmanagers.iter().zip(&before);
        all.all(|(it, before)| it.asked().len() > before + 5)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_reload_forgets_no_alert() {
    for changes in [
        json!({}),
        json!({ "thresholds": { "exited_containers": 999 } }),
    ] {
        let alertmanager = PodServer::plain().await;
        let mut rig = held(&alertmanager).await;
        reload(&mut rig, &[&alertmanager], changes).await;
        asked_a_while(&[&alertmanager]).await;
        assert!(is_held(&rig).await);
        at_rest(&alertmanager);
        storm_ends(&rig).await;
    }
}

#[tokio::test]
async fn the_alerts_of_one_that_is_no_longer_asked_count_until_all_others_answer() {
    let (old, new, away) = (
        PodServer::plain().await,
        PodServer::plain().await,
        PodServer::plain().await,
    );
    let mut rig = held(&old).await;
    // For a while nothing is asked.
    reload(&mut rig, &[], json!({})).await;
    at_rest(&new);
    reload(&mut rig, &[&new, &away], json!({})).await;
    asked_a_while(&[&new, &away]).await;
    assert!(is_held(&rig).await);
    at_rest(&away);
    storm_ends(&rig).await;
}

#[tokio::test]
async fn however_many_alerts_hold_those_about_the_node_are_read() {
    let alertmanager = PodServer::plain().await;
    let labels = json!({ "alertname": "Storm", "crisweep": "hold" });
    let holds = (0..1500).map(|number| {
        let mut hold = alert(&labels, "active");
        hold["fingerprint"] = json!(format!("{number:016x}"));
        hold
    });
    alertmanager.reply_to(HOLD, reply(&holds.collect()));
    alertmanager.reply(reply(&json!([asks("node-1")])));
    let rig = rig(&[&alertmanager]).await;
    polled(&rig, "ok").await;
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 1, "{passes:#?}");
    assert_eq!(passes[0]["state"], "queued");
    rig.nothing_was_touched();
}
