//! What holds alerts back.

use serde_json::{Value, json};

use super::hook::{asks, counted, pass_of, sent};
use crate::support::{Rig, nodes};

/// The same alert, but it began at another time.
fn anew(mut alert: Value, second: u32) -> Value {
    alert["startsAt"] = json!(format!("2026-03-01T00:00:{second:02}Z"));
    alert
}

#[tokio::test]
async fn a_cool_down_holds_the_targets_that_were_just_cleaned() {
    let rig = Rig::start(nodes::litter(2), json!({ "brakes": { "cooldown": "1h" } })).await;
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    rig.finished(&pass_of(&body)).await;
    let body = sent(&rig, anew(asks("containers"), 1), 200, "braked").await;
    assert!(
        body["alerts"][0]["why"]
            .to_string()
            .contains("brakes.cooldown"),
        "{body}"
    );
    counted(&rig, "braked", 1.0).await;
    // What was not cleaned does not cool down.
    let body = sent(&rig, anew(asks("all"), 2), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    let targets: Vec<&String> = pass["targets"].as_object().unwrap().keys().collect();
    assert_eq!(targets, ["sandboxes", "logs", "images"]);
    assert_eq!(rig.dead_sandboxes(), 0);
}

#[tokio::test]
async fn passes_per_hour_are_bounded() {
    let rig = Rig::start(
        nodes::litter(1),
        json!({ "brakes": { "max_passes_per_hour": 2 } }),
    )
    .await;
    for second in 0..2 {
        let body = sent(&rig, anew(asks("all"), second), 202, "accepted").await;
        rig.finished(&pass_of(&body)).await;
    }
    let body = sent(&rig, anew(asks("all"), 30), 200, "braked").await;
    let why = body["alerts"][0]["why"].to_string();
    assert!(why.contains("brakes.max_passes_per_hour"), "{why}");
    assert_eq!(rig.passes().await.len(), 2);
}

#[tokio::test]
async fn pause_holds_every_alert_until_it_is_lifted() {
    let mut rig = Rig::start(nodes::litter(2), json!({ "brakes": { "pause": true } })).await;
    let body = sent(&rig, asks("all"), 200, "braked").await;
    assert!(
        body["alerts"][0]["why"]
            .to_string()
            .contains("brakes.pause"),
        "{body}"
    );
    rig.nothing_was_touched();
    rig.configure(&json!({ "brakes": { "pause": false } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    assert_eq!(rig.finished(&pass_of(&body)).await["outcome"], "completed");
}

#[tokio::test]
async fn in_mode_observe_an_alert_leads_to_a_report_only() {
    let rig = Rig::start(nodes::litter(2), json!({ "mode": "observe" })).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["dry_run"], true);
    assert_eq!(pass["targets"]["containers"]["planned"], 2);
    rig.nothing_was_touched();
}
