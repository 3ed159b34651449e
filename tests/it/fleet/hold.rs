//! The one switch.

use crisweep_sim::{Fault, Rpc};
use rusqlite::Connection;
use serde_json::json;

use super::{absent, api_server, config, held, reload, state, switch};
use crate::alerts::hook::{asks, sent};
use crate::state::rows;
use crate::support::kubelet::Reply;
use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

#[tokio::test]
async fn a_hold_refuses_everyone_without_force_and_shows_its_reason() {
    let server = api_server().await;
    server.reply(held());
    let rig = Rig::start(nodes::litter(4), config(&server)).await;
    let status = state(&rig, "held").await;
    assert_eq!(status["fleet"]["hold"]["reason"], "a bad rollout");
    assert!(status["fleet"]["hold"]["read_at"].is_string(), "{status:#}");
    assert_eq!(status["brakes"]["holding"], json!(["fleet-hold"]));
    let page = rig.metrics().await;
    page.is("crisweep_brake_engaged{brake=\"fleet-hold\"}", 1.0);
    assert!(page.get("crisweep_fleet_hold_read_timestamp_seconds") > Some(1e9));
    rig.post("/gc").await.refused(409, "a bad rollout");
    let body = sent(&rig, asks("containers"), 200, "braked").await;
    let why = body["alerts"][0]["why"].as_str().unwrap();
    assert!(why.contains("a bad rollout"), "{why}");
    rig.nothing_was_touched();
    assert_eq!(rig.gc("dry_run=true").await["outcome"], "planned");
    assert_eq!(
        rig.gc("force=true&max_removals=1").await["outcome"],
        "partial"
    );
    // The ConfigMap is deleted.
    server.reply(absent());
    reload(&rig, &server, "free").await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    let asked = server.asked().remove(0).line;
    assert_eq!(asked, "GET /api/v1/namespaces/gc/configmaps/brakes");
}

#[tokio::test]
async fn while_it_was_never_read_alerts_wait_and_people_go_on() {
    let server = api_server().await;
    server.reply(Reply::status("503 Service Unavailable"));
    let rig = Rig::start(nodes::litter(4), config(&server)).await;
    let status = state(&rig, "unknown").await;
    assert_eq!(status["brakes"]["holding"], json!(["fleet-unknown"]));
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let why = body["alerts"][0]["why"].as_str().unwrap();
    assert!(why.contains("not known"), "{why}");
    let waiting = body["passes"][0].as_str().unwrap().to_owned();
    assert_eq!(
        rig.gc("target=containers&max_removals=1").await["outcome"],
        "partial"
    );
    assert_eq!(rig.removals().len(), 1);
    let pass = rig.pass(&waiting).await;
    assert_eq!(
        (&pass["state"], &pass["not_before"]),
        (&json!("queued"), &json!(null))
    );
    server.reply(switch(&json!({ "hold": "false" })));
    reload(&rig, &server, "free").await;
    assert_eq!(rig.finished(&waiting).await["outcome"], "completed");
}

#[tokio::test]
async fn what_was_read_stays_in_force_while_the_api_server_is_away() {
    let server = api_server().await;
    let rig = Rig::start(nodes::litter(2), config(&server)).await;
    state(&rig, "free").await;
    for (is_held, wanted) in [(false, "free"), (true, "held")] {
        if is_held {
            server.reply(held());
            reload(&rig, &server, wanted).await;
        }
        for away in ["503 Service Unavailable", "429 Too Many Requests"] {
            server.reply(Reply::status(away));
            reload(&rig, &server, wanted).await;
            until("the failure shows", || async {
                let status = rig.get("/api/v1/status").await.json();
                let hold = &status["fleet"]["hold"];
                assert_eq!(hold["state"], wanted, "{away}: {status:#}");
                hold["error"].is_string().then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_hold_outlives_a_restart_while_the_api_server_is_away() {
    let server = api_server().await;
    server.reply(held());
    let mut rig = Rig::start(nodes::litter(2), config(&server)).await;
    state(&rig, "held").await;
    until_true("the hold is written", || {
        rows(&rig.state_dir(), "fleet_hold") == 1
    })
    .await;
    server.reply(Reply::status("503 Service Unavailable"));
    rig.crash().await;
    let status = state(&rig, "held").await;
    assert_eq!(status["fleet"]["hold"]["reason"], "a bad rollout");
    rig.post("/gc").await.refused(409, "a bad rollout");
    server.reply(absent());
    reload(&rig, &server, "free").await;
    until_true("the hold is forgotten", || {
        rows(&rig.state_dir(), "fleet_hold") == 0
    })
    .await;
    server.reply(Reply::status("503 Service Unavailable"));
    rig.crash().await;
    state(&rig, "unknown").await;
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_hold_outlives_a_start_at_which_the_database_could_not_be_opened() {
    let server = api_server().await;
    server.reply(held());
    let mut rig = Rig::start(nodes::litter(2), config(&server)).await;
    state(&rig, "held").await;
    let dir = rig.state_dir();
    until_true("the hold is written", || rows(&dir, "fleet_hold") == 1).await;
    server.reply(Reply::status("503 Service Unavailable"));
    rig.kill().await;
    let other = Connection::open(dir.join("crisweep.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    rig.begin().await;
    state(&rig, "unknown").await;
    other.execute_batch("ROLLBACK").unwrap();
    // A pass that begins opens the database.
    assert_eq!(rig.gc("dry_run=true").await["outcome"], "planned");
    state(&rig, "held").await;
    rig.post("/gc").await.refused(409, "a bad rollout");
    server.reply(absent());
    reload(&rig, &server, "free").await;
    until_true("the hold is forgotten", || rows(&dir, "fleet_hold") == 0).await;
}

#[tokio::test]
async fn a_hold_that_came_before_the_database_could_be_opened_is_written_once_it_is() {
    let server = api_server().await;
    server.reply(absent());
    let mut rig = Rig::start(nodes::litter(2), config(&server)).await;
    state(&rig, "free").await;
    rig.kill().await;
    let dir = rig.state_dir();
    let other = Connection::open(dir.join("crisweep.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    server.reply(held());
    rig.begin().await;
    state(&rig, "held").await;
    other.execute_batch("ROLLBACK").unwrap();
    // A pass that begins opens the database.
    assert_eq!(rig.gc("dry_run=true").await["outcome"], "planned");
    until_true("the hold is written", || rows(&dir, "fleet_hold") == 1).await;
}

#[tokio::test]
async fn an_answer_that_says_nothing_makes_alerts_wait_and_is_logged_once() {
    let server = api_server().await;
    let rig = Rig::start(nodes::litter(2), config(&server)).await;
    for unclear in [
        Reply::status("403 Forbidden"),
        switch(&json!({ "hold": "perhaps" })),
        Reply::json("{}"),
        Reply::json(&" ".repeat(70_000)),
        Reply::redirect("http://127.0.0.1:1/"),
    ] {
        server.reply(absent());
        reload(&rig, &server, "free").await;
        let logged = || rig.logged("the fleet's switch cannot be read").len();
        let before = logged();
        server.reply(unclear);
        for _ in 0..3 {
            reload(&rig, &server, "unknown").await;
        }
        // The log is written by a thread of its own.
        until("a line of the log", || async {
            (logged() > before).then_some(())
        })
        .await;
        assert_eq!(logged(), before + 1, "{}", rig.log_text());
    }
    let page = rig.metrics().await;
    page.is("crisweep_brake_engaged{brake=\"fleet-unknown\"}", 1.0);
    sent(&rig, asks("containers"), 202, "accepted").await;
    assert_eq!(rig.passes().await[0]["state"], "queued");
    rig.nothing_was_touched();
}

/// An API server that starts refuses everyone until it knows the rights.
#[tokio::test]
async fn a_refusal_for_a_moment_ends_no_pass() {
    let server = api_server().await;
    let rig = Rig::start(nodes::litter(6), config(&server)).await;
    state(&rig, "free").await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    rig.removing().await;
    server.reply(Reply::status("403 Forbidden"));
    reload(&rig, &server, "free").await;
    let refused = server.asked().len();
    server.reply(absent());
    until("the switch is asked for again", || async {
        (server.asked().len() > refused).then_some(())
    })
    .await;
    reload(&rig, &server, "free").await;
    rig.sim.clear_faults();
    let pass = rig.finished(body["passes"][0].as_str().unwrap()).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let told = rig.logged("the fleet's switch cannot be read");
    assert!(told.is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_hold_ends_a_pass_by_alert_and_leaves_a_persons() {
    let server = api_server().await;
    let mut changes = config(&server);
    changes["gc"] = json!({ "batch_size": 2, "max_concurrency": 1 });
    for is_persons in [false, true] {
        server.reply(absent());
        let rig = Rig::start(nodes::litter(6), changes.clone()).await;
        state(&rig, "free").await;
        rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
        let id = if is_persons {
            rig.begin_gc("target=containers").await
        } else {
            let body = sent(&rig, asks("containers"), 202, "accepted").await;
            body["passes"][0].as_str().unwrap().to_owned()
        };
        rig.removing().await;
        server.reply(held());
        reload(&rig, &server, "held").await;
        if !is_persons {
            until("the pass is told", || async {
                let told = rig.logged("a brake of the fleet ends the pass");
                (!told.is_empty()).then_some(())
            })
            .await;
        }
        rig.sim.clear_faults();
        let pass = rig.finished(&id).await;
        if is_persons {
            assert_eq!(
                (rig.exited_containers(), &pass["outcome"]),
                (0, &json!("completed"))
            );
            continue;
        }
        assert_eq!(pass["outcome"], "partial", "{pass:#}");
        assert!(
            pass["errors"].to_string().contains("a bad rollout"),
            "{pass:#}"
        );
        assert!(rig.exited_containers() >= 3, "{pass:#}");
        let tried = rig.removals().len();
        sent(&rig, asks("containers"), 200, "braked").await;
        assert_eq!(rig.removals().len(), tried);
    }
}

#[tokio::test]
async fn a_reload_that_puts_a_hold_in_place_of_a_pause_lets_no_pass_begin_in_between() {
    let server = api_server().await;
    server.reply(held());
    let mut rig = Rig::start(nodes::litter(2), json!({ "brakes": { "jitter": "1000h" } })).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let waiting = body["passes"][0].as_str().unwrap();
    for _ in 0..20 {
        rig.configure(&json!({
            "brakes": { "jitter": "0s", "pause": true },
            "pods": { "api_url": null },
            "fleet": null,
        }));
        assert_eq!(rig.post("/-/reload").await.status, 200);
        let mut instead = config(&server);
        instead["brakes"] = json!({ "pause": false });
        rig.configure(&instead);
        reload(&rig, &server, "held").await;
        let pass = rig.pass(waiting).await;
        assert_eq!(pass["state"], "queued", "{pass:#}");
    }
    rig.nothing_was_touched();
}
