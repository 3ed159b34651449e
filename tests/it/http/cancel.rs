//! `DELETE /api/v1/passes/{id}`.

use crisweep_sim::{Fault, Rpc};
use serde_json::json;

use crate::support::{Rig, nodes};

#[tokio::test]
async fn a_cancelled_pass_tries_nothing_more() {
    let changes = json!({ "gc": { "batch_size": 2, "max_concurrency": 1 } });
    let rig = Rig::start(nodes::litter(6), changes).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("").await;
    rig.removing().await;
    let answer = rig.delete(&format!("/api/v1/passes/{id}")).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    // One may have started beside a slow one before the cancel, none after it.
    let tried = rig.removals().len();
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "aborted");
    let by = format!("cancelled by uid {}", rustix::process::geteuid().as_raw());
    assert_eq!(pass["errors"], json!([by]));
    assert_eq!(rig.removals().len(), tried);
    assert_eq!(pass["targets"]["containers"]["removed"], tried);
    assert_eq!(rig.dead_sandboxes(), 6);
    rig.delete(&format!("/api/v1/passes/{id}"))
        .await
        .refused(409, "already done");
}

#[tokio::test]
async fn a_cancelled_pass_that_waits_never_begins() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let running = rig.begin_gc("target=containers").await;
    rig.removing().await;
    let waiting = rig.begin_gc("target=sandboxes").await;
    let answer = rig.delete(&format!("/api/v1/passes/{waiting}")).await;
    assert_eq!(answer.status, 202);
    let pass = answer.json();
    assert_eq!(
        (&pass["state"], &pass["outcome"]),
        (&json!("done"), &json!("aborted"))
    );
    assert_eq!(pass["started_at"], json!(null));
    let own = rustix::process::geteuid().as_raw();
    let why = format!("cancelled by uid {own} before it began");
    assert_eq!(pass["errors"], json!([why]));
    rig.sim.clear_faults();
    rig.finished(&running).await;
    assert_eq!(rig.pass(&waiting).await, pass);
    assert_eq!(rig.dead_sandboxes(), 2);
}

#[tokio::test]
async fn an_unknown_pass_cannot_be_cancelled() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    rig.delete("/api/v1/passes/nobodys")
        .await
        .refused(404, "nobodys");
}
