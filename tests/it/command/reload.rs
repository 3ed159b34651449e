//! `POST /-/reload` and SIGHUP.

use std::fs;

use crisweep_sim::{Fault, Rpc};
use rustix::process::Signal;
use serde_json::json;

use crate::support::service::{run, text};
use crate::support::wait::until_true;
use crate::support::{Answer, Rig, nodes};

#[tokio::test]
async fn a_reload_changes_policy_mode_and_pause() {
    let mut rig = Rig::start(nodes::litter(2), json!({})).await;
    rig.configure(&json!({
        "mode": "observe",
        "brakes": { "pause": true },
        "policy": { "protect": { "namespaces": ["default"] } },
    }));
    let answer = rig.post("/-/reload").await;
    assert_eq!(
        (answer.status, answer.json()),
        (200, json!({ "reloaded": true }))
    );
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(
        (&status["mode"], &status["brakes"]["pause"]),
        (&json!("observe"), &json!(true))
    );
    let plan = rig.get("/api/v1/plan").await.json();
    assert_eq!(plan["removals"], json!([]));
    assert_eq!(plan["summary"]["containers"]["keep"]["protected"], 2);
    rig.post("/gc").await.refused(409, "brakes.pause");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_hangup_reloads_too() {
    let mut rig = Rig::start(nodes::litter(2), json!({ "mode": "observe" })).await;
    assert_eq!(rig.gc("").await["dry_run"], true);
    rig.configure(&json!({ "mode": "enforce" }));
    rig.service.signal(Signal::HUP);
    until_true("it has reloaded", || {
        rig.logged("configuration reloaded").len() == 1
    })
    .await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.removals().len(), 4);
}

#[tokio::test]
async fn a_bad_file_changes_nothing_and_the_error_names_why() {
    let mut rig = Rig::start(nodes::litter(2), json!({ "mode": "observe" })).await;
    rig.configure(&json!({ "mode": "enforce", "gc": { "batch_size": -1 } }));
    rig.post("/-/reload").await.refused(400, "gc.batch_size");
    rig.service.signal(Signal::HUP);
    let refusal = "the configuration was not reloaded; the old one stays";
    until_true("both refusals are logged", || {
        rig.logged(refusal).len() == 2
    })
    .await;
    assert!(
        rig.logged(refusal)[1]["error"]
            .to_string()
            .contains("gc.batch_size")
    );
    let url = format!("--url=http://{}", rig.address);
    let shown = text(&run(&["status", &url]).await.stdout);
    let words = "config      the last reload was refused, ";
    assert!(shown.contains(words), "{shown}");
    fs::remove_file(rig.config_file()).unwrap();
    rig.post("/-/reload").await.refused(400, "crisweep.yaml");
    assert_eq!(rig.get("/api/v1/status").await.json()["mode"], "observe");
    assert_eq!(rig.gc("").await["dry_run"], true);
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_reload_takes_the_pod_source_away_and_gives_it_back() {
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    rig.configure(&json!({ "pods": { "source": "none", "file": null } }));
    assert_eq!(
        rig.post("/-/reload").await.json(),
        json!({ "reloaded": true })
    );
    rig.gc("").await;
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(
        (&status["pods"]["configured"], &status["pods"]["known"]),
        (&json!("none"), &json!(false))
    );
    // Without a source nothing counts as a deleted pod's.
    assert_eq!(rig.exited_containers(), 3);
    let file = rig.pods_file();
    rig.configure(&json!({ "pods": { "source": "file", "file": file } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.exited_containers(), 0);
}

#[tokio::test]
async fn a_reload_changes_automatic_triggers_and_permissions() {
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    let ask = |rig: &Rig| {
        let request = rig.request("POST", "/gc?dry_run=true");
        Answer::of(request.header("host", "gc.example"))
    };
    ask(&rig).await.refused(403, "Host");
    rig.configure(&json!({
        "web": { "trusted_hosts": ["gc.example"] },
        "thresholds": { "enabled": true, "interval": "100ms", "exited_containers": 2 },
    }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    assert_eq!(ask(&rig).await.status, 202);
    until_true("a threshold's pass cleans the node", || {
        rig.exited_containers() == 0
    })
    .await;
}

#[tokio::test]
async fn a_changed_setting_that_needs_a_restart_is_named_until_it_is_put_back() {
    let mut rig = Rig::start(nodes::litter(1), json!({})).await;
    let before = rig.get("/api/v1/status").await.json()["config"]["hash"].clone();
    rig.configure(&json!({ "state": { "journal_bytes": "128KiB" }, "gc": { "batch_size": 7 } }));
    let keys = json!(["state.journal_bytes"]);
    for _ in 0..2 {
        let answer = rig.post("/-/reload").await.json();
        assert_eq!(answer, json!({ "reloaded": true, "needs_restart": keys }));
    }
    let config = rig.get("/api/v1/status").await.json()["config"].clone();
    assert_eq!(config["needs_restart"], keys);
    assert_ne!(config["hash"], before);
    let page = rig.metrics().await;
    page.is(
        "crisweep_config_needs_restart{key=\"state.journal_bytes\"}",
        1.0,
    );
    page.is(
        &format!("crisweep_config_info{{hash={}}}", config["hash"]),
        1.0,
    );
    rig.configure(&json!({ "state": { "journal_bytes": "64KiB" }, "gc": { "batch_size": null } }));
    assert_eq!(
        rig.post("/-/reload").await.json(),
        json!({ "reloaded": true })
    );
    let config = rig.get("/api/v1/status").await.json()["config"].clone();
    assert_eq!(
        (&config["hash"], &config["needs_restart"]),
        (&before, &json!([]))
    );
}

#[tokio::test]
async fn mode_and_the_last_reload_are_shown() {
    let mut rig = Rig::start(nodes::litter(1), json!({})).await;
    let shown = async |rig: &Rig, enforce: f64, well: f64| {
        let page = rig.metrics().await;
        page.is("crisweep_mode{mode=\"enforce\"}", enforce);
        page.is("crisweep_mode{mode=\"observe\"}", 1.0 - enforce);
        page.is("crisweep_config_last_reload_successful", well);
        page.get("crisweep_config_last_reload_success_timestamp_seconds")
            .unwrap()
    };
    let started = shown(&rig, 1.0, 1.0).await;
    rig.configure(&json!({ "mode": "careful" }));
    rig.post("/-/reload").await.refused(400, "mode");
    let failed = shown(&rig, 1.0, 0.0).await;
    assert!((failed - started).abs() < f64::EPSILON);
    let status = rig.get("/api/v1/status").await.json();
    assert!(
        status["config"]["last_reload_error"]
            .to_string()
            .contains("mode"),
        "{status:#}"
    );
    rig.configure(&json!({ "mode": "observe" }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    assert!(shown(&rig, 0.0, 1.0).await > started);
    let lines = rig.logs(2, "configuration in force").await;
    assert_eq!(
        (&lines[0]["mode"], &lines[1]["mode"]),
        (&json!("enforce"), &json!("observe"))
    );
}

#[tokio::test]
async fn a_reload_changes_the_log_level() {
    let mut rig = Rig::start(nodes::litter(1), json!({})).await;
    for (level, lines) in [("error", 0), ("info", 1), ("warn", 1)] {
        rig.configure(&json!({ "log": { "level": level } }));
        assert_eq!(rig.post("/-/reload").await.status, 200);
        rig.gc("dry_run=true").await;
        assert_eq!(rig.logs(lines, "pass queued").await.len(), lines, "{level}");
    }
}

#[tokio::test]
async fn a_reload_changes_the_format_of_the_log() {
    let mut rig = Rig::start(nodes::litter(1), json!({})).await;
    rig.configure(&json!({ "log": { "format": "text" } }));
    assert_eq!(
        rig.post("/-/reload").await.json(),
        json!({ "reloaded": true })
    );
    rig.gc("dry_run=true").await;
    until_true("a line of text is logged", || {
        rig.log_text().contains(" INFO crisweep")
    })
    .await;
}

#[tokio::test]
async fn a_reload_changes_how_long_and_how_big_the_runtimes_answers_may_be() {
    let mut rig = Rig::start(nodes::litter(2), json!({ "runtime": { "timeout": "10m" } })).await;
    let reload = async |rig: &mut Rig, runtime| {
        rig.configure(&json!({ "runtime": runtime }));
        let answer = rig.post("/-/reload").await.json();
        assert_eq!(answer, json!({ "reloaded": true }));
        rig.metrics().await
    };
    rig.sim.set_fault(Rpc::Version, Fault::hang());
    let page = reload(&mut rig, json!({ "timeout": "100ms" })).await;
    page.is("cri_up", 0.0);
    rig.sim.clear_faults();
    let page = reload(&mut rig, json!({ "max_message_bytes": 1 })).await;
    page.is("crisweep_collector_success{collector=\"images\"}", 0.0);
    let usual = json!({ "timeout": "5s", "max_message_bytes": null });
    let page = reload(&mut rig, usual).await;
    page.is("crisweep_collector_success{collector=\"images\"}", 1.0);
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    reload(&mut rig, json!({ "removal_timeout": "100ms" })).await;
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 0, "{pass:#}");
}
