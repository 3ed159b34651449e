//! Quarantined sandboxes stay quarantined across restarts.

use crisweep_sim::Cni;
use serde_json::json;

use crate::support::service::run;
use crate::support::{Rig, nodes};

#[tokio::test]
async fn a_sandbox_that_failed_stays_quarantined_after_a_restart_and_a_crash() {
    let changes = json!({ "quarantine": { "base": "1h", "max": "4h" } });
    let mut rig = Rig::start(nodes::leaks(6), changes).await;
    let failing = rig.sim.sandbox_id("default/leak-2#0").unwrap();
    rig.sim.set_cni(&failing, Cni::plugin_missing());
    rig.gc("").await;
    assert_eq!(rig.removals().len(), 6);
    let path = format!("/api/v1/explain/{failing}");
    let before = rig.get(&path).await.json()["quarantine"].clone();
    assert_eq!(
        (&before["failures"], &before["class"]),
        (&json!(1), &json!("plugin-missing"))
    );
    for end in ["SIGTERM", "SIGKILL"] {
        if end == "SIGTERM" {
            rig.service.signal(rustix::process::Signal::TERM);
            rig.service.exited().await;
            rig.begin().await;
        } else {
            rig.crash().await;
        }
        let after = rig.get(&path).await.json();
        assert_eq!(after["quarantine"], before, "{end}");
        assert_eq!(after["reason"], "quarantined");
        let class = "crisweep_quarantined_sandboxes{class=\"plugin-missing\"}";
        rig.metrics().await.is(class, 1.0);
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "nothing-to-do", "{end}: {pass:#}");
        assert_eq!(rig.removals().len(), 6);
    }
}

#[tokio::test]
async fn a_sandbox_removed_after_failures_is_forgotten() {
    let changes = json!({ "quarantine": { "base": "1s", "max": "4h" } });
    let mut rig = Rig::start(nodes::leaks(2), changes).await;
    let failing = rig.sim.sandbox_id("default/leak-1#0").unwrap();
    rig.sim.set_cni(&failing, Cni::failing());
    rig.gc("").await;
    rig.sim.heal_cni();
    crate::support::until("it is due and goes", || async {
        rig.gc("").await;
        (rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
    rig.crash().await;
    assert!(
        rig.logged("sandboxes that failed before stay quarantined")
            .is_empty()
    );
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["quarantined_sandboxes"], json!({}));
}

#[tokio::test]
async fn the_command_knows_them_beside_the_service_and_after_it() {
    let changes = json!({ "quarantine": { "base": "1h", "max": "4h" } });
    let mut rig = Rig::start(nodes::leaks(3), changes).await;
    let failing = rig.sim.sandbox_id("default/leak-1#0").unwrap();
    rig.sim.set_cni(&failing, Cni::failing());
    rig.gc("").await;
    let file = rig.config_file();
    let file = file.to_str().unwrap();
    let table = run(&["--config.file", file, "plan", "--all"]).await;
    let table = String::from_utf8(table.stdout).unwrap();
    let words = "quarantined (network-teardown, next try in ";
    assert!(table.contains(words), "{table}");
    assert!(table.contains("default/leak-1"), "{table}");
    rig.kill().await;
    let gc = run(&["--config.file", file, "gc", "--output", "json"]).await;
    let pass: serde_json::Value = serde_json::from_slice(&gc.stdout).unwrap();
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(pass["targets"]["sandboxes"]["kept"]["quarantined"], 1);
    assert_eq!(rig.removals().len(), 3);
}
