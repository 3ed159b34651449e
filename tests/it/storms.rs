//! Storms of alerts: each call gets an answer, one pass runs at a time, and everything that is kept has a
//! bound. And the brakes: each is visible, and a person can override it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crisweep_sim::{Cni, Fault, Rpc};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::alerts::hook::{PATH, alert, asks, call, pass_of, resolved, send, sent};
use crate::support::{Answer, Page, Rig, nodes};

/// The most memory that a storm may add. A service that kept every alert would need more.
const GROWTH_MAX_KIB: u64 = 64 << 10;

/// Sends bodies over this many connections, each after the previous answer; returns the count of each status.
async fn storm(rig: &Rig, senders: usize, bodies: Vec<Value>) -> BTreeMap<u16, usize> {
    let before = rig.anonymous_kib();
    let count = bodies.len();
    let bodies = Arc::new(bodies);
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for sender in 0..senders {
        let (bodies, post) = (Arc::clone(&bodies), rig.request("POST", PATH));
        tasks.spawn(async move {
            let mut statuses = Vec::new();
            for body in bodies.iter().skip(sender).step_by(senders) {
                let request = post.try_clone().unwrap().json(body);
                statuses.push(Answer::of(request).await.status);
            }
            statuses
        });
    }
    let mut counts = BTreeMap::new();
    for status in tasks.join_all().await.into_iter().flatten() {
        *counts.entry(status).or_default() += 1;
    }
    let after = rig.anonymous_kib();
    println!(
        "{count} calls in {:?}: {counts:?}; {before} KiB before, {after} after",
        began.elapsed()
    );
    assert_eq!(counts.values().sum::<usize>(), count, "each is answered");
    assert!(
        after < before + GROWTH_MAX_KIB,
        "{before} KiB before, {after} after"
    );
    counts
}

/// Asserts that passes do not overlap, and that few are in the history.
async fn one_at_a_time(rig: &Rig) {
    let passes = rig.passes().await;
    assert!(passes.len() <= 100, "{}", passes.len());
    let time = |pass: &Value, key: &str| -> Option<Timestamp> { pass[key].as_str()?.parse().ok() };
    let began = passes.iter().filter_map(|pass| {
        let ended = time(pass, "finished_at").unwrap_or(Timestamp::MAX);
        Some((time(pass, "started_at")?, ended))
    });
    let mut spans: Vec<_> = began.collect();
    spans.sort();
    assert!(!spans.is_empty());
    for pair in spans.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two at once: {pair:?}");
    }
}

fn numbered(number: usize) -> Value {
    alert(&json!({ "alertname": format!("A{number}"), "node": "node-1", "crisweep": "all" }))
}

/// Asserts the total number of counted alerts.
fn counted(page: &Page, wanted: usize) {
    let results = [
        "accepted",
        "merged",
        "duplicate",
        "resolved",
        "withdrawn",
        "braked",
    ];
    let count = |result| page.get(&format!("crisweep_alerts_total{{result=\"{result}\"}}"));
    let all: f64 = results.into_iter().filter_map(count).sum();
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let wanted = wanted as f64;
    assert!((all - wanted).abs() < 0.5, "{all} of {wanted}");
}

#[tokio::test]
async fn thousands_of_calls_from_an_ha_pair_are_answered_and_lead_to_few_passes() {
    let rig = Rig::start(nodes::litter(30), json!({})).await;
    let bodies: Vec<Value> = (0..4_000)
        .map(|number| call(vec![numbered(number / 2)]))
        .collect();
    let counts = storm(&rig, 16, bodies).await;
    assert!(
        counts.keys().all(|status| [200, 202].contains(status)),
        "{counts:?}"
    );
    counted(&rig.metrics().await, 4_000);
    assert_eq!(rig.gc("").await["targets"]["containers"]["remaining"], 0);
    one_at_a_time(&rig).await;
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    assert_eq!(rig.removals().len(), 60, "each object is removed once");
}

#[tokio::test]
async fn alerts_that_flap_are_answered_and_braked() {
    let brakes = json!({ "brakes": { "cooldown": "1h", "max_passes_per_hour": 3 } });
    let rig = Rig::start(nodes::litter(3), brakes).await;
    let flaps = (0..2_000_u32).map(|number| {
        let mut alert = asks("all");
        let (minute, second) = (number / 2 / 60, number / 2 % 60);
        alert["startsAt"] = json!(format!("2026-03-01T00:{minute:02}:{second:02}Z"));
        let over = number % 2 == 1;
        call(vec![if over { resolved(alert) } else { alert }])
    });
    let counts = storm(&rig, 8, flaps.collect()).await;
    assert!(
        counts.keys().all(|status| [200, 202].contains(status)),
        "{counts:?}"
    );
    counted(&rig.metrics().await, 2_000);
    for pass in rig.passes().await {
        // The last pass may wait for the end of the cool-down.
        if pass["not_before"].is_null() {
            rig.finished(pass["id"].as_str().unwrap()).await;
        }
    }
    one_at_a_time(&rig).await;
    let ran = rig.passes().await;
    let ran = ran.iter().filter(|pass| !pass["started_at"].is_null());
    let worked = ran.filter(|pass| pass["targets"].as_object().is_some_and(|t| !t.is_empty()));
    assert!(
        (1..=3).contains(&worked.count()),
        "more than max_passes_per_hour"
    );
}

#[tokio::test]
async fn calls_of_a_thousand_alerts_lead_to_one_pass_that_waits() {
    let changes = json!({ "runtime": { "removal_timeout": "10m" }, "gc": { "deadline": "1h" } });
    let rig = Rig::start(nodes::litter(3), changes).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let running = rig.begin_gc("target=containers").await;
    rig.removing().await;
    let calls = (0..20).map(|call_number| {
        let alerts = (0..1_000).map(|number| numbered(call_number * 1_000 + number));
        call(alerts.collect())
    });
    let counts = storm(&rig, 8, calls.collect()).await;
    assert_eq!(counts, BTreeMap::from([(202, 20)]));
    counted(&rig.metrics().await, 20_000);
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["waiting"].as_array().unwrap().len(), 1, "{status:#}");
    rig.sim.clear_faults();
    rig.finished(&running).await;
    rig.finished(status["waiting"][0].as_str().unwrap()).await;
    one_at_a_time(&rig).await;
    assert_eq!(rig.passes().await.len(), 2);
}

#[tokio::test]
async fn an_alert_that_flaps_during_a_pass_displaces_no_other_trigger() {
    const FLAPS: u32 = 110;
    let changes = json!({ "runtime": { "removal_timeout": "10m" }, "gc": { "deadline": "1h" } });
    let mut rig = Rig::start(nodes::litter(3), changes).await;
    let ran = rig.gc("target=containers&max_removals=1").await;
    let ran = ran["id"].as_str().unwrap();
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let running = rig.begin_gc("target=containers").await;
    rig.removing().await;
    for number in 0..FLAPS {
        let mut alert = asks("sandboxes");
        alert["startsAt"] = json!(format!("2026-03-01T00:00:00.{number:03}Z"));
        sent(&rig, alert.clone(), 202, "accepted").await;
        sent(&rig, resolved(alert), 200, "withdrawn").await;
    }
    counted(&rig.metrics().await, FLAPS as usize * 2);
    for words in [
        "pass queued",
        "the alert resolved or was silenced before its pass began",
    ] {
        let mut lines = rig.log();
        lines.retain(|line| {
            line["message"]
                .as_str()
                .is_some_and(|it| it.contains(words))
        });
        assert!(
            (1..FLAPS as usize).contains(&lines.len()),
            "{words}: {}",
            lines.len()
        );
    }
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 100);
    for id in [ran, &running] {
        assert!(passes.iter().any(|pass| pass["id"] == id), "{id}");
    }
    rig.sim.clear_faults();
    rig.finished(&running).await;
    rig.crash().await;
    let after = rig.passes().await;
    assert!(after.iter().any(|pass| pass["id"] == ran), "{after:#?}");
}

/// Asserts which brakes hold, in the status and on the page.
async fn holding(rig: &Rig, wanted: &[&str]) {
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["brakes"]["holding"], json!(wanted), "{status:#}");
    let page = rig.metrics().await;
    for brake in ["pause", "cooldown", "max-passes-per-hour"] {
        let engaged = f64::from(u8::from(wanted.contains(&brake)));
        page.is(
            &format!("crisweep_brake_engaged{{brake=\"{brake}\"}}"),
            engaged,
        );
    }
}

#[tokio::test]
async fn each_brake_is_visible_and_a_manual_gc_passes_it() {
    let off = json!({ "cooldown": "0s", "max_passes_per_hour": 0, "pause": false });
    let mut rig = Rig::start(nodes::litter(9), json!({ "brakes": off })).await;
    holding(&rig, &[]).await;
    for (number, (key, value, brake)) in [
        ("cooldown", json!("1h"), "cooldown"),
        ("max_passes_per_hour", json!(1), "max-passes-per-hour"),
        ("pause", json!(true), "pause"),
    ]
    .into_iter()
    .enumerate()
    {
        rig.configure(&json!({ "brakes": off }));
        rig.configure(&json!({ "brakes": { key: value } }));
        assert_eq!(rig.post("/-/reload").await.status, 200);
        rig.gc("force=true&max_removals=1").await;
        holding(&rig, &[brake]).await;
        let labels = json!({ "alertname": format!("A{number}"), "crisweep": "containers" });
        let waits = key == "cooldown";
        let (status, result) = if waits {
            (202, "accepted")
        } else {
            (200, "braked")
        };
        let body = sent(&rig, alert(&labels), status, result).await;
        let why = body["alerts"][0]["why"].as_str().unwrap();
        assert!(why.contains(key), "{why}");
        if waits {
            sent(&rig, resolved(alert(&labels)), 200, "withdrawn").await;
        }
        let before = rig.removals().len();
        rig.gc("force=true&max_removals=1").await;
        assert_eq!(rig.removals().len(), before + 1, "{brake}");
    }
}

#[tokio::test]
async fn the_circuit_breaker_is_counted_and_force_passes_it() {
    let changes =
        json!({ "gc": { "batch_size": 10 }, "quarantine": { "base": "1ms", "max": "1ms" } });
    let rig = Rig::start(nodes::leaks(40), changes).await;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    // Some are removable, but they are the youngest.
    for number in 35..40 {
        let id = rig
            .sim
            .sandbox_id(&format!("default/leak-{number}#0"))
            .unwrap();
        rig.sim.set_cni(&id, Cni::healthy());
    }
    let answer = send(&rig, vec![asks("sandboxes")]).await;
    let pass = rig.finished(&pass_of(&answer.json())).await;
    assert_eq!(pass["outcome"], "aborted");
    let trips = "crisweep_circuit_breaker_trips_total";
    rig.metrics().await.is(trips, 1.0);
    assert_eq!(rig.dead_sandboxes(), 40);
    let pass = rig.gc("force=true").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(rig.dead_sandboxes(), 35);
    rig.metrics().await.is(trips, 1.0);
}
