//! Answers that are garbage, empty, or the error that says nothing (`UNKNOWN`).

use crisweep::sim::{Fault, Rpc};
use serde_json::json;
use tonic::Code;

use super::occasions::{self, asked, assert_met};
use super::{answers, heals};
use crate::support::Rig;

/// No protobuf: a number that does not end.
const NO_PROTOBUF: [u8; 12] = [0xff; 12];

/// What a pass may not do without, so that it removes nothing.
const NEEDED: [Rpc; 5] = [
    Rpc::Version,
    Rpc::ListContainers,
    Rpc::ListPodSandbox,
    Rpc::StreamContainers,
    Rpc::StreamPodSandboxes,
];

/// Lets an RPC misbehave through looks and a pass.
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

/// Lets each RPC misbehave so that it tells nothing; then the node gets clean.
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
            // The dead ones do not fit, and nobody proves that they are all that is missing.
            let page = answers(&rig).await;
            page.is("cri_list_complete{list=\"containers\"}", 0.0);
            rig.nothing_was_touched();
        }
        rig.sim.clear_faults();
        heals(&rig).await;
    }
}

#[tokio::test]
async fn garbage_is_no_answer() {
    tells_nothing(Fault::garbage(NO_PROTOBUF)).await;
}

#[tokio::test]
async fn an_unknown_error_is_no_answer() {
    tells_nothing(Fault::fail(Code::Unknown, "something is wrong")).await;
}

/// An empty message is a list of nothing, or a record without anything in it.
#[tokio::test]
async fn an_empty_answer_takes_nothing_that_is_needed() {
    for rpc in asked(|_| true) {
        let rig = misbehaves(rpc, Fault::garbage([])).await;
        let lists = [
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
