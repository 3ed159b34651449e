//! The runtime restarts during a list: the rows read so far are dropped.

use crisweep_sim::{Fault, Rpc};
use serde_json::json;

use super::heals;
use super::occasions;
use crate::support::wait::until_true;
use crate::support::{Rig, nodes};

/// Stops the runtime while its lists hang, in a look of this pass, and starts it again.
async fn restart_in(rig: &Rig, pass: &str) {
    rig.sim.stop().await;
    rig.nothing_was_touched();
    rig.sim.clear_faults();
    rig.sim.start().unwrap();
    let pass = rig.finished(pass).await;
    let ends = ["completed", "aborted"];
    assert!(
        ends.contains(&pass["outcome"].as_str().unwrap()),
        "{pass:#}"
    );
    if pass["outcome"] == "aborted" {
        rig.nothing_was_touched();
    }
}

/// Asserts that the lists are read completely, and in this mode if given.
async fn whole(rig: &Rig, mode: Option<&str>) {
    rig.ready().await;
    let page = rig.metrics().await;
    for list in ["containers", "sandboxes"] {
        page.is(&format!("cri_list_complete{{list=\"{list}\"}}"), 1.0);
        if let Some(mode) = mode {
            let sample = format!("cri_list_mode{{list=\"{list}\",mode=\"{mode}\"}}");
            page.is(&sample, 1.0);
        }
    }
}

/// Waits for the next call of an RPC, which hangs.
async fn met(rig: &Rig, rpc: Rpc, before: u64) {
    until_true("the list hangs", || rig.sim.call_count(rpc) > before).await;
}

#[tokio::test]
async fn a_list_in_one_answer_is_read_anew_after_a_restart() {
    for rpc in [Rpc::ListContainers, Rpc::ListPodSandbox] {
        let rig = Rig::start(nodes::litter(3), json!({})).await;
        rig.sim.set_fault(rpc, Fault::hang());
        let before = rig.sim.call_count(rpc);
        let pass = rig.begin_gc("").await;
        met(&rig, rpc, before).await;
        restart_in(&rig, &pass).await;
        whole(&rig, Some("unary")).await;
        heals(&rig).await;
    }
}

#[tokio::test]
async fn a_list_in_parts_is_read_anew_after_a_restart() {
    let service = Rpc::ContainersListStream;
    // In the parts by state and name, at the ids, and at the records known only by id.
    for last in [Rpc::ListContainers, service, Rpc::ListPodSandbox] {
        let rig = occasions::rig(service, json!({}), Fault::hang()).await;
        let before = rig.sim.call_count(service);
        let pass = rig.begin_gc("").await;
        met(&rig, service, before).await;
        if last != service {
            // Some parts have been read; the next one hangs.
            let before = rig.sim.call_count(last);
            rig.sim.set_fault(last, Fault::hang());
            rig.sim.clear_fault(service);
            met(&rig, last, before).await;
        }
        restart_in(&rig, &pass).await;
        whole(&rig, None).await;
        heals(&rig).await;
    }
}
