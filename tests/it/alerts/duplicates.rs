//! The same alert more than once, and its end.

use crisweep_sim::{Fault, Rpc};
use serde_json::{Value, json};

use super::hook::{PATH, alert, asks, call, counted, pass_of, resolved, send, sent};
use crate::support::wait::until_true;
use crate::support::{Answer, Rig, nodes};

#[tokio::test]
async fn the_halves_of_an_ha_pair_lead_to_one_pass() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let (one, other) = tokio::join!(send(&rig, vec![asks("all")]), send(&rig, vec![asks("all")]));
    let passes = [one.json(), other.json()].map(|body| pass_of(&body));
    assert_eq!(passes[0], passes[1]);
    assert!([one.status, other.status].contains(&202));
    rig.finished(&passes[0]).await;
    // And again after the pass has ended.
    let body = sent(&rig, asks("all"), 200, "duplicate").await;
    assert_eq!(pass_of(&body), passes[0]);
    counted(&rig, "duplicate", 1.0).await;
    assert_eq!(rig.passes().await.len(), 1);
}

/// Starts a pass over containers that hangs in its first removals.
async fn busy(rig: &Rig) -> String {
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    rig.removing().await;
    id
}

#[tokio::test]
async fn an_alert_does_not_join_a_pass_that_is_past_its_target() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    rig.sim.set_fault(Rpc::RemovePodSandbox, Fault::hang());
    let running = rig.begin_gc("target=containers&target=sandboxes").await;
    until_true("the pass is at the sandboxes", || {
        rig.exited_containers() == 0
    })
    .await;
    rig.removing().await;
    // These containers appear after the pass has cleaned the containers.
    for number in 0..5 {
        rig.sim.add_pod(&nodes::deleted(number, 5));
    }
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    let waiting = pass_of(&body);
    sent(&rig, asks("containers"), 202, "merged").await;
    rig.sim.clear_faults();
    rig.finished(&running).await;
    let pass = rig.finished(&waiting).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 5, "{pass:#}");
    assert_eq!(rig.exited_containers(), 0);
    sent(&rig, asks("containers"), 200, "duplicate").await;
}

#[tokio::test]
async fn a_resolved_alert_takes_back_the_pass_that_it_alone_had_queued() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let running = busy(&rig).await;
    let body = sent(&rig, asks("sandboxes"), 202, "accepted").await;
    let waiting = pass_of(&body);
    let body = sent(&rig, resolved(asks("sandboxes")), 200, "withdrawn").await;
    assert_eq!(pass_of(&body), waiting);
    let pass = rig.pass(&waiting).await;
    assert_eq!(
        (&pass["state"], &pass["outcome"]),
        (&json!("done"), &json!("aborted"))
    );
    assert!(pass["errors"].to_string().contains("resolved"), "{pass}");
    rig.sim.clear_faults();
    rig.finished(&running).await;
    assert_eq!(rig.dead_sandboxes(), 2);
    counted(&rig, "withdrawn", 1.0).await;
    // It fires again later, which is a new request.
    let body = sent(&rig, asks("sandboxes"), 202, "accepted").await;
    rig.finished(&pass_of(&body)).await;
    assert_eq!(rig.dead_sandboxes(), 0);
}

#[tokio::test]
async fn a_resolved_alert_that_asked_for_nothing_changes_nothing() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let body = sent(&rig, resolved(asks("all")), 200, "resolved").await;
    assert_eq!(body["result"], "nothing-to-do");
    assert!(rig.passes().await.is_empty());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn hundreds_of_calls_at_once_are_all_answered_and_lead_to_one_pass() {
    const CALLS: usize = 300;
    let rig = Rig::start(nodes::litter(20), json!({})).await;
    let running = busy(&rig).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..CALLS {
        let labels = json!({ "alertname": format!("A{number}"), "crisweep": "all" });
        let body = call(vec![alert(&labels)]);
        let request = rig.request("POST", PATH).json(&body);
        calls.spawn(Answer::of(request));
    }
    let answers: Vec<Answer> = calls.join_all().await;
    assert_eq!(answers.len(), CALLS);
    let passes: std::collections::BTreeSet<String> = answers
        .iter()
        .map(|answer| {
            assert_eq!(answer.status, 202, "{}", answer.text);
            pass_of(&answer.json())
        })
        .collect();
    assert_eq!(passes.len(), 1);
    let page = rig.metrics().await;
    page.is("crisweep_alerts_total{result=\"accepted\"}", 1.0);
    #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
    page.is(
        "crisweep_alerts_total{result=\"merged\"}",
        (CALLS - 1) as f64,
    );
    rig.sim.clear_faults();
    rig.finished(&running).await;
    let pass: Value = rig.finished(passes.first().unwrap()).await;
    assert_eq!(pass["merged_triggers"], CALLS - 1);
    assert_eq!(rig.passes().await.len(), 2);
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
}

#[tokio::test]
async fn a_call_of_thousands_of_alerts_is_counted_in_full_and_listed_in_part() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let alerts: Vec<Value> = (0..2_000)
        .map(|number| json!({ "status": "firing", "labels": { "crisweep": "all", "n": number.to_string() } }))
        .collect();
    let answer = send(&rig, alerts).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["counts"], json!({ "accepted": 1, "merged": 1_999 }));
    assert_eq!(body["alerts"].as_array().unwrap().len(), 100);
    rig.finished(&pass_of(&body)).await;
    assert_eq!(rig.passes().await.len(), 1);
}
