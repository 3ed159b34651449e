//! Each RPC of the runtime hangs for ever, one after the other.

use std::time::Instant;

use crisweep::sim::{Fault, Options, Rpc};
use rustix::process::Signal;
use serde_json::json;

use super::{ASKED, STREAMED, answers, cleans};
use crate::support::{Rig, nodes, until};

/// Asks everything while the RPC hangs, in a pass as well; then ends the process in the middle of the
/// next pass.
async fn hangs(rpc: Rpc, options: Options) {
    let changes = json!({
        "runtime": { "timeout": "1s", "removal_timeout": "2s" },
        "quarantine": { "base": "1s", "max": "1s" },
    });
    let mut rig = Rig::with(nodes::litter(3).build(), options, changes).await;
    rig.sim.set_fault(rpc, Fault::hang());
    answers(&rig).await;
    let began = Instant::now();
    let pass = rig.finished(&rig.begin_gc("").await).await;
    println!("{rpc:?}: {} after {:?}", pass["outcome"], began.elapsed());
    let asked = rig.sim.call_count(rpc);
    let second = rig.begin_gc("").await;
    until("the pass is under way", || async {
        let pass = rig.pass(&second).await;
        let goes_on = rig.sim.call_count(rpc) > asked || rig.sim.removals_in_flight() > 0;
        (goes_on || pass["state"] == "done").then_some(())
    })
    .await;
    let began = Instant::now();
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0), "{rpc:?}");
    println!("{rpc:?}: went down after {:?}", began.elapsed());
    rig.sim.clear_faults();
    rig.begin().await;
    until("what failed may be tried again", || async {
        let pass = rig.gc("").await;
        let clean = pass["state"] == "done" && rig.exited_containers() + rig.dead_sandboxes() == 0;
        clean.then_some(())
    })
    .await;
    cleans(&rig).await;
}

#[tokio::test]
async fn whichever_call_hangs_all_is_answered_passes_end_and_it_goes_down() {
    let each = ASKED.map(|rpc| hangs(rpc, Options::default()));
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn whichever_stream_hangs_all_is_answered_passes_end_and_it_goes_down() {
    let each = STREAMED.map(|rpc| hangs(rpc, Options::containerd_2_4()));
    futures_util::future::join_all(each).await;
}
