//! Answers that are garbage, empty, or the error that says nothing (`UNKNOWN`).

use crisweep::sim::{Fault, Rpc};
use serde_json::json;
use tonic::Code;

use super::{ASKED, answers, cleans};
use crate::support::{Rig, nodes, until};

/// No protobuf: a number that does not end.
const NO_PROTOBUF: [u8; 12] = [0xff; 12];

/// What a pass may not do without, so that it removes nothing.
const NEEDED: [Rpc; 3] = [Rpc::Version, Rpc::ListContainers, Rpc::ListPodSandbox];

async fn rig() -> Rig {
    let changes = json!({
        "runtime": { "timeout": "5s" },
        "quarantine": { "base": "1s", "max": "1s" },
    });
    Rig::start(nodes::litter(3), changes).await
}

/// Lets an RPC misbehave through looks and a pass; then the node gets clean.
async fn misbehaves(rpc: Rpc, fault: Fault) -> Rig {
    let rig = rig().await;
    rig.sim.set_fault(rpc, fault);
    answers(&rig).await;
    let pass = rig.gc("").await;
    println!("{rpc:?}: {}", pass["outcome"]);
    rig
}

async fn heals(rig: &Rig) {
    rig.sim.clear_faults();
    until("what failed may be tried again", || async {
        let pass = rig.gc("").await;
        let clean = pass["state"] == "done" && rig.exited_containers() + rig.dead_sandboxes() == 0;
        clean.then_some(())
    })
    .await;
    cleans(rig).await;
}

#[tokio::test]
async fn garbage_is_no_answer() {
    for rpc in ASKED {
        let rig = misbehaves(rpc, Fault::garbage(NO_PROTOBUF)).await;
        if NEEDED.contains(&rpc) {
            let up = f64::from(u8::from(rpc != Rpc::Version));
            answers(&rig).await.is("cri_up", up);
            rig.nothing_was_touched();
            assert_eq!(rig.passes().await[0]["outcome"], "aborted", "{rpc:?}");
        }
        heals(&rig).await;
    }
}

#[tokio::test]
async fn an_unknown_error_is_no_answer() {
    for rpc in ASKED {
        let rig = misbehaves(rpc, Fault::fail(Code::Unknown, "something is wrong")).await;
        if NEEDED.contains(&rpc) {
            let up = f64::from(u8::from(rpc != Rpc::Version));
            answers(&rig).await.is("cri_up", up);
            rig.nothing_was_touched();
            assert_eq!(rig.passes().await[0]["outcome"], "aborted", "{rpc:?}");
        }
        heals(&rig).await;
    }
}

/// An empty message is a list of nothing, or a record without anything in it: a lie that may be believed,
/// but takes nothing that is needed.
#[tokio::test]
async fn an_empty_answer_takes_nothing_that_is_needed() {
    for rpc in ASKED {
        let rig = misbehaves(rpc, Fault::garbage([])).await;
        if rpc == Rpc::ListPodSandbox {
            assert_eq!(rig.dead_sandboxes(), 3);
        }
        heals(&rig).await;
    }
}
