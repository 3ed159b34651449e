//! What a removal asks the runtime once more, and what it finds then.

use crisweep_proto::cri::{
    ContainerState, ContainerStatus, ContainerStatusResponse, PodSandboxState, PodSandboxStatus,
    PodSandboxStatusResponse,
};
use crisweep_sim::{ContainerSpec, Fault, Options, PodSpec, Rpc, hours, seconds};
use prost::Message as _;
use serde_json::json;
use tonic::Code;

use crate::support::wait::until_true;
use crate::support::{Rig, nodes};

/// The runtime says of an object's id what its list did not say.
async fn skipped(rig: &Rig, question: Rpc, answer: Vec<u8>, why: &str) {
    rig.sim.set_fault(question, Fault::garbage(answer));
    let pass = rig.gc("").await;
    let errors = pass["errors"].to_string();
    assert!(errors.contains(why), "{pass:#}");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_sandbox_that_is_ready_or_another_one_by_then_stays() {
    let rig = Rig::start(nodes::leaks(1), json!({})).await;
    let id = rig.sim.sandbox_id("default/leak-0#0").unwrap();
    let listed = rig.sim.sandbox(&id).unwrap().row;
    let (ready, dead) = (
        PodSandboxState::SandboxReady,
        PodSandboxState::SandboxNotready,
    );
    for (state, later, why) in [(ready, 0, "it is ready"), (dead, 1, "another time")] {
        let status = PodSandboxStatus {
            id: id.clone(),
            metadata: listed.metadata.clone(),
            state: state.into(),
            created_at: listed.created_at + later,
            ..PodSandboxStatus::default()
        };
        let answer = PodSandboxStatusResponse {
            status: Some(status),
            ..PodSandboxStatusResponse::default()
        };
        skipped(&rig, Rpc::PodSandboxStatus, answer.encode_to_vec(), why).await;
    }
}

#[tokio::test]
async fn a_container_that_is_another_one_by_then_stays() {
    // The list of the second lacks its creation, and its status had it at the first look.
    let lost = ContainerSpec::exited("app", 0, hours(1)).created_ago(hours(272 * 365 * 24));
    let lost = PodSpec::new("old-0")
        .age(hours(2))
        .container(lost)
        .deleted();
    for node in [nodes::litter(1), nodes::healthy().pod(lost)] {
        let rig = Rig::start(node, json!({})).await;
        let id = rig.sim.container_id("default/old-0/app#0").unwrap();
        let listed = rig.sim.container(&id).unwrap();
        let created_at = match listed.row.created_at {
            ..=0 => 1_700_000_000_000_000_000,
            listed => listed,
        };
        let status = ContainerStatus {
            id,
            metadata: listed.row.metadata,
            state: ContainerState::ContainerExited.into(),
            created_at: created_at - 1,
            finished_at: listed.finished_at,
            ..ContainerStatus::default()
        };
        let answer = ContainerStatusResponse {
            status: Some(status),
            ..ContainerStatusResponse::default()
        };
        let why = "another time than planned";
        skipped(&rig, Rpc::ContainerStatus, answer.encode_to_vec(), why).await;
    }
}

#[tokio::test]
async fn a_container_in_state_unknown_that_does_not_stop_stays() {
    let lost = PodSpec::new("lost").unknown("app", 0, hours(3)).deleted();
    let changes = json!({ "policy": { "containers": { "include_unknown": true } } });
    let rig = Rig::start(nodes::healthy().pod(lost), changes).await;
    rig.sim.set_fault(Rpc::StopContainer, Fault::pretend());
    let pass = rig.gc("").await;
    let errors = pass["errors"].to_string();
    assert!(errors.contains("it did not stop"), "{pass:#}");
    assert!(rig.removals().is_empty());
}

/// The first call runs the network plugin, which takes time.
#[tokio::test]
async fn an_older_sandbox_stays_when_the_newest_goes_during_its_first_call() {
    let wants_stop = Fault::fail(Code::FailedPrecondition, "it must be stopped");
    let cases = [
        (Options::cri_o(), Rpc::StopPodSandbox, Fault::hang()),
        (
            Options::default(),
            Rpc::RemovePodSandbox,
            wants_stop.times(1).after(seconds(1)),
        ),
    ];
    for (options, first, fault) in cases {
        let pod = PodSpec::new("again")
            .without_sandbox()
            .leaked_sandbox(0, hours(3))
            .leaked_sandbox(1, hours(2));
        let rig = Rig::with(nodes::healthy().pod(pod).build(), options, json!({})).await;
        let newest = rig.sim.sandbox_id("default/again#1").unwrap();
        rig.sim.set_fault(first, fault);
        let id = rig.begin_gc("").await;
        until_true("the first call begins", || rig.sim.call_count(first) > 0).await;
        assert!(rig.sim.change(|node| node.vanish_sandbox(&newest)));
        if first == Rpc::StopPodSandbox {
            rig.sim.clear_faults();
        }
        let pass = rig.finished(&id).await;
        assert_eq!(pass["targets"]["sandboxes"]["skipped"], 1, "{pass:#}");
        assert_eq!(rig.sim.calls().len(), 1, "{first:?}");
    }
}

#[tokio::test]
async fn no_stop_and_no_removal_of_a_container_follows_a_cancel() {
    let lost = || PodSpec::new("lost").deleted();
    let unknown = || lost().unknown("app", 0, hours(3));
    let created = || lost().created("app", 0, hours(3));
    let cases = [
        (Options::default(), unknown(), Rpc::ContainerStatus, 0),
        (Options::default(), unknown(), Rpc::StopContainer, 1),
        (Options::cri_o(), created(), Rpc::StopContainer, 1),
    ];
    for (options, pod, call, stops) in cases {
        let changes = json!({ "policy": { "containers": { "include_unknown": true } } });
        let runtime = options.runtime_name.clone();
        let rig = Rig::with(nodes::healthy().pod(pod).build(), options, changes).await;
        let calls = rig.sim.call_count(call);
        rig.sim.set_fault(call, Fault::hang());
        let id = rig.begin_gc("target=containers").await;
        until_true("the call hangs", || rig.sim.call_count(call) > calls).await;
        rig.delete(&format!("/api/v1/passes/{id}")).await;
        rig.sim.clear_faults();
        let pass = rig.finished(&id).await;
        assert_eq!(pass["outcome"], "aborted", "{runtime} {call:?}: {pass:#}");
        let count = rig.sim.call_count(Rpc::StopContainer);
        assert_eq!(count, stops, "{runtime} {call:?}");
        assert!(rig.removals().is_empty(), "{runtime} {call:?}");
    }
}

#[tokio::test]
async fn a_removal_that_failed_is_no_success_where_nothing_more_can_be_asked() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let fails = Fault::fail(Code::Unknown, "not now");
    rig.sim
        .set_fault(Rpc::RemoveContainer, fails.clone().after(seconds(1)));
    let id = rig.begin_gc("target=containers").await;
    until_true("the removal begins", || {
        rig.sim.call_count(Rpc::RemoveContainer) > 0
    })
    .await;
    rig.sim.set_fault(Rpc::ContainerStatus, fails);
    let pass = rig.finished(&id).await;
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["failed"], &report["already_gone"]),
        (&json!(1), &json!(0)),
        "{pass:#}"
    );
}
