//! Each RPC of the runtime hangs for ever, one after the other.

use std::time::Instant;

use crisweep_sim::{Fault, Rpc};
use rustix::process::Signal;
use serde_json::json;

use super::occasions::{self, Occasion, asked, assert_met};
use super::{answers, heals};
use crate::support::until;

/// Asks everything while the RPC hangs, in a pass as well; then ends the process during the next pass.
async fn hangs(rpc: Rpc) {
    let changes = json!({
        "runtime": { "timeout": "1s", "removal_timeout": "2s" },
        "quarantine": { "base": "1s", "max": "1s" },
    });
    let mut rig = occasions::rig(rpc, changes, Fault::hang()).await;
    answers(&rig).await;
    let began = Instant::now();
    let pass = rig.finished(&rig.begin_gc("").await).await;
    println!("{rpc:?}: {} after {:?}", pass["outcome"], began.elapsed());
    assert_met(&rig, rpc);
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
    heals(&rig).await;
}

#[tokio::test]
async fn with_any_usual_call_hanging_requests_are_answered_and_passes_and_process_end() {
    let usual = asked(|occasion| occasion == Occasion::Usual);
    futures_util::future::join_all(usual.into_iter().map(hangs)).await;
}

#[tokio::test]
async fn with_any_stream_or_rare_call_hanging_requests_are_answered_and_passes_and_process_end() {
    let seldom = asked(|occasion| occasion != Occasion::Usual);
    futures_util::future::join_all(seldom.into_iter().map(hangs)).await;
}
