//! What changes between the plan and the removal.

use std::collections::BTreeSet;
use std::time::Duration;

use crisweep_proto::cri::runtime_service_client::RuntimeServiceClient;
use crisweep_proto::cri::{RemoveContainerRequest, StopContainerRequest};
use crisweep_sim::{Fault, Node, Options, PodSpec, Rpc, hours, minutes};
use serde_json::json;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

/// Starts a pass whose question before the removal hangs, changes the node, and continues.
async fn change_before_the_removal(
    rig: &Rig,
    question: Rpc,
    change: impl AsyncFnOnce(),
) -> serde_json::Value {
    rig.sim.set_fault(question, Fault::hang());
    let asked = rig.sim.call_count(question);
    let id = rig.begin_gc("").await;
    until_true("the pass asks before it removes", || {
        rig.sim.call_count(question) > asked
    })
    .await;
    change().await;
    rig.sim.clear_faults();
    rig.finished(&id).await
}

/// Takes longer than an answer about a newer record holds.
fn slow_answer() -> Fault {
    Fault::slow(Duration::from_millis(1_200))
}

/// Lets the newest record go once the pass has called the runtime so often: the older one must stay.
async fn stays_when_the_newest_goes(
    rig: &Rig,
    target: &str,
    (rpc, calls): (Rpc, u64),
    goes: impl FnOnce(&mut Node) -> bool,
) {
    let before = rig.sim.call_count(rpc);
    let id = rig.begin_gc(&format!("target={target}")).await;
    until_true("the calls", || rig.sim.call_count(rpc) == before + calls).await;
    assert!(rig.sim.change(goes));
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"][target]["skipped"], 1, "{pass:#}");
}

#[tokio::test]
async fn objects_removed_by_others_are_counted_apart() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let pass = change_before_the_removal(&rig, Rpc::ContainerStatus, async || {
        for name in ["default/old-0/app#0", "default/old-1/app#0"] {
            let id = rig.sim.container_id(name).unwrap();
            assert!(rig.sim.change(|node| node.vanish_container(&id)));
        }
    })
    .await;
    assert_eq!(pass["outcome"], "completed");
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["removed"], &report["already_gone"]),
        (&json!(0), &json!(2))
    );
    assert_eq!(rig.sim.call_count(Rpc::RemoveContainer), 0);
    rig.metrics().await.is(
        "crisweep_removals_already_gone_total{target=\"containers\"}",
        2.0,
    );
}

#[tokio::test]
async fn a_removal_that_the_runtime_answers_with_not_found_counts_as_already_gone() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let gone = Fault::fail(Code::NotFound, "no such container");
    rig.sim.set_fault(Rpc::RemoveContainer, gone);
    let report = &rig.gc("target=containers").await["targets"]["containers"];
    assert_eq!(
        (&report["removed"], &report["already_gone"]),
        (&json!(0), &json!(1)),
        "{report:#}"
    );
    // The simulator has it all the same, and the look after the pass says so.
    assert_eq!(report["still_listed"], 1, "{report:#}");
}

#[tokio::test]
async fn the_older_records_stay_when_the_newest_is_gone_by_the_time_they_would_go() {
    let loops = (0..39).fold(PodSpec::new("loops"), |pod, attempt| {
        pod.exited("app", attempt, hours(2) + minutes(u64::from(60 - attempt)))
    });
    let rig = Rig::start(
        nodes::healthy().pod(loops.exited("app", 39, hours(1))),
        json!({}),
    )
    .await;
    let newest = rig.sim.container_id("default/loops/app#39").unwrap();
    let pass = change_before_the_removal(&rig, Rpc::ContainerStatus, async || {
        assert!(rig.sim.change(|node| node.vanish_container(&newest)));
    })
    .await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["skipped"], 39);
    let error = pass["errors"][0].as_str().unwrap_or_default();
    let why = "skipped: the newer record is gone";
    assert!(error.contains(why), "{pass:#}");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn the_newest_is_asked_about_once_and_not_for_each_older_record() {
    let loops = (0..51).fold(PodSpec::new("loops"), |pod, attempt| {
        pod.exited("app", attempt, hours(2) + minutes(u64::from(60 - attempt)))
    });
    let rig = Rig::start(nodes::healthy().pod(loops.running("app", 51)), json!({})).await;
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 50, "{pass:#}");
    // One question for each that goes, and one about the newest; on a busy machine some are asked about again. With a
    // question about the newest for each they would be 100.
    let questions = rig.sim.call_count(Rpc::ContainerStatus) - asked;
    assert!((51..100).contains(&questions), "{questions}");
}

#[tokio::test]
async fn an_older_sandbox_stays_when_the_newest_is_gone_by_the_time_it_would_go() {
    let pod = PodSpec::new("again")
        .without_sandbox()
        .leaked_sandbox(0, hours(3))
        .leaked_sandbox(1, hours(2));
    let rig = Rig::start(nodes::healthy().pod(pod), json!({})).await;
    let newest = rig.sim.sandbox_id("default/again#1").unwrap();
    let pass = change_before_the_removal(&rig, Rpc::PodSandboxStatus, async || {
        assert!(rig.sim.change(|node| node.vanish_sandbox(&newest)));
    })
    .await;
    assert_eq!(pass["targets"]["sandboxes"]["skipped"], 1, "{pass:#}");
    rig.nothing_was_touched();
}

/// Each answer about the older one takes longer than one about the newest holds.
#[tokio::test]
async fn an_older_container_stays_when_the_newest_goes_while_the_runtime_is_slow() {
    let pod = PodSpec::new("loops")
        .exited("app", 0, hours(3))
        .exited("app", 1, hours(2));
    let rig = Rig::start(nodes::healthy().pod(pod), json!({})).await;
    let [older, newest] = ["default/loops/app#0", "default/loops/app#1"]
        .map(|name| rig.sim.container_id(name).unwrap());
    rig.sim.set_status_fault(&older, slow_answer());
    let asked_again = (Rpc::ContainerStatus, 3);
    stays_when_the_newest_goes(&rig, "containers", asked_again, |node| {
        node.vanish_container(&newest)
    })
    .await;
    rig.nothing_was_touched();
}

/// CRI-O: such a container is stopped before its removal.
#[tokio::test]
async fn an_older_created_container_stays_when_the_newest_goes_while_it_is_stopped() {
    let pod = PodSpec::new("slow")
        .created("app", 0, hours(3))
        .running("app", 1);
    let node = nodes::healthy().pod(pod).build();
    let changes = json!({ "policy": { "containers": { "max_per_container": 0 } } });
    let rig = Rig::with(node, Options::cri_o(), changes).await;
    let newest = rig.sim.container_id("default/slow/app#1").unwrap();
    rig.sim.set_fault(Rpc::StopContainer, slow_answer());
    let stopped = (Rpc::StopContainer, 1);
    stays_when_the_newest_goes(&rig, "containers", stopped, |node| {
        node.vanish_container(&newest)
    })
    .await;
    assert_eq!(rig.sim.call_count(Rpc::RemoveContainer), 0);
}

#[tokio::test]
async fn an_older_sandbox_stays_when_the_newest_goes_while_the_runtime_is_slow() {
    let pod = PodSpec::new("again")
        .without_sandbox()
        .leaked_sandbox(0, hours(3))
        .leaked_sandbox(1, hours(2));
    let rig = Rig::start(nodes::healthy().pod(pod), json!({})).await;
    let newest = rig.sim.sandbox_id("default/again#1").unwrap();
    rig.sim.set_fault(Rpc::PodSandboxStatus, slow_answer());
    let both_asked = (Rpc::PodSandboxStatus, 2);
    stays_when_the_newest_goes(&rig, "sandboxes", both_asked, |node| {
        node.vanish_sandbox(&newest)
    })
    .await;
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_container_that_another_client_removes_is_waited_for_and_counts_as_already_gone() {
    let rig = Rig::start(nodes::litter(8), json!({})).await;
    let channel = Endpoint::try_from(rig.sim.endpoint()).unwrap();
    let other = RuntimeServiceClient::new(channel.connect_lazy());
    for number in 0..8 {
        let name = format!("default/old-{number}/app#0");
        let container_id = rig.sim.container_id(&name).unwrap();
        rig.sim.set_removal_fault(&container_id, Fault::hang());
        let mut other = other.clone();
        tokio::spawn(async move {
            let request = RemoveContainerRequest { container_id };
            other.remove_container(request).await.unwrap();
        });
    }
    let calls = |count| rig.sim.call_count(Rpc::RemoveContainer) >= count;
    until_true("the other client is at all of them", || calls(8)).await;
    let id = rig.begin_gc("target=containers").await;
    until_true("the pass came to each of them", || calls(16)).await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["already_gone"], &report["failed"]),
        (&json!(8), &json!(0))
    );
    assert_eq!(pass["errors"], json!([]));
}

#[tokio::test]
async fn a_sandbox_that_another_client_removes_is_waited_for_and_never_quarantined() {
    let changes = json!({ "runtime": { "removal_timeout": "2s" } });
    let rig = Rig::start(nodes::leaks(2), changes).await;
    let [goes, stays] = [0, 1].map(|n| rig.sim.sandbox_id(&format!("default/leak-{n}#0")).unwrap());
    let busy = || Fault::fail(Code::Unknown, "sandbox is already in removing state");
    rig.sim.set_removal_fault(&goes, busy());
    rig.sim.set_removal_fault(&stays, busy());
    let id = rig.begin_gc("target=sandboxes").await;
    until_true("both were tried", || {
        rig.sim.call_count(Rpc::RemovePodSandbox) == 2
    })
    .await;
    assert!(rig.sim.change(|node| node.vanish_sandbox(&goes)));
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let report = &pass["targets"]["sandboxes"];
    let counts = ["already_gone", "skipped", "failed"].map(|count| &report[count]);
    assert_eq!(counts, [&json!(1), &json!(1), &json!(0)]);
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["quarantined_sandboxes"], json!({}));
}

#[tokio::test]
async fn a_created_container_that_starts_after_the_plan_is_skipped() {
    let pod = PodSpec::new("slow")
        .created("app", 0, hours(3))
        .running("app", 1);
    let changes = json!({ "policy": { "containers": { "max_per_container": 0 } } });
    let rig = Rig::start(nodes::healthy().pod(pod), changes).await;
    let id = rig.sim.container_id("default/slow/app#0").unwrap();
    let pass = change_before_the_removal(&rig, Rpc::ContainerStatus, async || {
        assert!(rig.sim.change(|node| node.start_container(&id)));
    })
    .await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["skipped"], 1);
    assert!(rig.removals().is_empty());
    rig.metrics().await.is(
        "crisweep_removals_skipped_total{target=\"containers\"}",
        1.0,
    );
}

/// Two dead records beside a running one.
fn slow() -> PodSpec {
    PodSpec::new("slow")
        .exited("app", 0, hours(4))
        .created("app", 1, hours(3))
        .running("app", 2)
}

fn one_by_one() -> serde_json::Value {
    json!({
        // With a rest the next look comes after the batch, not beside it.
        "gc": { "batch_size": 1, "batch_pause": "1ms" },
        "policy": { "containers": { "min_age": "0s", "max_per_container": 0 } },
    })
}

/// Asserts that one of two planned containers went, and that the other one stayed for this reason.
#[track_caller]
fn one_stayed(pass: &serde_json::Value, why: &str) {
    let report = &pass["targets"]["containers"];
    let counts = ["removed", "skipped", "already_gone"].map(|it| report[it].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(0)], "{pass:#}");
    assert_eq!(pass["outcome"], "partial");
    let why =
        format!("containers: planned objects stay, because a later look keeps them ({why} 1)");
    let errors = pass["errors"].as_array().unwrap();
    assert!(errors.contains(&json!(why)), "{pass:#}");
}

#[tokio::test]
async fn a_container_that_ran_between_two_batches_is_skipped_and_not_called_gone() {
    let rig = Rig::start(nodes::healthy().pod(slow()), one_by_one()).await;
    let id = rig.sim.container_id("default/slow/app#1").unwrap();
    let pass = change_before_the_removal(&rig, Rpc::ContainerStatus, async || {
        assert!(rig.sim.change(|node| node.start_container(&id)));
        assert!(rig.sim.change(|node| node.exit_container(&id, 1)));
    })
    .await;
    one_stayed(&pass, "changed");
    assert!(rig.sim.container(&id).is_some());
}

/// The runtime lists it without its id; which container it is cannot be told.
#[tokio::test]
async fn a_container_whose_row_loses_its_id_between_two_batches_is_skipped_and_not_called_gone() {
    let rig = Rig::start(nodes::healthy().pod(slow()), one_by_one()).await;
    let id = rig.sim.container_id("default/slow/app#1").unwrap();
    let pass = change_before_the_removal(&rig, Rpc::ContainerStatus, async || {
        assert!(
            rig.sim
                .change(|node| node.edit_container(&id, |it| it.row.id.clear()))
        );
    })
    .await;
    one_stayed(&pass, "rows without id");
}

#[tokio::test]
async fn a_sandbox_that_gets_a_container_after_the_plan_is_skipped() {
    let rig = Rig::start(nodes::leaks(1), json!({})).await;
    let sandbox = rig.sim.sandbox_id("default/leak-0#0").unwrap();
    let pass = change_before_the_removal(&rig, Rpc::PodSandboxStatus, async || {
        let created = rig
            .sim
            .change(|node| node.create_container(&sandbox, "late"));
        assert!(created.is_some());
    })
    .await;
    assert_eq!(pass["targets"]["sandboxes"]["skipped"], 1, "{pass:#}");
    assert!(rig.removals().is_empty());
}

#[tokio::test]
async fn a_dead_sandbox_that_holds_a_running_container_stays() {
    let pod = PodSpec::new("headless").running("app", 0).not_ready();
    let rig = Rig::start(nodes::litter(1).pod(pod), json!({})).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed");
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), ["default/old-0#0"]);
    assert_eq!(pass["targets"]["sandboxes"]["kept"]["has-containers"], 1);
}

#[tokio::test]
async fn a_container_in_state_unknown_stays_unless_included_and_is_then_stopped_first() {
    let lost = PodSpec::new("lost").unknown("app", 0, hours(3)).deleted();
    let mut rig = Rig::start(nodes::healthy().pod(lost), json!({})).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "nothing-to-do");
    assert_eq!(pass["targets"]["containers"]["kept"]["state-unknown"], 1);
    rig.configure(&json!({ "policy": { "containers": { "include_unknown": true } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let rpcs: Vec<Rpc> = rig.sim.calls().iter().map(|call| call.rpc).collect();
    assert_eq!(
        rpcs,
        [
            Rpc::StopContainer,
            Rpc::RemoveContainer,
            Rpc::RemovePodSandbox
        ]
    );
}

/// Another client stopped it: how long ago it exited counts anew.
#[tokio::test]
async fn a_container_in_state_unknown_that_exits_after_the_plan_is_skipped() {
    let lost = PodSpec::new("lost").unknown("app", 0, hours(3)).deleted();
    let changes = json!({ "policy": { "containers": { "include_unknown": true } } });
    let rig = Rig::start(nodes::healthy().pod(lost), changes).await;
    let container_id = rig.sim.container_id("default/lost/app#0").unwrap();
    let endpoint = Endpoint::from_shared(rig.sim.endpoint()).unwrap();
    let mut cri = RuntimeServiceClient::new(endpoint.connect().await.unwrap());
    let pass = change_before_the_removal(&rig, Rpc::ContainerStatus, async || {
        let timeout = 0;
        cri.stop_container(StopContainerRequest {
            container_id,
            timeout,
        })
        .await
        .unwrap();
    })
    .await;
    assert_eq!(pass["targets"]["containers"]["skipped"], 1, "{pass:#}");
    assert!(rig.removals().is_empty());
}

#[tokio::test]
async fn a_row_without_an_id_keeps_its_sandbox_and_nothing_else() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let id = rig.sim.container_id("default/old-1/app#0").unwrap();
    assert!(
        rig.sim
            .change(|node| node.edit_container(&id, |it| it.row.id.clear()))
    );
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    let why =
        "rows without the container's or the sandbox's id: 1 (the first: (no id) app#0 in sandbox ";
    assert!(errors.contains(why), "{errors}");
    let mut gone = rig.subjects(Rpc::RemovePodSandbox);
    gone.sort();
    assert_eq!(gone, ["default/old-0#0", "default/old-2#0"]);
    assert_eq!(rig.removals().len(), 4);
    rig.metrics()
        .await
        .is("cri_list_malformed_rows{list=\"containers\"}", 1.0);
}

#[tokio::test]
async fn a_container_that_names_no_sandbox_keeps_those_of_its_pod() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let id = rig.sim.container_id("default/old-1/app#0").unwrap();
    // It cannot be removed, and the list shows no sandbox of its own.
    rig.sim
        .set_removal_fault(&id, Fault::fail(Code::Unknown, "no"));
    assert!(
        rig.sim
            .change(|node| node.edit_container(&id, |it| it.row.pod_sandbox_id.clear()))
    );
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    assert!(errors.contains(&id), "{errors}");
    let mut gone = rig.subjects(Rpc::RemovePodSandbox);
    gone.sort();
    assert_eq!(gone, ["default/old-0#0", "default/old-2#0"]);
    rig.metrics()
        .await
        .is("cri_list_malformed_rows{list=\"containers\"}", 1.0);
}

#[tokio::test]
async fn what_many_looks_keep_is_one_error_and_why_the_pass_ended_another() {
    let created = |number| {
        let pod = PodSpec::new(&format!("slow-{number}"));
        pod.created("app", 0, hours(3)).running("app", 1)
    };
    // Each batch has a look of its own.
    let changes = json!({
        "collect": { "max_age": "0s" },
        "gc": { "batch_size": 1, "batch_pause": "10ms" },
        "policy": { "containers": { "max_per_container": 0 } },
    });
    let rig = Rig::start(nodes::healthy().pods(150, created), changes).await;
    let ids = (0..150).filter_map(|number| {
        rig.sim
            .container_id(&format!("default/slow-{number}/app#0"))
    });
    let mut last = ids.collect::<BTreeSet<String>>().into_iter().rev();
    let id = rig.begin_gc("target=containers").await;
    let of_pass = async |figure: &str| {
        let pass = rig.pass(&id).await;
        pass["targets"]["containers"][figure].as_u64()
    };
    until("it has planned", || async {
        (of_pass("planned").await == Some(150)).then_some(())
    })
    .await;
    for changed in 1..=55 {
        let last = last.next().unwrap();
        assert!(rig.sim.change(|node| node.start_container(&last)));
        until("a look has found it", || async {
            (of_pass("skipped").await >= Some(changed)).then_some(())
        })
        .await;
    }
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    let pass = rig.finished(&id).await;
    let [skipped, cancelled] = pass["errors"].as_array().unwrap().as_slice() else {
        panic!("{pass:#}");
    };
    let why = "containers: planned objects stay, because a later look keeps them (running 55)";
    assert_eq!(skipped, why);
    assert!(cancelled.as_str().unwrap().starts_with("cancelled by"));
}
