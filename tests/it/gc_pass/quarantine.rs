//! Sandboxes that cannot be removed, or only slowly: they do not delay others.

use std::time::Duration;

use crisweep_proto::cri::{ListPodSandboxResponse, PodSandbox};
use crisweep_sim::{Cni, Fault, Rpc};
use prost::Message;
use serde_json::json;
use tonic::Code;

use crate::support::{Rig, nodes, until};

/// Returns the ids of every `step`th of the leaked sandboxes.
fn every(rig: &Rig, step: usize, count: usize) -> Vec<String> {
    let numbers = (0..count).step_by(step);
    numbers
        .map(|n| rig.sim.sandbox_id(&format!("default/leak-{n}#0")).unwrap())
        .collect()
}

#[tokio::test]
async fn failing_sandboxes_are_quarantined_and_tried_again_later() {
    let changes = json!({ "quarantine": { "base": "1s", "max": "2s" } });
    let rig = Rig::start(nodes::leaks(9), changes).await;
    let failing = every(&rig, 3, 9);
    for id in &failing {
        rig.sim.set_cni(id, Cni::failing());
    }
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial");
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(6), &json!(3))
    );
    let error = pass["errors"][0].as_str().unwrap();
    assert!(error.contains("failed to destroy network"), "{error}");
    // The runtime names the sandbox twice more.
    let id = failing.iter().find(|id| error.contains(*id)).unwrap();
    assert_eq!(error.matches(&**id).count(), 1, "{error}");
    assert_eq!(error.matches(&id[..13]).count(), 3, "{error}");

    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(
        status["quarantined_sandboxes"],
        json!({ "network-teardown": 3 })
    );
    let page = rig.metrics().await;
    page.is(
        "crisweep_quarantined_sandboxes{class=\"network-teardown\"}",
        3.0,
    );
    let why = rig
        .get(&format!("/api/v1/explain/{}", failing[0]))
        .await
        .json();
    assert_eq!(why["quarantine"]["failures"], 1, "{why:#}");
    assert_eq!(why["quarantine"]["class"], "network-teardown");

    rig.sim.heal_cni();
    until("the back-off is over", || async {
        let why = rig
            .get(&format!("/api/v1/explain/{}", failing[0]))
            .await
            .json();
        (why["verdict"] == "remove").then_some(())
    })
    .await;
    until("all three are due", || async {
        let page = rig.metrics().await;
        (page.sum("crisweep_removable", "reason=\"pod-deleted\"") >= 3.0).then_some(())
    })
    .await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed");
    assert_eq!(rig.dead_sandboxes(), 0);
    let page = rig.metrics().await;
    page.is(
        "crisweep_quarantined_sandboxes{class=\"network-teardown\"}",
        0.0,
    );
}

#[tokio::test]
async fn a_failed_sandbox_is_not_tried_before_its_back_off_ends() {
    let rig = Rig::start(nodes::leaks(4), json!({ "quarantine": { "base": "1h" } })).await;
    rig.sim
        .set_cni(&every(&rig, 4, 4)[0], Cni::plugin_missing());
    rig.gc("").await;
    assert_eq!(rig.removals().len(), 4);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "nothing-to-do");
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(report["kept"]["quarantined"], 1);
    let next_try: jiff::Timestamp = report["next_try"].as_str().unwrap().parse().unwrap();
    let ended: jiff::Timestamp = pass["finished_at"].as_str().unwrap().parse().unwrap();
    assert!(next_try > ended, "{pass:#}");
    assert_eq!(rig.removals().len(), 4);
}

#[tokio::test]
async fn a_failed_sandbox_waits_also_where_a_list_in_between_may_lack_it() {
    let rig = Rig::start(nodes::leaks(4), json!({ "quarantine": { "base": "1h" } })).await;
    let failing = every(&rig, 4, 4).remove(0);
    rig.sim.set_cni(&failing, Cni::failing());
    rig.gc("").await;
    let rows = rig.sim.sandboxes().into_iter().map(|it| it.row);
    let others = rows.filter(|row| row.id != failing);
    // A row without an id makes the list incomplete.
    let items = others.chain([PodSandbox::default()]).collect();
    let list = ListPodSandboxResponse { items }.encode_to_vec();
    rig.sim.set_fault(Rpc::ListPodSandbox, Fault::garbage(list));
    rig.gc("").await;
    rig.sim.clear_faults();
    let pass = rig.gc("").await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(report["kept"]["quarantined"], 1, "{pass:#}");
    assert_eq!(rig.removals().len(), 4);
}

/// Runs a pass over sandboxes, of which the slow ones end after all others; returns how many of both went.
async fn slow_ones_end_last(rig: &Rig, slow: &[String]) -> (usize, usize) {
    let pass = rig.gc("target=sandboxes").await;
    assert_eq!(pass["outcome"], "completed");
    let removals = rig.removals().into_iter();
    let (of_slow, of_healthy): (Vec<_>, Vec<_>) = removals.partition(|it| slow.contains(&it.id));
    let first_slow = of_slow.iter().map(|call| call.ended.unwrap().at).min();
    let last_healthy = of_healthy.iter().map(|call| call.ended.unwrap().at).max();
    assert!(last_healthy < first_slow, "{last_healthy:?} {first_slow:?}");
    (of_slow.len(), of_healthy.len())
}

#[tokio::test]
async fn a_slow_network_holds_no_healthy_sandbox_back() {
    let rig = Rig::start(nodes::leaks(15), json!({})).await;
    let slow = every(&rig, 3, 15);
    for id in &slow {
        rig.sim.set_cni(id, Cni::slow(Duration::from_secs(5)));
    }
    assert_eq!(slow_ones_end_last(&rig, &slow).await, (5, 10));
    assert_eq!(rig.sim.call_count(Rpc::StopPodSandbox), 0);
}

/// On a sick node the disk is often busy too.
#[tokio::test]
async fn a_slow_network_holds_no_healthy_sandbox_back_on_a_busy_disk() {
    let host = tempfile::tempdir().unwrap();
    let pressure = host.path().join("proc/pressure");
    std::fs::create_dir_all(&pressure).unwrap();
    std::fs::write(pressure.join("io"), "some avg10=90.00\n").unwrap();
    let changes = json!({
        "runtime": { "host_root": host.path() },
        "gc": { "io_pressure_pause_percent": 20 },
    });
    let rig = Rig::start(nodes::leaks(36), changes).await;
    let slow = every(&rig, 3, 36);
    for sandbox in rig.sim.sandboxes() {
        let takes = if slow.contains(&sandbox.row.id) {
            Duration::from_secs(9)
        } else {
            Duration::from_millis(40)
        };
        rig.sim.set_cni(&sandbox.row.id, Cni::slow(takes));
    }
    assert_eq!(slow_ones_end_last(&rig, &slow).await, (12, 24));
}

#[tokio::test]
async fn a_hanging_removal_holds_nothing_back_and_ends_with_its_timeout() {
    let changes = json!({ "runtime": { "removal_timeout": "3s" } });
    let rig = Rig::start(nodes::leaks(12), changes).await;
    let hanging = every(&rig, 12, 12).remove(0);
    rig.sim.set_cni(&hanging, Cni::hanging());
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial");
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(11), &json!(1))
    );
    let (of_hanging, others): (Vec<_>, Vec<_>) = rig
        .removals()
        .into_iter()
        .partition(|call| call.id == hanging);
    let given_up = of_hanging[0].ended.unwrap().at;
    assert!(others.iter().all(|call| call.ended.unwrap().at < given_up));
    rig.metrics()
        .await
        .is("crisweep_quarantined_sandboxes{class=\"timeout\"}", 1.0);
    // The person who set the timeout learns its effect.
    let failed = rig.logs(1, "removal failed").await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["id"], hanging);
    let hint = failed[0]["hint"].as_str().expect("a hint");
    assert!(hint.contains("runtime.removal_timeout"), "{hint}");
}

#[tokio::test]
async fn a_pass_tries_a_failing_sandbox_once_also_beside_slow_containers() {
    let changes = json!({ "quarantine": { "base": "1s", "max": "2s" } });
    let node = nodes::leaks(1).pod(nodes::deleted(0, 1));
    let rig = Rig::start(node, changes).await;
    rig.sim.set_cni(&every(&rig, 1, 1)[0], Cni::failing());
    // Its sandbox is planned when the other one may be tried again.
    let slow = Fault::slow(Duration::from_secs(4));
    rig.sim.set_fault(Rpc::RemoveContainer, slow);
    let pass = rig.gc("").await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(1), &json!(1)),
        "{pass:#}"
    );
    assert_eq!(rig.sim.call_count(Rpc::RemovePodSandbox), 2);
}

#[tokio::test]
async fn a_sandbox_is_stopped_first_only_where_the_runtime_asks_for_it() {
    let rig = Rig::start(nodes::leaks(2), json!({})).await;
    let asks = Fault::fail(Code::FailedPrecondition, "sandbox must be stopped first").times(1);
    rig.sim.set_fault(Rpc::RemovePodSandbox, asks);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 2);
    assert_eq!(rig.sim.call_count(Rpc::StopPodSandbox), 1);
    assert_eq!(rig.sim.call_count(Rpc::RemovePodSandbox), 3);
}
