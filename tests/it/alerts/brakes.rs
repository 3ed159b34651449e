//! Brakes on alerts.

use serde_json::{Value, json};

use super::hook::{asks, counted, pass_of, resolved, send, sent};
use crate::support::wait::until;
use crate::support::{Rig, nodes};

/// The same alert with another start.
fn anew(mut alert: Value, second: u32) -> Value {
    alert["startsAt"] = json!(format!("2026-03-01T00:00:{second:02}Z"));
    alert
}

const COOLING: &str = "brakes.cooldown";

/// Starts a node whose containers have just been cleaned and cool down for an hour.
async fn cooling() -> Rig {
    let rig = Rig::start(nodes::litter(2), json!({ "brakes": { "cooldown": "1h" } })).await;
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    rig.finished(&pass_of(&body)).await;
    rig
}

fn targets(pass: &Value) -> Vec<&String> {
    pass["targets"].as_object().unwrap().keys().collect()
}

#[tokio::test]
async fn an_alert_in_the_cool_down_waits_until_it_is_over() {
    let mut rig = cooling().await;
    let body = sent(&rig, anew(asks("containers"), 1), 202, "accepted").await;
    assert!(
        body["alerts"][0]["why"].to_string().contains(COOLING),
        "{body}"
    );
    let waiting = pass_of(&body);
    let pass = rig.pass(&waiting).await;
    assert_eq!(pass["state"], "queued");
    assert!(pass["not_before"].is_string(), "{pass}");
    // Later alerts join it.
    let body = sent(&rig, anew(asks("containers"), 2), 202, "merged").await;
    assert_eq!(pass_of(&body), waiting);
    assert_eq!(
        rig.get("/api/v1/status").await.json()["waiting"],
        json!([waiting])
    );
    counted(&rig, "accepted", 2.0).await;
    rig.configure(&json!({ "brakes": { "cooldown": "0s" } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.finished(&waiting).await;
    assert_eq!(pass["outcome"], "nothing-to-do");
    assert_eq!(
        (&pass["not_before"], &pass["merged_triggers"]),
        (&json!(null), &json!(1))
    );
}

#[tokio::test]
async fn the_last_pass_is_the_one_that_ended_last_whenever_it_was_queued() {
    let mut rig = cooling().await;
    let waiting = pass_of(&sent(&rig, anew(asks("containers"), 1), 202, "accepted").await);
    let by_hand = rig.gc("target=containers").await;
    let last = async |rig: &Rig| rig.get("/api/v1/status").await.json()["last_pass"]["id"].clone();
    assert_eq!(last(&rig).await, by_hand["id"]);
    rig.configure(&json!({ "brakes": { "cooldown": "0s" } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    rig.finished(&waiting).await;
    assert_eq!(last(&rig).await, json!(waiting));
    rig.crash().await;
    assert_eq!(last(&rig).await, json!(waiting), "after a restart");
}

#[tokio::test]
async fn a_pass_that_never_began_is_not_the_last_one() {
    let rig = cooling().await;
    let last = async || rig.get("/api/v1/status").await.json()["last_pass"].clone();
    let ran = last().await;
    assert_eq!(ran["outcome"], "completed");
    let counted = async || {
        rig.metrics()
            .await
            .sum("crisweep_passes_total", "cause=\"alert\"")
    };
    let passes = counted().await;
    let alert = anew(asks("containers"), 1);
    let waiting = pass_of(&sent(&rig, alert.clone(), 202, "accepted").await);
    sent(&rig, resolved(alert), 200, "withdrawn").await;
    assert_eq!(rig.finished(&waiting).await["outcome"], "aborted");
    assert_eq!((last().await, counted().await), (ran, passes));
}

#[tokio::test]
async fn the_rows_of_an_answer_can_be_matched_to_the_alerts_of_the_call() {
    let rig = cooling().await;
    let call = vec![
        anew(asks("containers"), 1),
        resolved(asks("images")),
        asks("everything"),
        anew(asks("containers"), 2),
    ];
    let answer = send(&rig, call.clone()).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let body = answer.json();
    let rows = body["alerts"].as_array().unwrap();
    let of = |rows: &[Value], key: &str| -> Vec<Value> {
        rows.iter().map(|row| row[key].clone()).collect()
    };
    assert_eq!(of(rows, "fingerprint"), of(&call, "fingerprint"));
    assert_eq!(
        of(rows, "result"),
        ["accepted", "resolved", "bad-target", "merged"]
    );
    let pass = rig.pass(&pass_of(&body)).await;
    let why = format!("until {} (", pass["not_before"].as_str().unwrap());
    assert!(rows[0]["why"].as_str().unwrap().contains(&why), "{body:#}");
    assert_eq!(rows[0]["why"], rows[3]["why"]);
}

#[tokio::test]
async fn a_cool_down_that_ends_lets_the_waiting_pass_begin() {
    let changes = json!({ "brakes": { "cooldown": "1s" } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    for alert in [asks("containers"), anew(asks("all"), 1)] {
        let id = pass_of(&sent(&rig, alert, 202, "accepted").await);
        assert_eq!(rig.finished(&id).await["outcome"], "completed");
    }
    until("all of it is done", || async {
        let passes = rig.passes().await;
        passes
            .iter()
            .all(|pass| pass["state"] == "done")
            .then_some(())
    })
    .await;
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
}

#[tokio::test]
async fn targets_outside_the_cool_down_do_not_wait() {
    let rig = cooling().await;
    let body = sent(&rig, anew(asks("all"), 1), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(targets(&pass), ["sandboxes", "logs", "images"]);
    assert_eq!(rig.dead_sandboxes(), 0);
    let passes = rig.passes().await;
    let rest: Vec<&Value> = passes
        .iter()
        .filter(|pass| pass["state"] == "queued")
        .collect();
    assert_eq!(rest.len(), 1, "{passes:#?}");
    assert_eq!(targets(rest[0]), ["containers"]);
    assert_eq!(rest[0]["trigger"]["cause"], "alert");
}

#[tokio::test]
async fn each_part_of_a_pass_names_the_alert_that_asked_for_it() {
    let rig = cooling().await;
    let alerts = [("containers", 1), ("sandboxes", 2), ("all", 3)];
    let call = alerts.map(|(targets, second)| anew(asks(targets), second));
    let answer = send(&rig, call.to_vec()).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let of = |pass: &Value| pass["trigger"]["alert"]["starts_at"].clone();
    let id = pass_of(&answer.json());
    let pass = rig.finished(&id).await;
    assert_eq!(of(&pass), call[1]["startsAt"], "{pass:#}");
    let rest = async || {
        let passes = rig.passes().await.into_iter();
        let mut waiting = passes.filter(|pass| pass["state"] == "queued");
        waiting.next().unwrap()
    };
    assert_eq!(of(&rest().await), call[0]["startsAt"]);
    // Who asked next takes the place of an alert that resolves.
    send(&rig, vec![resolved(call[0].clone())]).await;
    assert_eq!(of(&rest().await), call[2]["startsAt"]);
}

#[tokio::test]
async fn passes_per_hour_are_bounded_for_each_target() {
    let changes = json!({ "brakes": { "max_passes_per_hour": 1 } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    // Passes that try no removal do not count.
    for second in 0..3 {
        let body = sent(&rig, anew(asks("images"), second), 202, "accepted").await;
        rig.finished(&pass_of(&body)).await;
    }
    let body = sent(&rig, anew(asks("containers"), 10), 202, "accepted").await;
    rig.finished(&pass_of(&body)).await;
    let body = sent(&rig, anew(asks("containers"), 11), 200, "braked").await;
    let why = body["alerts"][0]["why"].to_string();
    assert!(why.contains("brakes.max_passes_per_hour"), "{why}");
    assert_eq!(rig.dead_sandboxes(), 1);
    let body = sent(&rig, anew(asks("all"), 12), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(targets(&pass), ["sandboxes", "logs", "images"]);
    assert_eq!(rig.dead_sandboxes(), 0);
    assert_eq!(rig.passes().await.len(), 5);
}

#[tokio::test]
async fn the_brakes_go_on_counting_after_a_restart() {
    let mut rig = cooling().await;
    rig.crash().await;
    let body = sent(&rig, anew(asks("containers"), 1), 202, "accepted").await;
    let why = body["alerts"][0]["why"].to_string();
    assert!(why.contains(COOLING), "{why}");
    assert_eq!(rig.pass(&pass_of(&body)).await["state"], "queued");
    // What was not cleaned does not cool down.
    let body = sent(&rig, asks("images"), 202, "merged").await;
    rig.finished(&pass_of(&body)).await;
    rig.configure(&json!({ "brakes": { "cooldown": "0s", "max_passes_per_hour": 1 } }));
    rig.crash().await;
    let body = sent(&rig, anew(asks("containers"), 2), 200, "braked").await;
    let why = body["alerts"][0]["why"].to_string();
    assert!(why.contains("brakes.max_passes_per_hour"), "{why}");
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
    let mut rig = Rig::start(nodes::litter(2), json!({ "mode": "observe" })).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["dry_run"], true);
    assert_eq!(pass["targets"]["containers"]["planned"], 2);
    rig.nothing_was_touched();
    // A report does not answer the alert: once passes remove again, its repetition must not be a duplicate.
    rig.configure(&json!({ "mode": "enforce" }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    rig.finished(&pass_of(&body)).await;
    assert_eq!(rig.exited_containers(), 0);
}

#[tokio::test]
async fn an_alert_waits_its_jitter_and_a_person_does_not() {
    // Nobody draws the first minute of so long a time.
    let mut rig = Rig::start(
        nodes::litter(2),
        json!({ "brakes": { "jitter": "36500d" } }),
    )
    .await;
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    let why = body["alerts"][0]["why"].as_str().unwrap();
    assert!(why.contains("brakes.jitter"), "{why}");
    let pass = rig.pass(&pass_of(&body)).await;
    assert_eq!(pass["state"], "queued");
    assert!(pass["not_before"].is_string(), "{pass}");
    sent(&rig, resolved(asks("containers")), 200, "withdrawn").await;
    assert_eq!(
        rig.gc("target=sandboxes").await["trigger"]["cause"],
        "manual"
    );
    let body = sent(&rig, anew(asks("containers"), 1), 202, "accepted").await;
    rig.configure(&json!({ "brakes": { "jitter": "0s" } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["outcome"], "completed");
}
