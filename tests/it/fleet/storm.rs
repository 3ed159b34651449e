//! The storm brake: alerts with the label `crisweep: hold`.

use serde_json::{Value, json};

use crate::alerts::hook::{alert, asks, pass_of, resolved, send, sent};
use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, nodes, until};

/// As the rule writes it: about no node.
fn storm() -> Value {
    let labels =
        json!({ "alertname": "CrisweepFleetStorm", "severity": "critical", "crisweep": "hold" });
    alert(&labels)
}

#[tokio::test]
async fn a_storm_makes_alerts_wait_until_it_resolves_and_no_person() {
    let rig = Rig::start(nodes::litter(4), json!({})).await;
    sent(&rig, storm(), 200, "holds").await;
    assert_eq!(
        rig.passes().await,
        Vec::<Value>::new(),
        "it asks for no pass"
    );
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["brakes"]["holding"], json!(["fleet-storm"]));
    assert_eq!(status["fleet"]["storm"][0]["alert"], "CrisweepFleetStorm");
    let page = rig.metrics().await;
    page.is("crisweep_brake_engaged{brake=\"fleet-storm\"}", 1.0);
    page.is("crisweep_alerts_total{result=\"holds\"}", 1.0);
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let why = body["alerts"][0]["why"].as_str().unwrap();
    assert!(why.contains("CrisweepFleetStorm"), "{why}");
    rig.nothing_was_touched();
    assert_eq!(
        rig.gc("target=containers&max_removals=1").await["outcome"],
        "partial"
    );
    assert_eq!(rig.pass(&pass_of(&body)).await["state"], "queued");
    sent(&rig, resolved(storm()), 200, "resolved").await;
    assert_eq!(rig.finished(&pass_of(&body)).await["outcome"], "completed");
}

/// Two Alertmanagers: the one tells of the end of an hour ago after the other has told that it fires again.
#[tokio::test]
async fn the_late_end_of_an_earlier_storm_does_not_end_the_present_one() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    sent(&rig, storm(), 200, "holds").await;
    let mut again = storm();
    again["startsAt"] = json!("2026-01-02T05:00:00Z");
    sent(&rig, again.clone(), 200, "holds").await;
    sent(&rig, resolved(storm()), 200, "resolved").await;
    sent(&rig, asks("all"), 202, "accepted").await;
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["brakes"]["holding"], json!(["fleet-storm"]));
    rig.nothing_was_touched();
    let mut over = resolved(again);
    over["endsAt"] = json!("2026-01-02T06:00:00Z");
    sent(&rig, over, 200, "resolved").await;
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["brakes"]["holding"], json!([]));
}

#[tokio::test]
async fn no_pass_begins_in_the_middle_of_a_call_that_withdraws_or_holds_it() {
    let mut other_storm = storm();
    other_storm["fingerprint"] = json!("other");
    for (last, state) in [(other_storm, "queued"), (resolved(asks("all")), "done")] {
        let rig = Rig::start(nodes::litter(2), json!({})).await;
        sent(&rig, storm(), 200, "holds").await;
        let id = pass_of(&sent(&rig, asks("all"), 202, "accepted").await);
        // They give a pass the time to begin after the first of the call.
        let others = (0..8000).map(|number| {
            let labels = json!({ "alertname": number.to_string(), "crisweep": "logs" });
            json!({ "status": "resolved", "labels": labels })
        });
        let first = std::iter::once(resolved(storm()));
        let call = first.chain(others).chain([last]).collect();
        let answer = send(&rig, call).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let pass = rig.pass(&id).await;
        assert_eq!(pass["state"], state, "{pass:#}");
        rig.nothing_was_touched();
    }
}

#[tokio::test]
async fn a_waiting_pass_says_what_it_waits_for_now() {
    let rig = Rig::start(
        nodes::litter(4),
        json!({ "brakes": { "jitter": "36500d" } }),
    )
    .await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let id = pass_of(&body);
    assert!(rig.pass(&id).await["not_before"].is_string());
    sent(&rig, storm(), 200, "holds").await;
    until("the storm shows", || async {
        rig.pass(&id).await["not_before"].is_null().then_some(())
    })
    .await;
    let again = sent(&rig, asks("all"), 202, "merged").await;
    for (body, reason) in [(&body, "(brakes.jitter)"), (&again, "CrisweepFleetStorm")] {
        let why = body["alerts"][0]["why"].as_str().unwrap();
        assert!(why.contains(reason), "{why}");
    }
}

#[tokio::test]
async fn an_alert_that_holds_is_never_a_request_for_a_pass() {
    let routes = json!({ "alerts": [
        { "match": { "alertname": "CrisweepFleetStorm" }, "targets": ["all"] },
    ] });
    for (changes, result) in [
        (routes, "holds"),
        (json!({ "fleet": { "storm_hold": "0s" } }), "not-routed"),
    ] {
        let rig = Rig::start(nodes::litter(2), changes).await;
        sent(&rig, storm(), 200, result).await;
        let mut elsewhere = storm();
        elsewhere["labels"]["node"] = json!("node-2");
        sent(&rig, elsewhere, 200, "other-node").await;
        assert_eq!(rig.passes().await, Vec::<Value>::new());
        rig.nothing_was_touched();
    }
}

#[tokio::test]
async fn a_polled_storm_holds_until_it_is_gone_from_every_alertmanager() {
    let (one, other) = (PodServer::plain().await, PodServer::plain().await);
    let active = |mut alert: Value| {
        alert["status"] = json!({ "state": "active" });
        alert
    };
    let list = |alerts: Value| Reply::json(&alerts.to_string());
    let node = "GET /api/v2/alerts?filter=node%3D%22node-1%22";
    let hold = "GET /api/v2/alerts?filter=crisweep%3D%22hold%22";
    for server in [&one, &other] {
        server.reply_to(node, list(json!([active(asks("containers"))])));
        server.reply_to(hold, list(json!([active(storm())])));
    }
    let urls = [&one, &other].map(|it| format!("http://{}", it.address));
    let poll = json!({ "alertmanager": { "poll": urls, "interval": "100ms" } });
    let rig = Rig::start(nodes::litter(2), poll).await;
    let waits = || async {
        let passes = rig.passes().await;
        assert!(
            passes.iter().all(|pass| pass["state"] == "queued"),
            "{passes:#?}"
        );
    };
    let polled = |server: &PodServer| server.asked().len();
    for silent in [None, Some(&one)] {
        if let Some(server) = silent {
            server.reply_to(hold, list(json!([])));
        }
        let before = (polled(&one), polled(&other));
        until("both are polled", || async {
            (polled(&one) > before.0 + 9 && polled(&other) > before.1 + 9).then_some(())
        })
        .await;
        waits().await;
    }
    // An Alertmanager that does not answer says nothing about the end of a storm, and asks for nothing.
    other.reply_to(hold, Reply::status("503 Service Unavailable"));
    let before = polled(&other);
    until("it is polled", || async {
        (polled(&other) > before + 5).then_some(())
    })
    .await;
    waits().await;
    rig.nothing_was_touched();
    other.reply_to(hold, list(json!([])));
    until("the pass ends", || async {
        let passes = rig.passes().await;
        passes
            .iter()
            .any(|pass| pass["outcome"] == "completed")
            .then_some(())
    })
    .await;
}

/// It resolves and fires again between two polls, or the two Alertmanagers know it since different times.
#[tokio::test]
async fn a_polled_storm_that_fires_since_another_time_goes_on_holding() {
    let servers = [PodServer::plain().await, PodServer::plain().await];
    let node = "GET /api/v2/alerts?filter=node%3D%22node-1%22";
    let hold = "GET /api/v2/alerts?filter=crisweep%3D%22hold%22";
    let list = |mut alert: Value, minute: u32| {
        alert["status"] = json!({ "state": "active" });
        alert["startsAt"] = json!(format!("2026-01-02T03:{minute:02}:05.678Z"));
        Reply::json(&json!([alert]).to_string())
    };
    for server in &servers {
        server.reply_to(node, list(asks("containers"), 0));
        server.reply_to(hold, list(storm(), 10));
    }
    let urls = servers
        .each_ref()
        .map(|it| format!("http://{}", it.address));
    let poll = json!({ "alertmanager": { "poll": urls, "interval": "100ms" } });
    let rig = Rig::start(nodes::litter(2), poll).await;
    let polls = || servers.each_ref().map(|server| server.asked().len());
    for starts in [[10, 10], [20, 20], [20, 30], [40, 30], [5, 30], [5, 5]] {
        for (server, minute) in servers.iter().zip(starts) {
            server.reply_to(hold, list(storm(), minute));
        }
        let before = polls();
        until("both are polled", || async {
            let now = polls();
            (now[0] > before[0] + 9 && now[1] > before[1] + 9).then_some(())
        })
        .await;
        let passes = rig.passes().await;
        assert!(
            passes.iter().all(|pass| pass["state"] == "queued"),
            "{starts:?}: {passes:#?}"
        );
    }
    rig.nothing_was_touched();
    for server in &servers {
        server.reply_to(hold, Reply::json("[]"));
    }
    until("the pass ends", || async {
        let passes = rig.passes().await;
        let ended = |pass: &Value| pass["outcome"] == "completed";
        passes.iter().any(ended).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_node_without_alerts_asks_for_storms_each_fourth_time_and_heeds_them() {
    let server = PodServer::plain().await;
    server.reply(Reply::json("[]"));
    let url = format!("http://{}", server.address);
    let poll = json!({ "alertmanager": { "poll": [url], "interval": "100ms" } });
    let rig = Rig::start(nodes::litter(2), poll).await;
    let count = |what: &str| {
        let asked = server.asked();
        asked.iter().filter(|it| it.line.contains(what)).count()
    };
    until("it has asked for a while", || async {
        (count("node%3D%22") >= 20).then_some(())
    })
    .await;
    let (node, hold) = (count("node%3D%22"), count("hold"));
    assert!(hold.abs_diff(node / 4) <= 1, "{node} and {hold}");
    let mut hold_alert = storm();
    hold_alert["status"] = json!({ "state": "active" });
    let line = "GET /api/v2/alerts?filter=crisweep%3D%22hold%22";
    server.reply_to(line, Reply::json(&json!([hold_alert]).to_string()));
    until("the storm is heeded", || async {
        let status = rig.get("/api/v1/status").await.json();
        (status["brakes"]["holding"] == json!(["fleet-storm"])).then_some(())
    })
    .await;
}

/// An Alertmanager that was restarted knows of no alert until Prometheus sends it again.
#[tokio::test]
async fn a_polled_storm_outlives_the_restart_of_its_alertmanager() {
    let server = PodServer::plain().await;
    let hold = "GET /api/v2/alerts?filter=crisweep%3D%22hold%22";
    let list = |mut alert: Value| {
        alert["status"] = json!({ "state": "active" });
        Reply::json(&json!([alert]).to_string())
    };
    server.reply(list(asks("containers")));
    server.reply_to(hold, list(storm()));
    let url = format!("http://{}", server.address);
    let poll = json!({ "alertmanager": { "poll": [url], "interval": "500ms" } });
    let rig = Rig::start(nodes::litter(2), poll).await;
    let is_heeded = || async {
        let status = rig.get("/api/v1/status").await.json();
        status["brakes"]["holding"] == json!(["fleet-storm"])
    };
    until("the storm is heeded", || async {
        is_heeded().await.then_some(())
    })
    .await;
    server.reply_to(hold, Reply::json("[]"));
    let asked = || {
        let asked = server.asked();
        asked.iter().filter(|it| it.line.contains("hold")).count()
    };
    let before = asked();
    until("it is asked once", || async {
        (asked() > before).then_some(())
    })
    .await;
    server.reply_to(hold, list(storm()));
    until("it is asked again", || async {
        (asked() > before + 3).then_some(())
    })
    .await;
    assert!(is_heeded().await);
    rig.nothing_was_touched();
}
