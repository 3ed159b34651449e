//! Invalid calls, and calls that ask for nothing.

use serde_json::{Value, json};

use super::hook::{PATH, asks, call, counted, send};
use crate::support::{Answer, Rig, nodes, until};

#[tokio::test]
async fn a_body_that_is_no_version_4_webhook_is_refused_with_the_reason() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let changed = |key: &str, value: Option<Value>| {
        let mut call = call(vec![asks("all")]);
        match value {
            Some(value) => call[key] = value,
            None => drop(call.as_object_mut().unwrap().remove(key)),
        }
        call.to_string()
    };
    let mut labels = call(vec![asks("all")]);
    labels["alerts"][0]["labels"]["count"] = json!(7);
    let mut status = call(vec![asks("all")]);
    status["alerts"][0]["status"] = json!("burning");
    let bodies = [
        (String::new(), "EOF"),
        ("{".to_owned(), "EOF"),
        ("[]".to_owned(), "version \"4\""),
        ("alerts=all".to_owned(), "expected value"),
        (changed("version", None), "missing field `version`"),
        (changed("version", Some(json!("3"))), "only version \"4\""),
        (changed("version", Some(json!(4))), "version \"4\""),
        (changed("alerts", None), "missing field `alerts`"),
        (changed("alerts", Some(json!(null))), "null"),
        (labels.to_string(), "expected a string"),
        (status.to_string(), "burning"),
    ];
    let count = bodies.len();
    for (body, words) in bodies {
        let request = rig.request("POST", PATH).body(body);
        Answer::of(request).await.refused(400, words);
    }
    #[expect(clippy::cast_precision_loss, reason = "some")]
    counted(&rig, "malformed", count as f64).await;
    let said = rig
        .logs(10, "a call of the webhook: it is not understood")
        .await;
    // As many as are written in a minute.
    assert_eq!(said.len(), 10, "{said:?}");
    assert!(said[0]["why"].to_string().contains("EOF"), "{said:?}");
    assert!(rig.passes().await.is_empty());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn an_alert_that_cannot_be_remembered_costs_the_others_nothing() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    for key in ["fingerprint", "startsAt"] {
        let mut odd = asks("images");
        odd[key] = json!("f".repeat(128));
        assert_eq!(send(&rig, vec![odd.clone()]).await.status, 202, "{key}");
        odd[key] = json!("f".repeat(100_000));
        let answer = send(&rig, vec![odd.clone()]).await;
        answer.refused(
            400,
            "alert \"TooMany\": its fingerprint or startsAt is longer than 128",
        );
        let answer = send(&rig, vec![odd, asks("containers")]).await;
        assert!([200, 202].contains(&answer.status), "{}", answer.text);
        let rows = &answer.json()["alerts"];
        assert_eq!(rows[0]["result"], "malformed", "{rows:#}");
        assert!(
            rows[0]["why"].to_string().contains("longer than"),
            "{rows:#}"
        );
        assert_ne!(rows[1]["result"], "malformed", "{rows:#}");
        assert!(answer.text.len() < 10_000);
    }
    counted(&rig, "malformed", 4.0).await;
    until("the other alert has its pass", || async {
        (rig.exited_containers() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_without_alerts_is_fine() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let answer = send(&rig, Vec::new()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["result"], "nothing-to-do");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn unknown_keys_are_fine() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let mut call = call(vec![asks("all")]);
    call["new"] = json!({ "in": ["a", "later", "release"] });
    call["alerts"][0]["new"] = json!(true);
    assert_eq!(rig.post_json(PATH, &call).await.status, 202);
}

#[tokio::test]
async fn every_result_is_counted_from_the_start() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let page = rig.metrics().await;
    for result in crisweep::model::AlertResult::ALL {
        let sample = format!("crisweep_alerts_total{{result=\"{}\"}}", result.label());
        page.is(&sample, 0.0);
    }
}

#[tokio::test]
async fn calls_without_permission_to_act_are_refused_and_counted() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    for _ in 0..3 {
        let request = rig
            .request("POST", PATH)
            .header("origin", "http://evil.example");
        let body = call(vec![asks("all"), asks("containers")]);
        Answer::of(request.json(&body)).await.refused(403, "origin");
    }
    // Other paths do not count as alerts.
    let request = rig
        .request("POST", "/gc")
        .header("origin", "http://evil.example");
    Answer::of(request).await.refused(403, "origin");
    counted(&rig, "refused", 3.0).await;
    rig.nothing_was_touched();
}

#[tokio::test]
async fn alerts_that_a_call_leaves_out_are_said() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let said = || {
        rig.logged(
            "a call of the webhook: alerts are left out: set max_alerts of Alertmanager's receiver to 0",
        )
    };
    for count in [json!(null), json!("many"), json!(7)] {
        let mut call = call(vec![asks("images")]);
        call["truncatedAlerts"] = count;
        let answer = rig.post_json(PATH, &call).await;
        assert!([200, 202].contains(&answer.status), "{}", answer.text);
    }
    // The log is written by a thread of its own.
    until("the log says it", || async { said().pop() }).await;
    let why: Vec<String> = said().iter().map(|it| it["why"].to_string()).collect();
    assert_eq!(why, ["\"7\""]);
}
