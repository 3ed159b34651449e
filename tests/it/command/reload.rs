//! `POST /-/reload` and SIGHUP.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::support::wait::until_true;
use crate::support::{Rig, nodes};

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
async fn a_bad_file_leaves_everything_as_it_was_and_says_why() {
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
    fs::remove_file(rig.config_file()).unwrap();
    rig.post("/-/reload").await.refused(400, "crisweep.yaml");
    assert_eq!(rig.get("/api/v1/status").await.json()["mode"], "observe");
    assert_eq!(rig.gc("").await["dry_run"], true);
    rig.nothing_was_touched();
}
