//! Which alerts lead to which pass.

use serde_json::json;

use super::hook::{alert, asks, counted, pass_of, resolved, send, sent};
use crate::support::{Rig, nodes};

#[tokio::test]
async fn a_firing_alert_is_accepted_and_its_pass_cleans_the_node() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    assert_eq!(body["result"], "accepted");
    assert_eq!(body["counts"], json!({ "accepted": 1 }));
    assert_eq!(body["passes"], json!([pass_of(&body)]));
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["outcome"], "completed");
    assert_eq!(pass["trigger"]["cause"], "alert");
    assert_eq!(pass["trigger"]["alert"]["name"], "TooMany");
    assert_eq!(
        pass["trigger"]["alert"]["starts_at"],
        "2026-01-02T03:04:05.678Z"
    );
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    counted(&rig, "accepted", 1.0).await;
    let passes =
        "crisweep_passes_total{target=\"containers\",cause=\"alert\",outcome=\"completed\"}";
    rig.metrics().await.is(passes, 1.0);
}

#[tokio::test]
async fn an_alert_is_a_hint_and_a_fine_node_stays_untouched() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["outcome"], "nothing-to-do");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn the_alerts_of_one_call_become_one_pass() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let answer = send(&rig, vec![asks("containers"), asks("sandboxes")]).await;
    assert_eq!(answer.status, 202);
    let body = answer.json();
    assert_eq!(body["counts"], json!({ "accepted": 1, "merged": 1 }));
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["targets"].as_object().unwrap().len(), 2);
    assert_eq!(rig.passes().await.len(), 1);
}

#[tokio::test]
async fn alerts_about_other_nodes_are_counted_and_not_obeyed() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let about = |node: &str| alert(&json!({ "crisweep": "all", "node": node }));
    for (number, node) in ["node-10", "node-", "NODE-1"].into_iter().enumerate() {
        let body = sent(&rig, about(node), 200, "other-node").await;
        assert_eq!(body["result"], "nothing-to-do");
        #[expect(clippy::cast_precision_loss, reason = "three")]
        counted(&rig, "other-node", (number + 1) as f64).await;
    }
    rig.nothing_was_touched();
    // A missing or empty label means the node that receives the alert.
    sent(&rig, about(""), 202, "accepted").await;
}

#[tokio::test]
async fn the_alerts_list_of_the_configuration_replaces_the_label() {
    let routes = json!([
        { "match": { "alertname": "Leak", "severity": "page" }, "targets": ["sandboxes"] },
        { "match": { "alertname": "Leak" }, "targets": ["containers"] },
    ]);
    let rig = Rig::start(nodes::litter(1), json!({ "alerts": routes })).await;
    sent(&rig, asks("all"), 200, "not-routed").await;
    let labels = json!({ "alertname": "Leak", "severity": "page", "crisweep": "all" });
    let body = sent(&rig, alert(&labels), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["targets"].as_object().unwrap().len(), 1);
    assert!(pass["targets"]["sandboxes"].is_object());
    let body = sent(
        &rig,
        alert(&json!({ "alertname": "Leak" })),
        202,
        "accepted",
    )
    .await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1);
}

#[tokio::test]
async fn an_unknown_target_is_refused_unless_another_alert_is_fine() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    send(&rig, vec![asks("everything")]).await.refused(
        400,
        "alert \"TooMany\": label `crisweep`: unknown target \"everything\"",
    );
    counted(&rig, "bad-target", 1.0).await;
    // A resolved alert asks for nothing.
    sent(&rig, resolved(asks("everything")), 200, "resolved").await;
    counted(&rig, "bad-target", 1.0).await;
    rig.nothing_was_touched();
    let answer = send(&rig, vec![asks("everything"), asks("all")]).await;
    assert_eq!(answer.status, 202);
    assert_eq!(
        answer.json()["counts"],
        json!({ "accepted": 1, "bad-target": 1 })
    );
}

#[tokio::test]
async fn a_node_whose_name_differs_by_a_domain_is_another_one_and_said_once() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let about = |node: &str| alert(&json!({ "crisweep": "all", "node": node }));
    for _ in 0..2 {
        sent(&rig, about("node-1.example.com"), 200, "other-node").await;
    }
    sent(&rig, about("node-2.example.com"), 200, "other-node").await;
    counted(&rig, "other-node", 3.0).await;
    rig.metrics()
        .await
        .is("crisweep_node_name_mismatches_total", 2.0);
    let mut lines = rig.log();
    lines.retain(|line| line["alert.node"] == "node-1.example.com");
    assert_eq!(lines.len(), 1, "{lines:?}");
    rig.nothing_was_touched();
}
