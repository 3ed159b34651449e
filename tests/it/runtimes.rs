//! CRI-O and cri-dockerd: the program beside simulated runtimes that answer as these do.

use std::time::Duration;

use crisweep_proto::cri::{ListContainersResponse, PodSandboxState};
use crisweep_sim::{
    Cni, ContainerSpec, DEFAULT_IMAGE, Fault, Harm, NodeBuilder, Options, PodSpec, Rpc,
    SANDBOX_IMAGE, hours, seconds,
};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

const IDLE: &str = "registry.example/idle:1";

fn both() -> [Options; 2] {
    [Options::cri_o(), Options::cri_dockerd()]
}

/// Removes every unused image, however full this machine's disk is.
fn prune() -> Value {
    json!({ "policy": { "images": {
        "min_age": "0s",
        "max_age": "1ms",
        "high_threshold_percent": 100,
        "low_threshold_percent": 99,
    } } })
}

#[tokio::test]
async fn a_pass_removes_what_deleted_pods_left_and_nothing_else() {
    for options in both() {
        let runtime = options.runtime_name.clone();
        let node = NodeBuilder::new()
            .pod(
                PodSpec::new("web")
                    .exited("app", 0, hours(4))
                    .exited("app", 1, hours(3))
                    .running("app", 2),
            )
            .pod(PodSpec::new("crash").exited("app", 7, hours(3)))
            .pod(PodSpec::new("host").host_network().running("app", 0))
            .pod(nodes::deleted(0, 1))
            .pod(nodes::leaked(0, 1));
        let rig = Rig::with(node.build(), options, json!({})).await;
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "completed", "{runtime}: {pass:#}");
        let mut left: Vec<String> = rig
            .sim
            .containers()
            .into_iter()
            .map(|it| it.subject)
            .collect();
        left.sort();
        let stay = ["crash/app#7", "host/app#0", "web/app#1", "web/app#2"];
        assert_eq!(left, stay.map(|it| format!("default/{it}")), "{runtime}");
        assert_eq!(rig.dead_sandboxes(), 0, "{runtime}");
        assert_eq!(rig.sim.count_sandboxes(PodSandboxState::SandboxReady), 3);
        assert_eq!(rig.subjects(Rpc::StopPodSandbox).len(), 2, "{runtime}");
        assert_eq!(rig.subjects(Rpc::RemovePodSandbox).len(), 2, "{runtime}");
        let calls = rig.sim.calls();
        assert!(
            calls.iter().all(|it| it.ended.unwrap().code == Code::Ok),
            "{calls:#?}"
        );
        assert_eq!(rig.gc("").await["outcome"], "nothing-to-do", "{runtime}");
    }
}

#[tokio::test]
async fn only_images_that_nothing_names_are_removed() {
    for options in both() {
        let runtime = options.runtime_name.clone();
        let users = PodSpec::new("users")
            .container(ContainerSpec::exited("dead", 0, hours(1)).image("registry.example/dead:1"))
            .container(
                ContainerSpec::running("live", 0, hours(1)).image("registry.example/live:1"),
            );
        let node = NodeBuilder::new()
            .pod(PodSpec::new("web").running("app", 0))
            .pod(users)
            // The configuration names it, too.
            .edit_image(SANDBOX_IMAGE, |it| it.pinned = false)
            .image(IDLE, 4 << 20);
        let rig = Rig::with(node.build(), options, prune()).await;
        let plan = rig.get("/api/v1/plan?target=images").await.json();
        let reason = |tag: &str| {
            let rows = plan["kept"].as_array().unwrap();
            let row = rows.iter().find(|row| row["name"] == tag);
            row.map(|row| row["reason"].clone())
        };
        assert_eq!(
            reason(SANDBOX_IMAGE),
            Some(json!("sandbox-image")),
            "{plan}"
        );
        for tag in [
            "registry.example/dead:1",
            "registry.example/live:1",
            DEFAULT_IMAGE,
        ] {
            assert_eq!(reason(tag), Some(json!("in-use")), "{runtime} {tag}");
        }
        let pass = rig.gc("target=images").await;
        assert_eq!(pass["outcome"], "completed", "{runtime}: {pass:#}");
        assert_eq!(rig.subjects(Rpc::RemoveImage), [IDLE], "{runtime}");
        assert_eq!(rig.sim.image_id(IDLE), None, "{runtime}");
    }
}

#[tokio::test]
async fn an_image_that_a_container_begins_to_use_is_refused_and_counts_as_busy() {
    for options in both() {
        let runtime = options.runtime_name.clone();
        let node = nodes::healthy().image(IDLE, 4 << 20);
        let rig = Rig::with(node.build(), options, prune()).await;
        rig.sim.set_fault(Rpc::RemoveImage, Fault::hang());
        let id = rig.begin_gc("target=images").await;
        rig.removing().await;
        let user = ContainerSpec::created("app", 0, hours(0)).image(IDLE);
        rig.sim.add_pod(&PodSpec::new("late").container(user));
        rig.sim.clear_faults();
        let pass = rig.finished(&id).await;
        assert_eq!(
            pass["targets"]["images"]["failed"], 1,
            "{runtime}: {pass:#}"
        );
        assert!(rig.sim.image_id(IDLE).is_some(), "{runtime}");
        let failures = "crisweep_removal_failures_total{target=\"images\",class=\"busy\"}";
        rig.metrics().await.is(failures, 1.0);
    }
}

/// Both runtimes leave a sandbox whose teardown failed. CRI-O does not try the teardown again.
#[tokio::test]
async fn a_failed_teardown_is_a_network_failure_and_the_sandbox_goes_later() {
    for options in both() {
        let runtime = options.runtime_name.clone();
        let changes = json!({ "quarantine": { "base": "1s", "max": "2s" } });
        let rig = Rig::with(nodes::leaks(1).build(), options, changes).await;
        rig.sim.conduct(|it| it.cni_default = Cni::failing());
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "partial", "{runtime}: {pass:#}");
        let status = rig.get("/api/v1/status").await.json();
        let classes = json!({ "network-teardown": 1 });
        assert_eq!(status["quarantined_sandboxes"], classes, "{runtime}");
        assert_eq!(rig.dead_sandboxes(), 1, "{runtime}");
        if runtime == "docker" {
            rig.sim.heal_cni();
        }
        until("the back-off is over", || async {
            rig.gc("").await;
            (rig.dead_sandboxes() == 0).then_some(())
        })
        .await;
    }
}

/// CRI-O counts a teardown that its caller broke off as done, and the pod's address leaks.
#[tokio::test]
async fn a_pass_that_ends_does_not_break_off_a_teardown() {
    for options in [Options::default(), Options::cri_o()] {
        let runtime = options.runtime_name.clone();
        let changes = json!({ "gc": { "deadline": "1s" } });
        let rig = Rig::with(nodes::leaks(1).build(), options, changes).await;
        rig.sim
            .conduct(|it| it.cni_default = Cni::slow(Duration::from_secs(5)));
        let pass = rig.gc("target=sandboxes").await;
        let errors = pass["errors"].to_string();
        assert!(errors.contains("still under way"), "{runtime}: {pass:#}");
        let tearing_down = || {
            let mut calls = rig.sim.calls().into_iter().rev();
            let wanted = [Rpc::StopPodSandbox, Rpc::RemovePodSandbox];
            calls.find(|it| wanted.contains(&it.rpc)).unwrap().ended
        };
        assert!(tearing_down().is_none(), "{runtime}");
        until_true("the teardown ends", || tearing_down().is_some()).await;
        assert_eq!(tearing_down().unwrap().code, Code::Ok, "{runtime}");
    }
}

/// A removal that a pass gave up while it asked about the sandbox.
#[tokio::test]
async fn no_call_that_removes_begins_after_its_pass() {
    for options in [Options::default(), Options::cri_o()] {
        let runtime = options.runtime_name.clone();
        let changes = json!({ "runtime": { "removal_timeout": "1s", "timeout": "1m" } });
        let rig = Rig::with(nodes::leaks(1).build(), options, changes).await;
        rig.sim.set_fault(Rpc::PodSandboxStatus, Fault::hang());
        let pass = rig.gc("target=sandboxes").await;
        let errors = pass["errors"].to_string();
        assert!(errors.contains("still under way"), "{runtime}: {pass:#}");
        let lists = rig.sim.call_count(Rpc::ListContainers);
        rig.sim.clear_faults();
        until_true("the removal asks for the sandbox's containers", || {
            rig.sim.call_count(Rpc::ListContainers) > lists
        })
        .await;
        // Takes longer than the answer and the next call.
        rig.gc("dry_run=true").await;
        for rpc in [Rpc::StopPodSandbox, Rpc::RemovePodSandbox] {
            assert_eq!(rig.sim.call_count(rpc), 0, "{runtime}: {rpc:?}");
        }
    }
}

/// A removal that a pass gave up in the stop that the runtime had asked for.
#[tokio::test]
async fn no_removal_follows_a_stop_that_ends_after_its_pass() {
    let changes = json!({ "gc": { "deadline": "2s" } });
    let rig = Rig::start(nodes::leaks(1), changes).await;
    let asks = Fault::fail(Code::FailedPrecondition, "sandbox must be stopped first").times(1);
    rig.sim.set_fault(Rpc::RemovePodSandbox, asks);
    rig.sim.set_fault(Rpc::StopPodSandbox, Fault::hang());
    let pass = rig.gc("target=sandboxes").await;
    let errors = pass["errors"].to_string();
    assert!(errors.contains("still under way"), "{pass:#}");
    rig.sim.clear_faults();
    until_true("the stop ends", || {
        let calls = rig.sim.calls().into_iter();
        let mut stops = calls.filter(|it| it.rpc == Rpc::StopPodSandbox);
        stops.any(|it| it.ended.is_some())
    })
    .await;
    // Takes longer than the next call would.
    rig.gc("dry_run=true").await;
    assert_eq!(rig.sim.call_count(Rpc::RemovePodSandbox), 1);
}

/// CRI-O lists when it began to make a container, and the kubelet starts it when it is made.
#[tokio::test]
async fn a_container_that_was_long_in_the_making_has_its_grace_from_then() {
    let pod = PodSpec::new("slow")
        .created("app", 0, hours(1) + seconds(5))
        .running("app", 1);
    let changes = json!({ "policy": { "containers": { "max_per_container": 0 } } });
    let node = nodes::healthy().pod(pod);
    let rig = Rig::with(node.build(), Options::cri_o(), changes).await;
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["targets"]["containers"]["skipped"], 1, "{pass:#}");
    rig.nothing_was_touched();
}

/// CRI-O's removal of such a container takes nearly all the time that it gets, because crun's process ignores SIGTERM.
#[tokio::test]
async fn a_container_that_never_started_is_stopped_before_its_removal_on_cri_o_alone() {
    for options in both() {
        let stops = u64::from(options.runtime_name == "cri-o");
        let pod = PodSpec::new("slow")
            .created("app", 0, hours(3))
            .running("app", 1);
        let changes = json!({ "policy": { "containers": { "max_per_container": 0 } } });
        let node = nodes::healthy().pod(pod);
        let rig = Rig::with(node.build(), options, changes).await;
        let pass = rig.gc("target=containers").await;
        assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
        assert_eq!(rig.sim.call_count(Rpc::StopContainer), stops);
    }
}

/// The stop before a removal takes time, and a cancel then holds the removal back.
#[tokio::test]
async fn a_cancel_between_stop_and_removal_is_told_as_a_cancel() {
    for options in both() {
        let runtime = options.runtime_name.clone();
        let rig = Rig::with(nodes::leaks(1).build(), options, json!({})).await;
        rig.sim.set_fault(Rpc::StopPodSandbox, Fault::hang());
        let id = rig.begin_gc("target=sandboxes").await;
        until_true("the pass stops the sandbox", || {
            rig.sim.call_count(Rpc::StopPodSandbox) > 0
        })
        .await;
        rig.delete(&format!("/api/v1/passes/{id}")).await;
        rig.sim.clear_faults();
        let pass = rig.finished(&id).await;
        assert_eq!(pass["outcome"], "aborted", "{runtime}: {pass:#}");
        let errors = pass["errors"].as_array().unwrap();
        let says = |text: &str| errors.iter().any(|it| it.as_str().unwrap().contains(text));
        assert!(says("cancelled"), "{runtime}: {pass:#}");
        assert!(!says("went away"), "{runtime}: {pass:#}");
        assert_eq!(rig.dead_sandboxes(), 1, "{runtime}");
        assert_eq!(rig.gc("").await["outcome"], "completed", "{runtime}");
    }
}

#[tokio::test]
async fn containers_that_others_remove_are_already_gone() {
    for options in both() {
        let runtime = options.runtime_name.clone();
        for question in [Rpc::ContainerStatus, Rpc::RemoveContainer] {
            let rig = Rig::with(nodes::litter(1).build(), options.clone(), json!({})).await;
            let asked = rig.sim.call_count(question);
            rig.sim.set_fault(question, Fault::hang());
            let id = rig.begin_gc("target=containers").await;
            until_true("the pass asks or removes", || {
                rig.sim.call_count(question) > asked
            })
            .await;
            let dead = rig.sim.container_id("default/old-0/app#0").unwrap();
            assert!(rig.sim.change(|node| node.vanish_container(&dead)));
            rig.sim.clear_faults();
            let pass = rig.finished(&id).await;
            assert_eq!(
                pass["outcome"], "completed",
                "{runtime} {question:?}: {pass:#}"
            );
            let report = &pass["targets"]["containers"];
            // CRI-O calls the removal of a missing container a success.
            let removed = runtime == "cri-o" && question == Rpc::RemoveContainer;
            assert_eq!(report["removed"], u64::from(removed), "{runtime}: {report}");
            assert_eq!(
                report["already_gone"],
                u64::from(!removed),
                "{runtime}: {report}"
            );
        }
    }
}

/// cri-dockerd lists a sandbox whose container is gone by its own note, which has no UID.
#[tokio::test]
async fn a_sandbox_of_which_only_a_note_is_left_stays() {
    let rig = Rig::with(nodes::leaks(2).build(), Options::cri_dockerd(), json!({})).await;
    let note = rig.sim.sandbox_id("default/leak-0#0").unwrap();
    assert!(rig.sim.change(|node| node.leave_note_only(&note)));
    let plan = rig.get("/api/v1/plan?target=sandboxes").await.json();
    let kept = plan["kept"].as_array().unwrap();
    let row = kept.iter().find(|row| row["id"] == note.as_str()).unwrap();
    assert_eq!(row["reason"], "unmanaged", "{row}");
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), ["default/leak-1#0"]);
    assert!(rig.sim.sandbox(&note).is_some());
}

/// Docker has a container whose start failed as created for ever; its status says that it exited when it was created.
#[tokio::test]
async fn containers_whose_start_failed_in_docker_are_removed() {
    let failed = |attempt| ContainerSpec::created("app", attempt, hours(4)).exit_code(127);
    let web = PodSpec::new("web")
        .container(failed(0))
        .container(failed(1))
        .running("app", 2);
    let crash = PodSpec::new("crash").container(failed(7));
    let node = NodeBuilder::new().pod(web).pod(crash);
    let rig = Rig::with(node.build(), Options::cri_dockerd(), json!({})).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.subjects(Rpc::RemoveContainer), ["default/web/app#0"]);
}

/// cri-dockerd lists a container that Docker could not remove as unknown for ever; its status says exited, or created.
#[tokio::test]
async fn dead_containers_of_docker_are_removed_as_unknown_ones() {
    let dead = |attempt, created| ContainerSpec::unknown("app", attempt, created);
    let pod = PodSpec::new("web")
        .container(dead(0, hours(5)))
        .container(dead(1, hours(4)).exit_code(137))
        .exited("app", 2, hours(3))
        .running("app", 3);
    let changes = json!({ "policy": { "containers": { "include_unknown": true } } });
    let node = NodeBuilder::new().pod(pod).build();
    let rig = Rig::with(node, Options::cri_dockerd(), changes).await;
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], 2, "{pass:#}");
}

/// Docker knows no filter for an unknown state, nor any that finds paused or dead containers.
#[tokio::test]
async fn a_list_over_the_limit_of_cri_dockerd_is_read_by_name() {
    let node = nodes::litter(60).build();
    let rig = Rig::with(node, Options::cri_dockerd(), json!({})).await;
    let rows = rig.sim.containers().into_iter().map(|it| it.row).collect();
    let bytes = ListContainersResponse { containers: rows }.encoded_len();
    rig.sim.conduct(|it| it.send_limit_bytes = bytes - 1);
    let page = rig.metrics().await;
    page.is("cri_list_complete{list=\"containers\"}", 0.0);
    // Something that lives may be missing, so what deleted pods left stays.
    assert_eq!(rig.gc("").await["outcome"], "partial");
}

#[tokio::test]
async fn cri_o_streams_more_rows_than_one_message_takes() {
    let many = (0..3_001).fold(PodSpec::new("crash"), |pod, attempt| {
        pod.exited("app", attempt, hours(3))
    });
    let node = NodeBuilder::new().pod(many).build();
    let rig = Rig::with(node, Options::cri_o(), json!({})).await;
    let page = rig.metrics().await;
    page.is("cri_containers{state=\"exited\"}", 3_001.0);
    page.is("cri_list_mode{list=\"containers\",mode=\"streaming\"}", 1.0);
    page.is("cri_list_complete{list=\"containers\"}", 1.0);
}

/// The simulated runtimes do the harm that the real ones would.
#[tokio::test]
async fn a_removal_without_a_stop_loses_the_address_on_cri_dockerd_alone() {
    use crisweep_proto::cri::RemovePodSandboxRequest;
    use crisweep_proto::cri::runtime_service_client::RuntimeServiceClient;
    for options in both() {
        let loses = options.runtime_name == "docker";
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("cri.sock");
        let sim = crisweep_sim::Sim::start(&socket, nodes::leaks(1).build(), options).unwrap();
        let channel = tonic::transport::Endpoint::try_from(sim.endpoint()).unwrap();
        let mut runtime = RuntimeServiceClient::new(channel.connect().await.unwrap());
        let pod_sandbox_id = sim.sandbox_id("default/leak-0#0").unwrap();
        let request = RemovePodSandboxRequest { pod_sandbox_id };
        runtime.remove_pod_sandbox(request).await.unwrap();
        let harmful = sim.harmful_calls();
        let leaks = |call: &&crisweep_sim::Call| call.harms.contains(&Harm::LeakedNetwork);
        let leaks = harmful.iter().filter(leaks).count();
        assert_eq!(leaks, usize::from(loses));
    }
}
