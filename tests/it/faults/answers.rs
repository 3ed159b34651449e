//! Garbage, empty answers, and the unspecific error `UNKNOWN`.

use std::time::Duration;

use crisweep_sim::{DEFAULT_IMAGE, Fault, NodeBuilder, Options, PodSpec, Rpc, hours};
use serde_json::json;
use tonic::Code;

use super::occasions::{self, asked, assert_met};
use super::{answers, heals};
use crate::support::wait::until_true;
use crate::support::{Rig, nodes};

/// Invalid protobuf: a varint without end.
const NO_PROTOBUF: [u8; 12] = [0xff; 12];

/// Calls without which a pass removes nothing. A streamed list that keeps breaking is read unary instead.
const NEEDED: [Rpc; 3] = [Rpc::Version, Rpc::ListContainers, Rpc::ListPodSandbox];

/// Makes an RPC misbehave through looks and a pass.
async fn misbehaves(rpc: Rpc, fault: Fault) -> Rig {
    let changes = json!({
        "runtime": { "timeout": "5s" },
        "quarantine": { "base": "1s", "max": "1s" },
    });
    let rig = occasions::rig(rpc, changes, fault).await;
    answers(&rig).await;
    let pass = rig.gc("").await;
    println!("{rpc:?}: {}", pass["outcome"]);
    assert_met(&rig, rpc);
    rig
}

/// Makes each RPC in turn return nothing useful; then the node gets clean.
async fn tells_nothing(fault: Fault) {
    for rpc in asked(|_| true) {
        let rig = misbehaves(rpc, fault.clone()).await;
        if NEEDED.contains(&rpc) {
            let up = f64::from(u8::from(rpc != Rpc::Version));
            answers(&rig).await.is("cri_up", up);
            rig.nothing_was_touched();
            assert_eq!(rig.passes().await[0]["outcome"], "aborted", "{rpc:?}");
        }
        if rpc == Rpc::ContainersListStream {
            // The dead objects do not fit, and nothing proves that only they are missing.
            let page = answers(&rig).await;
            page.is("cri_list_complete{list=\"containers\"}", 0.0);
            rig.nothing_was_touched();
        }
        rig.sim.clear_faults();
        heals(&rig).await;
    }
}

#[tokio::test]
async fn a_garbage_answer_removes_nothing() {
    tells_nothing(Fault::garbage(NO_PROTOBUF)).await;
}

#[tokio::test]
async fn an_unknown_error_removes_nothing() {
    tells_nothing(Fault::fail(Code::Unknown, "something is wrong")).await;
}

/// An empty message is an empty list, or a record without content.
#[tokio::test]
async fn an_empty_answer_takes_nothing_that_is_needed() {
    for rpc in asked(|_| true) {
        let rig = misbehaves(rpc, Fault::garbage([])).await;
        let lists = [
            Rpc::ListContainers,
            Rpc::StreamContainers,
            Rpc::ListPodSandbox,
            Rpc::StreamPodSandboxes,
            Rpc::ContainersListStream,
        ];
        if lists.contains(&rpc) {
            assert_eq!(rig.dead_sandboxes(), 3, "{rpc:?}");
        }
        rig.sim.clear_faults();
        heals(&rig).await;
    }
}

/// With an empty list every image is unused, and the question right before a removal gets the same wrong
/// answer.
#[tokio::test]
async fn an_empty_list_of_containers_makes_no_image_unused_and_no_sandbox_empty() {
    let images = json!({ "min_age": "0s", "max_age": "1ms" });
    let node = nodes::litter(3).image(DEFAULT_IMAGE, 1 << 20);
    let node = node.image("registry.example/idle:1", 4 << 20);
    let rig = Rig::start(node, json!({ "policy": { "images": images } })).await;
    rig.sim.set_fault(Rpc::ListContainers, Fault::garbage([]));
    let page = answers(&rig).await;
    page.is("cri_list_complete{list=\"containers\"}", 0.0);
    page.is("cri_list_complete{list=\"sandboxes\"}", 1.0);
    let pass = rig.gc("").await;
    rig.nothing_was_touched();
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let why = pass["errors"][0].as_str().unwrap();
    assert!(why.contains("the runtime lists none"), "{why}");
    // Who asks for containers only hears it too: the sandboxes would say nothing.
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    rig.sim.clear_faults();
    heals(&rig).await;
    assert_eq!(rig.subjects(Rpc::RemoveImage), ["registry.example/idle:1"]);
}

#[tokio::test]
async fn a_list_that_turns_empty_in_mid_pass_makes_the_pass_partial() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let slow = Fault::slow(Duration::from_secs(1));
    rig.sim.set_fault(Rpc::RemoveContainer, slow);
    let id = rig.begin_gc("target=containers&target=sandboxes").await;
    until_true("a removal has begun", || {
        rig.sim.call_count(Rpc::RemoveContainer) > 0
    })
    .await;
    rig.sim.set_fault(Rpc::ListContainers, Fault::garbage([]));
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 3, "{pass:#}");
    assert_eq!(rig.dead_sandboxes(), 3, "{pass:#}");
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let why = pass["errors"][0].as_str().unwrap();
    assert!(why.contains("the runtime lists none"), "{why}");
}

/// Without containerd's service each empty list would confirm the other; a pod that runs has records.
#[tokio::test]
async fn two_empty_lists_beside_a_pod_that_runs_make_no_image_unused() {
    let images = json!({ "min_age": "0s", "max_age": "1ms" });
    let node = nodes::litter(3).image(DEFAULT_IMAGE, 1 << 20).build();
    let changes = json!({ "policy": { "images": images } });
    let rig = Rig::with(node, Options::not_containerd(), changes).await;
    for rpc in [Rpc::ListContainers, Rpc::ListPodSandbox] {
        rig.sim.set_fault(rpc, Fault::garbage([]));
    }
    let page = answers(&rig).await;
    page.is("cri_list_complete{list=\"containers\"}", 0.0);
    page.is("cri_list_complete{list=\"sandboxes\"}", 0.0);
    let pass = rig.gc("").await;
    rig.nothing_was_touched();
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let why = pass["errors"][0].as_str().unwrap();
    assert!(why.contains("the runtime lists none"), "{why}");
    rig.sim.clear_faults();
    heals(&rig).await;
}

#[tokio::test]
async fn the_time_of_an_empty_list_covers_the_question_that_confirms_it() {
    let rig = Rig::start(NodeBuilder::new(), json!({})).await;
    let delay = Duration::from_millis(100);
    let service = Rpc::ContainersListStream;
    rig.sim.set_fault(service, Fault::slow(delay));
    let before = rig.sim.call_count(service);
    let page = answers(&rig).await;
    assert!(rig.sim.call_count(service) > before);
    let took = page.get("cri_list_duration_seconds{list=\"containers\"}");
    assert!(took.unwrap() >= delay.as_secs_f64(), "{took:?}");
}

#[tokio::test]
async fn a_drained_node_without_any_container_is_cleaned_at_once() {
    let leaked = |number| {
        let pod = PodSpec::new(&format!("leak-{number}")).without_sandbox();
        pod.leaked_sandbox(0, hours(3)).leaked_sandbox(1, hours(2))
    };
    let node = NodeBuilder::new().pods(5, move |number| leaked(number).deleted());
    let rig = Rig::start(node, json!({})).await;
    let page = answers(&rig).await;
    page.is("cri_list_complete{list=\"containers\"}", 1.0);
    let pass = rig.gc("").await;
    // The newest sandboxes stay, because the file shows no other pod of their kind.
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let why = pass["errors"][0].as_str().unwrap();
    assert!(
        why.contains("the pod list holds no other pod of the same source; another source"),
        "{why}"
    );
    // No row names a pod, so no pod is known to be deleted.
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 5, "{pass:#}");
}
