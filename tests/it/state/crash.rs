//! Passes across the end of the process.

use crisweep_sim::{Fault, Rpc};
use rusqlite::Connection;
use serde_json::json;

use super::{integrity, kills, rows};
use crate::support::wait::{until, until_true};
use crate::support::{Rig, nodes};

pub(super) const INTERRUPTED: &str =
    r#"crisweep_passes_total{target="containers",cause="manual",outcome="interrupted"}"#;

#[tokio::test]
async fn a_pass_killed_in_the_middle_is_reported_with_its_counts_and_can_be_run_again() {
    let changes = json!({ "gc": { "max_concurrency": 1 } });
    let mut rig = Rig::start(nodes::litter(120), changes).await;
    // In the second batch of 50, oldest first, removals hang.
    for number in 75..120 {
        let subject = format!("default/old-{number}/app#0");
        let id = rig.sim.container_id(&subject).unwrap();
        rig.sim.set_removal_fault(&id, Fault::hang());
    }
    let id = rig.begin_gc("target=containers").await;
    let state = rig.state_dir();
    until_true("75 removals are written down", || {
        rows(&state, "removals WHERE result IS NOT NULL") >= 75
    })
    .await;
    rig.crash().await;
    assert_eq!(rig.exited_containers(), 45);
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 1, "{passes:?}");
    let pass = &passes[0];
    assert_eq!((&pass["id"], &pass["state"]), (&json!(id), &json!("done")));
    assert_eq!(pass["outcome"], "interrupted");
    let report = &pass["targets"]["containers"];
    assert_eq!(report["removed"], 75, "{pass}");
    assert_eq!(report["planned"], 120);
    assert_eq!(report["remaining"], 45);
    let errors = pass["errors"].to_string();
    let told = "mid-pass; 25 more removals were about to begin or under way";
    assert!(errors.contains(told), "{errors}");
    rig.metrics().await.is(INTERRUPTED, 1.0);

    rig.sim.clear_faults();
    let again = rig.gc("target=containers").await;
    assert_eq!(again["outcome"], "completed", "{again}");
    assert_eq!(rig.exited_containers(), 0);
    assert_ne!(again["id"], id);

    // Reported again as history, but not counted again.
    let before = rig.passes().await;
    rig.crash().await;
    assert_eq!(rig.passes().await, before);
    assert_eq!(rig.metrics().await.get(INTERRUPTED), None);
}

#[tokio::test]
async fn a_database_that_opens_after_the_start_still_tells_of_the_passes_before() {
    let mut rig = Rig::start(nodes::litter(60), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let killed = rig.begin_gc("target=containers").await;
    let state = rig.state_dir();
    until_true("the first batch is written down", || {
        rows(&state, "removals") >= 50
    })
    .await;
    rig.kill().await;
    rig.sim.clear_faults();
    let other = Connection::open(state.join("crisweep.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    rig.begin().await;
    assert!(rig.passes().await.is_empty());
    other.execute_batch("ROLLBACK").unwrap();

    let later = rig.gc("target=containers").await;
    let passes = until("both are known", || async {
        let passes = rig.passes().await;
        (passes.len() == 2).then_some(passes)
    })
    .await;
    assert_eq!(
        (&passes[0]["id"], &passes[1]["id"]),
        (&later["id"], &json!(killed))
    );
    assert_eq!(passes[1]["outcome"], "interrupted", "{passes:#?}");
    let stored = rig.get("/api/v1/passes?outcome=interrupted").await.json();
    assert_eq!(stored["passes"][0]["id"], killed, "{stored:#}");
    rig.metrics().await.is(INTERRUPTED, 1.0);
}

#[tokio::test]
async fn a_pass_killed_in_its_first_batch_is_reported_with_all_that_it_planned() {
    let mut rig = Rig::start(nodes::litter(60), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    rig.begin_gc("target=containers").await;
    let state = rig.state_dir();
    until_true("the first batch is written down", || {
        rows(&state, "removals") >= 50
    })
    .await;
    rig.crash().await;
    let pass = &rig.passes().await[0];
    let report = &pass["targets"]["containers"];
    assert_eq!(pass["outcome"], "interrupted", "{pass}");
    assert_eq!(report["planned"], 60, "{pass}");
    assert_eq!(pass["before"]["exited_containers"], 60, "{pass}");
}

#[tokio::test]
async fn passes_of_processes_before_are_remembered_and_ids_stay_unique() {
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    rig.gc("dry_run=true").await;
    rig.gc("").await;
    for _ in 0..3 {
        let before = rig.passes().await;
        rig.crash().await;
        assert_eq!(rig.passes().await, before);
        let pass = rig.gc("").await;
        assert!(before.iter().all(|old| old["id"] != pass["id"]));
        assert_eq!(rig.pass(pass["id"].as_str().unwrap()).await, pass);
    }
    assert_eq!(rig.passes().await.len(), 5);
    assert_eq!(rig.subjects(Rpc::RemoveContainer).len(), 3);
}

#[tokio::test]
async fn a_damaged_database_is_set_aside_and_the_service_starts() {
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    rig.gc("").await;
    rig.kill().await;
    std::fs::remove_file(rig.state_dir().join("crisweep.db-wal")).unwrap();
    std::fs::write(rig.state_dir().join("crisweep.db"), "garbage").unwrap();
    rig.begin().await;
    assert_eq!(rig.passes().await.len(), 0);
    let state = rig.get("/api/v1/status").await.json()["state"].clone();
    assert_eq!(state["journal"], true, "{state}");
    assert_eq!(state["errors"], json!({}));
    let aside = std::fs::read(rig.state_dir().join("crisweep.db.damaged")).unwrap();
    assert_eq!(aside, b"garbage");
    rig.gc("").await;
    rig.crash().await;
    assert_eq!(rig.passes().await.len(), 1);
}

#[tokio::test]
async fn a_process_killed_at_any_point_leaves_a_sound_database() {
    let changes = json!({ "gc": { "max_concurrency": 2 }, "brakes": { "cooldown": "0s" } });
    let mut rig = Rig::start(nodes::healthy(), changes).await;
    for round in 0..kills() {
        for number in 0..20 {
            let pod = nodes::deleted(20 * round + number, 20 * kills());
            rig.sim.add_pod(&pod);
        }
        rig.begin_gc("").await;
        // Later each time: in the first intents, in the middle, after the last outcome.
        let left = 20 - round % 21;
        until_true("the pass has got so far", || {
            rig.exited_containers() <= left
        })
        .await;
        rig.kill().await;
        let sound = integrity(&rig.state_dir());
        assert_eq!(sound, "ok", "after {round} kills");
        let half = "removals WHERE (result IS NULL) != (ended_at IS NULL)";
        assert_eq!(rows(&rig.state_dir(), half), 0);
        rig.begin().await;
        let state = rig.get("/api/v1/status").await.json()["state"].clone();
        assert_eq!(state["errors"], json!({}), "{state}");
        assert!(!rig.state_dir().join("crisweep.db.damaged").exists());
    }
}
