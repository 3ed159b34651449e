//! Incomplete looks: both lists are over the limit, and a look has a time limit.

use std::time::Duration;

use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, hours};
use serde_json::{Value, json};

use crate::support::{Rig, until};

const PODS: usize = 14;
/// One record of each pod stays.
const SURPLUS: usize = 2;

/// Crashed pods, on a runtime that confirms nothing and refuses both lists for their size.
async fn rig(changes: Value) -> Rig {
    let crash = |number| {
        let pod = PodSpec::new(&format!("crash-{number}"));
        (0..=SURPLUS).fold(pod, |pod, attempt| {
            pod.exited(
                "app",
                attempt.try_into().unwrap(),
                hours(9 - attempt as u64),
            )
        })
    };
    let node = NodeBuilder::new().pods(PODS, crash).build();
    let rig = Rig::with(node, Options::not_containerd(), changes).await;
    rig.write_log_directories();
    // The records of one pod fit.
    rig.sim.conduct(|it| it.send_limit_bytes = 4_000);
    rig
}

fn changes() -> Value {
    json!({
        "collect": { "max_age": "1h" },
        "runtime": { "timeout": "2s" },
        // Use only what lists contain.
        "policy": { "containers": { "age_from": "created" } },
    })
}

#[tokio::test]
async fn on_incomplete_lists_a_static_pods_records_stay_and_the_pass_says_why() {
    let dead = |name: &str| PodSpec::new(name).exited("app", 0, hours(9)).deleted();
    let living = |name| PodSpec::new(name).running("app", 0);
    let node = NodeBuilder::new()
        .pod(living("web"))
        .pod(living("etcd").static_pod())
        .pod(dead("proxy").static_pod())
        .pods(PODS, |number| dead(&format!("gone-{number}")))
        .build();
    let rig = Rig::with(node, Options::not_containerd(), changes()).await;
    rig.write_log_directories();
    rig.sim.conduct(|it| it.send_limit_bytes = 4_000);
    let pass = gc(&rig, "target=containers").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], PODS, "{pass:#}");
    assert_eq!(rig.exited_containers(), 1);
    let errors = pass["errors"].to_string();
    assert!(
        errors.contains("the runtime's lists are incomplete, and may lack the record of the pod"),
        "{errors}"
    );
    assert!(!errors.contains("of the same source"), "{errors}");
}

/// Lets a look read only some pods.
fn slow_down(rig: &Rig) {
    let slow = Fault::slow(Duration::from_millis(900));
    rig.sim.set_fault(Rpc::ListContainers, slow);
}

/// Waits for the end of a pass while it makes calls.
async fn gc(rig: &Rig, query: &str) -> Value {
    let calls = || -> u64 { Rpc::ALL.iter().map(|rpc| rig.sim.call_count(*rpc)).sum() };
    let id = rig.begin_gc(query).await;
    loop {
        let before = calls();
        let done = until("the pass goes on", || async {
            let pass = rig.pass(&id).await;
            let is_done = pass["state"] == "done";
            (is_done || calls() > before).then_some((is_done, pass))
        });
        if let (true, pass) = done.await {
            return pass;
        }
    }
}

#[tokio::test]
async fn a_pass_is_completed_only_when_a_further_look_finds_nothing_more() {
    let rig = rig(changes()).await;
    slow_down(&rig);
    let pass = gc(&rig, "target=containers").await;
    let containers = &pass["targets"]["containers"];
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(containers["removed"], PODS * SURPLUS, "{pass:#}");
    assert_eq!(containers["planned"], PODS * SURPLUS, "{pass:#}");
    assert_eq!(rig.exited_containers(), PODS);
}

#[tokio::test]
async fn what_was_removed_and_is_still_listed_is_tried_once() {
    let rig = rig(changes()).await;
    let stuck = "default/crash-0/app#0";
    let id = rig.sim.container_id(stuck).unwrap();
    rig.sim.set_removal_fault(&id, Fault::pretend());
    let pass = gc(&rig, "target=containers").await;
    let errors = pass["errors"].to_string();
    assert!(errors.contains("are not tried again"), "{errors}");
    let tried = rig.subjects(Rpc::RemoveContainer);
    assert_eq!(tried.iter().filter(|it| *it == stuck).count(), 1);
}
