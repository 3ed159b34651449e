//! One crisweep on a node.

use crisweep_sim::Fault;
use rustix::process::Signal;
use serde_json::json;

use super::crash::INTERRUPTED;
use crate::support::service::run;
use crate::support::wait::until;
use crate::support::{Rig, nodes};

#[tokio::test]
async fn a_second_one_is_refused_and_told_the_holders_pid() {
    let mut rig = Rig::start(nodes::litter(5), json!({})).await;
    let config = rig.config_file();
    let config = format!("--config.file={}", config.display());
    let pid = format!("pid {} ", rig.pid());
    let address = format!("--web.listen-address={}", rig.address);
    // The last one fails on the used address first.
    let serve = [
        &[config.as_str()][..],
        &[&config, "gc"],
        &[&config, &address],
    ];
    for args in serve {
        let output = run(args).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("another crisweep works on this node"),
            "{said}"
        );
        assert!(said.contains(&pid), "{said}");
        let is_command = args.contains(&"gc");
        assert_eq!(said.contains("end of the other command"), is_command);
    }
    rig.nothing_was_touched();
    for args in [
        &[config.as_str(), "plan"][..],
        &[&config, "gc", "--dry-run"],
    ] {
        let output = run(args).await;
        assert!(output.status.success(), "{output:?}");
    }
    rig.nothing_was_touched();
    // After the service has ended, the command does the work; the next service reports it.
    rig.kill().await;
    let output = run(&[&config, "gc"]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(rig.exited_containers(), 0);
    rig.begin().await;
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 1);
    assert_eq!(passes[0]["trigger"]["cause"], "command");
    assert_eq!(passes[0]["outcome"], "completed");
}

#[tokio::test]
async fn the_lock_is_free_after_a_stop() {
    let mut rig = Rig::start(nodes::healthy(), json!({})).await;
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0));
    rig.begin().await;
    let state = rig.get("/api/v1/status").await.json()["state"].clone();
    assert_eq!(state["locked"], true, "{state}");
}

#[tokio::test]
async fn passes_over_another_runtime_are_not_reported_as_passes_of_this_one() {
    let mut one = Rig::start(nodes::litter(1), json!({})).await;
    one.post("/gc?wait=60s").await.json();
    let dir = one.get("/api/v1/status").await.json()["state"]["dir"].clone();
    one.service.signal(Signal::TERM);
    assert_eq!(one.service.exited().await.code(), Some(0));
    let mut other = Rig::start(nodes::litter(1), json!({ "state": { "dir": dir } })).await;
    assert!(
        other.passes().await.is_empty(),
        "{:?}",
        other.passes().await
    );
    other.kill().await;
    one.begin().await;
}

#[tokio::test]
async fn a_pass_over_another_runtime_that_was_killed_is_written_down_as_interrupted() {
    let mut one = Rig::start(nodes::litter(1), json!({})).await;
    let hanging = one.sim.container_id("default/old-0/app#0").unwrap();
    one.sim.set_removal_fault(&hanging, Fault::hang());
    let id = one.begin_gc("target=containers").await;
    one.removing().await;
    let dir = one.get("/api/v1/status").await.json()["state"]["dir"].clone();
    one.kill().await;
    let mut other = Rig::start(nodes::litter(1), json!({ "state": { "dir": dir } })).await;
    let outcome = until("it has an end", || async {
        let page = other.get("/api/v1/passes?limit=10").await.json();
        let pass = page["passes"][0].clone();
        assert_eq!(pass["id"], id, "{page:#}");
        (pass["state"] == "done").then(|| pass["outcome"].clone())
    })
    .await;
    assert_eq!(outcome, "interrupted");
    // It is no pass of this runtime.
    assert!(other.passes().await.is_empty());
    assert_eq!(other.metrics().await.get(INTERRUPTED), None);
    other.kill().await;
    one.sim.clear_faults();
    one.begin().await;
}

/// Empties the state directory while it is in use.
fn empty(rig: &Rig) {
    for entry in std::fs::read_dir(rig.state_dir()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_was_lost_to_another_one_stops_every_pass() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    empty(&rig);
    let other = crate::support::service::Service::start_beside(&rig).await;
    let pass = rig.post("/gc?wait=60s").await.json();
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");
    let why = pass["errors"].to_string();
    let pid = format!("pid {} ", other.pid());
    assert!(
        why.contains("state.dir was lost") && why.contains(&pid),
        "{why}"
    );
    rig.nothing_was_touched();
    let failures = rig
        .metrics()
        .await
        .get("crisweep_state_write_failures_total");
    assert!(failures > Some(0.0), "{failures:?}");
    assert_eq!(
        rig.get("/api/v1/status").await.json()["state"]["locked"],
        false
    );
    // A dry run is harmless.
    assert_eq!(rig.gc("dry_run=true").await["outcome"], "planned");
    // After the other process ends, the lock is free again.
    other.stop().await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.exited_containers(), 0);
}

#[tokio::test]
async fn a_lock_that_was_lost_and_is_free_is_taken_again() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    empty(&rig);
    assert_eq!(rig.gc("").await["outcome"], "completed");
    let state = rig.get("/api/v1/status").await.json()["state"].clone();
    assert_eq!(state["locked"], true, "{state}");
    let config = format!("--config.file={}", rig.config_file().display());
    let output = run(&[&config, "gc"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // The journal was made anew with the lock.
    let id = rig.passes().await[0]["id"].clone();
    let mut rig = rig;
    rig.crash().await;
    assert_eq!(rig.passes().await[0]["id"], id);
}

#[tokio::test]
async fn without_a_state_directory_that_can_be_made_passes_go_on() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    std::fs::remove_dir_all(rig.state_dir()).unwrap();
    std::fs::write(rig.state_dir(), "in the way").unwrap();
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(
        rig.get("/api/v1/status").await.json()["state"]["locked"],
        false
    );
}
