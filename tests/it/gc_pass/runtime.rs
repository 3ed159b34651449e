//! A runtime that goes away, comes back, hangs, or returns too much.

use std::path::Path;
use std::time::{Duration, Instant};

use crisweep::runtime::discover::{CRICTL_CONFIG, WELL_KNOWN};
use crisweep_proto::cri::{
    ContainerState, ContainerStatus, ContainerStatusResponse, PodSandboxState, PodSandboxStatus,
    PodSandboxStatusResponse,
};
use crisweep_sim::{Cni, ContainerSpec, Disk, Fault, PodSpec, Rpc, hours};
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::alerts::hook::{asks, pass_of, sent};
use crate::support::service::run;
use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

const SLOW_DISK: Disk = Disk {
    each: Duration::from_millis(30),
    crowding: Duration::ZERO,
};

#[tokio::test]
async fn a_pass_outlives_a_restart_of_the_runtime() {
    let rig = Rig::start(nodes::litter(60), json!({})).await;
    rig.sim.conduct(|it| it.disk = SLOW_DISK);
    let id = rig.begin_gc("").await;
    until_true("the pass is well under way", || rig.removals().len() > 10).await;
    rig.sim.restart().await.unwrap();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    assert_eq!(
        rig.logs(1, "the runtime went away in mid-pass").await.len(),
        1
    );
}

#[tokio::test]
async fn a_pass_whose_runtime_stays_away_ends_partial_and_the_next_one_works() {
    let changes = json!({ "runtime": { "removal_timeout": "1s" } });
    let rig = Rig::start(nodes::litter(60), changes).await;
    rig.sim.conduct(|it| it.disk = SLOW_DISK);
    let id = rig.begin_gc("").await;
    until_true("the pass is well under way", || rig.removals().len() > 4).await;
    rig.sim.stop().await;
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(
        pass["errors"].to_string().contains("the runtime went away"),
        "{pass}"
    );
    rig.get("/-/ready").await.refused(503, "cannot be reached");
    rig.metrics().await.is("cri_up", 0.0);
    assert_eq!(
        rig.get("/api/v1/status").await.json()["runtime"]["up"],
        false
    );
    let during = rig.gc("").await;
    assert_eq!(during["outcome"], "aborted");
    rig.sim.start().unwrap();
    rig.ready().await;
    rig.metrics().await.is("cri_up", 1.0);
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.exited_containers(), 0);
}

#[tokio::test]
async fn an_alert_that_comes_while_the_runtime_is_away_gets_one_pass_more() {
    let changes = json!({ "runtime": { "removal_timeout": "2s" } });
    let rig = Rig::start(nodes::litter(4), changes).await;
    rig.sim.stop().await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["outcome"], "aborted", "{first:#}");
    rig.sim.start().unwrap();
    until("the pass that follows has cleaned", || async {
        (rig.exited_containers() + rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
    let passes = rig.passes().await;
    let follow_up = rig.finished(passes[0]["id"].as_str().unwrap()).await;
    assert_eq!(follow_up["trigger"]["follow_up"], true, "{follow_up:#}");
    assert_eq!(passes.len(), 2, "{passes:#?}");
}

#[tokio::test]
async fn probes_pages_and_status_answer_while_the_runtime_hangs() {
    let rig = Rig::start(nodes::litter(1), json!({ "runtime": { "timeout": "60s" } })).await;
    rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
    for path in [
        "/-/healthy",
        "/-/ready",
        "/api/v1/status",
        "/api/v1/passes",
        "/",
    ] {
        let began = Instant::now();
        let answer = rig.get(path).await;
        assert!(
            began.elapsed() < Duration::from_secs(15),
            "{path}: {began:?}"
        );
        assert!(
            [200, 503].contains(&answer.status),
            "{path}: {}",
            answer.text
        );
    }
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["runtime"]["up"], false, "{status:#}");
    let error = status["look_error"].as_str().unwrap();
    assert!(!error.is_empty());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_hanging_list_of_images_holds_up_no_question_for_the_file_systems() {
    let rig = Rig::start(nodes::litter(1), json!({ "runtime": { "timeout": "60s" } })).await;
    assert_eq!(
        rig.get("/api/v1/plan").await.status,
        200,
        "no look is under way"
    );
    rig.sim.set_fault(Rpc::StreamImages, Fault::hang());
    rig.sim.set_fault(Rpc::ListImages, Fault::hang());
    let before = rig.sim.call_count(Rpc::ImageFsInfo);
    rig.begin_gc("dry_run=true").await;
    let asked = || rig.sim.call_count(Rpc::ImageFsInfo) > before;
    until_true("the file systems are asked for", asked).await;
}

#[tokio::test]
async fn a_runtime_that_is_down_at_the_start_is_waited_for() {
    let rig = Rig::without_runtime(nodes::litter(1), json!({})).await;
    until("it says what is missing", || async {
        let answer = rig.get("/-/ready").await;
        (answer.status == 503 && answer.text.contains("cannot be reached")).then_some(())
    })
    .await;
    assert_eq!(rig.get("/-/healthy").await.status, 200);
    rig.metrics().await.is("cri_up", 0.0);
    assert_eq!(rig.gc("").await["outcome"], "aborted");
    rig.sim.start().unwrap();
    rig.ready().await;
    rig.metrics().await.is("cri_up", 1.0);
    assert_eq!(rig.gc("").await["outcome"], "completed");
}

#[tokio::test]
async fn without_any_runtime_it_ends_with_the_list_of_places_and_a_hint() {
    let output = run(&["--web.listen-address", "127.0.0.1:0", "plan"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut places = WELL_KNOWN.iter().chain([&CRICTL_CONFIG]);
    let has_runtime = places.any(|place| Path::new(place).exists());
    if has_runtime && !said.contains("no container runtime found") {
        println!("skipped: this machine has a container runtime: {said}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in [
        "no container runtime found",
        "/run/containerd/containerd.sock",
        "/run/crio/crio.sock",
        "--runtime-endpoint",
        "crisweep demo",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[tokio::test]
async fn a_list_of_which_no_part_can_be_read_shows_its_size_and_stops_passes() {
    let options = crisweep_sim::Options::not_containerd();
    let rig = Rig::with(nodes::litter(40).build(), options, json!({})).await;
    rig.sim.conduct(|it| it.ignores_filters = true);
    let page = rig.metrics().await;
    let size = page
        .get("cri_list_response_bytes{list=\"containers\"}")
        .unwrap();
    rig.sim.conduct(|it| it.send_limit_bytes = 20_000);
    assert!(size > 20_000.0, "{size}");
    let page = rig.metrics().await;
    page.is("cri_list_response_bytes{list=\"containers\"}", size);
    page.is("cri_list_limit_bytes{list=\"containers\"}", 20_000.0);
    page.is("crisweep_collector_success{collector=\"containers\"}", 0.0);
    page.is("cri_up", 1.0);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "aborted");
    let errors = pass["errors"].to_string();
    let wanted = format!(
        "the list of containers could not be read: ListContainers: an answer of {size} bytes is over the limit of 20000 bytes"
    );
    assert!(errors.contains(&wanted), "{errors}");
    rig.get("/-/ready").await.refused(503, "over the limit");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_broken_stream_is_no_list() {
    let options = crisweep_sim::Options::containerd_2_4();
    let rig = Rig::with(nodes::litter(2).build(), options, json!({})).await;
    rig.metrics()
        .await
        .is("cri_list_mode{list=\"containers\",mode=\"streaming\"}", 1.0);
    let status = tonic::Status::unavailable("error reading from server: EOF");
    rig.sim.conduct(|it| it.stream_break = Some((0, status)));
    assert_eq!(rig.gc("").await["outcome"], "aborted");
    rig.nothing_was_touched();
    rig.sim.conduct(|it| it.stream_break = None);
    assert_eq!(rig.gc("").await["outcome"], "completed");
}

/// It can only be simulated by an error that counts as a lost runtime.
fn runtime_ends() -> Fault {
    Fault::fail(Code::Unavailable, "server is not initialized yet")
}

#[tokio::test]
async fn an_object_during_whose_removal_the_runtime_ends_holds_back_no_other() {
    let rig = Rig::start(nodes::litter(20), json!({})).await;
    let dead = rig.exited_containers();
    let oldest = |pod| rig.sim.container_id(&format!("default/{pod}/app#0"));
    let (bad, worse) = (oldest("old-0").unwrap(), oldest("old-1").unwrap());
    rig.sim.set_removal_fault(&bad, runtime_ends());
    rig.sim.set_removal_fault(&worse, runtime_ends());
    for _ in 0..2 {
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "partial", "{pass:#}");
        assert_eq!(rig.exited_containers(), 2, "of {dead}: {pass:#}");
        let containers = &pass["targets"]["containers"];
        assert_eq!(containers["failed"], 2, "{pass:#}");
        let errors = pass["errors"].to_string();
        let why = "the runtime was away or went away at both tries";
        for id in [&bad, &worse] {
            assert!(errors.contains(id.as_str()), "{errors}");
        }
        assert!(errors.contains(why), "{errors}");
    }
    rig.sim.clear_faults();
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.exited_containers(), 0);
}

#[tokio::test]
async fn a_last_removal_that_a_lost_runtime_left_open_is_in_the_report() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let bad = rig.sim.container_id("default/old-0/app#0").unwrap();
    let fault = runtime_ends().after(Duration::from_secs(3));
    rig.sim.set_removal_fault(&bad, fault);
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    let why = format!("1 removal was open when the runtime went away: containers {bad}");
    assert!(errors.contains(&why), "{errors}");
    assert_eq!(rig.exited_containers(), 1);
}

/// Alertmanager may repeat its alert only after hours.
#[tokio::test]
async fn an_alert_whose_pass_lost_its_last_removals_with_the_runtime_gets_one_pass_more() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let open = rig.sim.container_id("default/old-0/app#0").unwrap();
    let fault = runtime_ends().after(Duration::from_secs(3)).times(1);
    rig.sim.set_removal_fault(&open, fault);
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["outcome"], "partial", "{first:#}");
    until_true("the pass that follows has cleaned", || {
        rig.exited_containers() == 0
    })
    .await;
    assert_eq!(rig.passes().await[0]["trigger"]["follow_up"], true);
}

#[tokio::test]
async fn an_alert_whose_pass_ends_while_the_runtime_is_away_gets_one_pass_more() {
    let changes = json!({ "runtime": { "removal_timeout": "6s" } });
    let rig = Rig::start(nodes::litter(3), changes).await;
    // Each is slow by then.
    let lost = runtime_ends().after(Duration::from_secs(3));
    rig.sim.set_fault(Rpc::RemoveContainer, lost);
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    until_true("all removals are under way", || {
        rig.sim.call_count(Rpc::RemoveContainer) == 3
    })
    .await;
    rig.sim.set_fault(Rpc::ListContainers, runtime_ends());
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["outcome"], "partial", "{first:#}");
    rig.sim.clear_faults();
    until_true("the pass that follows has cleaned", || {
        rig.exited_containers() == 0
    })
    .await;
    assert_eq!(rig.passes().await[0]["trigger"]["follow_up"], true);
}

#[tokio::test]
async fn a_slow_removal_that_a_lost_runtime_left_open_during_the_next_target_is_in_the_report() {
    let node = nodes::litter(1).pods(2, |n| nodes::leaked(n, 2));
    let changes = json!({ "gc": { "batch_size": 1, "batch_pause": "4s" } });
    let rig = Rig::start(node, changes).await;
    let bad = rig.sim.container_id("default/old-0/app#0").unwrap();
    let fault = runtime_ends().after(Duration::from_secs(3));
    rig.sim.set_removal_fault(&bad, fault);
    let pass = rig.gc("target=containers&target=sandboxes").await;
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 2, "{pass:#}");
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let why = format!("1 removal was open when the runtime went away: containers {bad}");
    assert!(pass["errors"].to_string().contains(&why), "{pass:#}");
}

/// A node with so many dead sandboxes, of which the removal of one is lost with the runtime. Once its slow container has
/// gone, sandboxes are planned again.
async fn losing_a_sandbox(pods: usize) -> (Rig, String) {
    let node = nodes::litter(1).pods(pods, |n| nodes::leaked(n, 2));
    let rig = Rig::start(node, json!({})).await;
    let slow = rig.sim.container_id("default/old-0/app#0").unwrap();
    let fault = Fault::slow(Duration::from_secs(4));
    rig.sim.set_removal_fault(&slow, fault);
    let lost = rig.sim.sandbox_id("default/leak-0#0").unwrap();
    let fault = runtime_ends().after(Duration::from_secs(2)).times(1);
    rig.sim.set_removal_fault(&lost, fault);
    (rig, lost)
}

#[tokio::test]
async fn a_slow_sandbox_that_a_lost_runtime_left_open_counts_once_although_it_is_planned_again() {
    let (rig, _) = losing_a_sandbox(1).await;
    let pass = rig.gc("target=containers&target=sandboxes").await;
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["planned"], &pass["outcome"]),
        (&json!(2), &json!("completed")),
        "{pass:#}"
    );
}

/// The runtime carried it out all the same, so the further plan lacks it.
#[tokio::test]
async fn a_slow_sandbox_that_went_although_the_runtime_went_away_hides_no_other() {
    let (rig, lost) = losing_a_sandbox(2).await;
    let stays = rig.sim.sandbox_id("default/leak-1#0").unwrap();
    rig.sim.set_cni(&stays, Cni::failing());
    let id = rig.begin_gc("target=containers&target=sandboxes").await;
    until_true("it is under way", || {
        rig.removals().iter().any(|it| it.id == lost)
    })
    .await;
    assert!(rig.sim.change(|node| node.vanish_sandbox(&lost)));
    let pass = rig.finished(&id).await;
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 1));
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["removed"], &report["failed"], &report["remaining"]),
        (&json!(1), &json!(1), &json!(1)),
        "{pass:#}"
    );
}

/// The runtime went away after it had carried it out, or finishes it after the pass.
#[tokio::test]
async fn a_removal_that_did_not_end_is_none_of_the_rest_where_the_look_after_the_pass_lacks_its_object()
 {
    let ends = runtime_ends().after(Duration::from_secs(3));
    for (fault, deadline) in [(ends, "10m"), (Fault::hang(), "3s")] {
        let changes = json!({ "gc": { "deadline": deadline } });
        let rig = Rig::start(nodes::litter(3), changes).await;
        let open = rig.sim.container_id("default/old-0/app#0").unwrap();
        rig.sim.set_removal_fault(&open, fault);
        let id = rig.begin_gc("target=containers").await;
        until_true("the others are gone", || rig.exited_containers() == 1).await;
        assert!(rig.sim.change(|node| node.vanish_container(&open)));
        let pass = rig.finished(&id).await;
        let report = &pass["targets"]["containers"];
        assert_eq!(
            (&pass["outcome"], &report["removed"], &report["remaining"]),
            (&json!("partial"), &json!(2), &json!(0)),
            "{pass:#}"
        );
    }
}

/// The pass ends at a bound before it has looked again.
#[tokio::test]
async fn a_lost_removal_that_was_carried_out_is_none_of_the_rest_where_a_bound_ends_the_pass() {
    let rig = Rig::start(nodes::litter(20), json!({})).await;
    let open = rig.sim.container_id("default/old-0/app#0").unwrap();
    // Not yet slow, so that the pass waits for it.
    let fault = runtime_ends().after(Duration::from_millis(900));
    rig.sim.set_removal_fault(&open, fault);
    let id = rig.begin_gc("target=containers&max_removals=3").await;
    until_true("the others are gone", || rig.exited_containers() == 18).await;
    assert!(rig.sim.change(|node| node.vanish_container(&open)));
    let pass = rig.finished(&id).await;
    let report = &pass["targets"]["containers"];
    let left = rig.exited_containers();
    assert_eq!(
        (&report["removed"], &report["remaining"]),
        (&json!(2), &json!(left)),
        "{pass:#}"
    );
}

#[tokio::test]
async fn a_sandbox_without_a_time_of_creation_counts_from_when_it_was_first_seen() {
    // containerd 2 lists Go's zero time, which on the wire is 1754.
    let killed = PodSpec::new("killed").without_sandbox();
    let killed = killed.leaked_sandbox(0, hours(272 * 365 * 24)).deleted();
    let changes = json!({ "policy": { "sandboxes": { "min_age": "1s" } } });
    let rig = Rig::start(nodes::healthy().pod(killed), changes).await;
    until("the sandbox is old enough", || async {
        rig.write_pods_again();
        rig.gc("target=sandboxes").await;
        (rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
}

/// containerd was ended while it made the sandbox, and the kubelet had it make another one. It takes the first for the
/// oldest.
#[tokio::test]
async fn a_sandbox_without_a_time_of_creation_is_older_than_one_of_a_higher_attempt() {
    let again = PodSpec::new("again").without_sandbox();
    let again = again.leaked_sandbox(0, hours(272 * 365 * 24));
    let again = again.leaked_sandbox(1, hours(2));
    let changes = json!({ "policy": { "sandboxes": { "min_age": "1s" } } });
    let rig = Rig::start(nodes::healthy().pod(again), changes).await;
    let removed = until("the sandbox is old enough", || async {
        rig.gc("target=sandboxes").await;
        let removed = rig.subjects(Rpc::RemovePodSandbox);
        (!removed.is_empty()).then_some(removed)
    })
    .await;
    assert_eq!(removed, ["default/again#0"]);
}

/// As where containerd finds the shim of a sandbox again at its start: the list has no time, and the status has one.
#[tokio::test]
async fn a_sandbox_whose_status_alone_says_when_it_was_created_goes() {
    let killed = PodSpec::new("killed").without_sandbox();
    let killed = killed.leaked_sandbox(0, hours(272 * 365 * 24)).deleted();
    let changes = json!({ "policy": { "sandboxes": { "min_age": "1s" } } });
    let rig = Rig::start(nodes::healthy().pod(killed), changes).await;
    let id = rig.sim.sandbox_id("default/killed#0").unwrap();
    let status = PodSandboxStatus {
        id,
        state: PodSandboxState::SandboxNotready.into(),
        created_at: 1_700_000_000_000_000_000,
        ..PodSandboxStatus::default()
    };
    let answer = PodSandboxStatusResponse {
        status: Some(status),
        ..PodSandboxStatusResponse::default()
    };
    let answer = Fault::garbage(answer.encode_to_vec());
    rig.sim.set_fault(Rpc::PodSandboxStatus, answer);
    until("the sandbox is old enough", || async {
        rig.write_pods_again();
        rig.gc("target=sandboxes").await;
        (rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_dead_container_without_a_time_of_creation_is_as_old_as_its_status_says() {
    // containerd lists 0 where it could not read the container's status at its start, and the kubelet then stopped it.
    let lost = |pod: &str, container: ContainerSpec| {
        let container = container.created_ago(hours(272 * 365 * 24));
        PodSpec::new(pod)
            .age(hours(2))
            .container(container)
            .deleted()
    };
    let node = nodes::healthy()
        .pod(lost("stopped", ContainerSpec::exited("app", 0, hours(1))))
        .pod(lost("unknown", ContainerSpec::unknown("app", 0, hours(1))));
    let changes = json!({
        "policy": { "containers": { "min_age": "30m", "include_unknown": true } },
        "evidence": { "enabled": true },
    });
    let rig = Rig::start(node, changes).await;
    until("the pods are known to be deleted", || async {
        rig.write_pods_again();
        rig.gc("target=containers&target=sandboxes").await;
        (rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
    assert_eq!(rig.exited_containers(), 0);
    let kept = rig.get("/api/v1/evidence").await.json();
    let kept = kept["evidence"].as_array().unwrap().iter();
    let created = kept.map(|it| it["created_at"].as_str().unwrap());
    let created: Vec<&str> = created.collect();
    assert_eq!(created, ["2023-11-14T22:13:20Z"; 2]);
}

/// The kubelet takes it for the oldest.
#[tokio::test]
async fn a_dead_container_without_a_time_of_creation_is_older_than_what_came_after_it() {
    let exited = ContainerSpec::exited("app", 0, hours(3));
    let unknown = ContainerSpec::unknown("app", 0, hours(3));
    for lost in [exited, unknown] {
        let crash = PodSpec::new("crash")
            .age(hours(4))
            .container(lost.created_ago(hours(272 * 365 * 24)))
            .container(ContainerSpec::exited("app", 1, hours(1)).created_ago(hours(2)))
            .container(ContainerSpec::running("app", 2, hours(1)));
        let changes =
            json!({ "policy": { "containers": { "min_age": "1s", "include_unknown": true } } });
        let rig = Rig::start(nodes::healthy().pod(crash), changes).await;
        let removed = until("the surplus is gone", || async {
            rig.gc("target=containers").await;
            let removed = rig.subjects(Rpc::RemoveContainer);
            (!removed.is_empty()).then_some(removed)
        })
        .await;
        assert_eq!(removed, ["default/crash/app#0"]);
    }
}

/// containerd does not answer about it, and lost it while crisweep ran or before. The pod came back: its attempts count
/// anew.
#[tokio::test]
async fn a_dead_container_whose_creation_was_lost_does_not_pass_for_the_newest() {
    let back = PodSpec::new("back")
        .age(hours(4))
        .container(ContainerSpec::exited("app", 1, hours(3)).created_ago(hours(4)))
        .container(ContainerSpec::exited("app", 0, hours(1)).created_ago(hours(2)));
    let changes = json!({
        "collect": { "max_age": "0s" },
        "policy": { "containers": { "min_age": "1s", "max_per_container": 0 } },
    });
    for is_exit_known in [true, false] {
        let rig = Rig::start(nodes::healthy(), changes.clone()).await;
        rig.sim.add_pod(&back);
        let id = rig.sim.container_id("default/back/app#1").unwrap();
        if is_exit_known {
            until("its exit is known", || async {
                let plan = rig.get("/api/v1/plan").await.json();
                let kept = plan["kept"].as_array().unwrap();
                let is_old = |it: &&Value| it["id"] == *id && it["reason"] == "newest";
                kept.iter().find(is_old).map(drop)
            })
            .await;
        }
        rig.sim
            .set_status_fault(&id, Fault::fail(Code::Unknown, "no"));
        assert!(
            rig.sim
                .change(|node| node.edit_container(&id, |it| it.row.created_at = 0))
        );
        let plan = rig.get("/api/v1/plan").await.json();
        assert_eq!(plan["removals"], json!([]), "{is_exit_known}");
    }
}

/// Neither its list nor its status says when it was created, or when it exited.
#[tokio::test]
async fn a_dead_container_without_any_time_is_newer_than_no_other() {
    let back = PodSpec::new("back")
        .age(hours(4))
        .container(ContainerSpec::exited("app", 1, hours(3)).created_ago(hours(4)))
        .container(ContainerSpec::exited("app", 0, hours(1)).created_ago(hours(2)));
    let changes = json!({
        "policy": { "containers": { "min_age": "1s", "max_per_container": 0 } },
    });
    let rig = Rig::start(nodes::healthy(), changes.clone()).await;
    rig.sim.add_pod(&back);
    let id = rig.sim.container_id("default/back/app#1").unwrap();
    let newest = rig.sim.container_id("default/back/app#0").unwrap();
    rig.sim
        .set_status_fault(&id, Fault::fail(Code::Unknown, "no"));
    until("its exit is known", || async {
        let plan = rig.get("/api/v1/plan").await.json();
        let kept = plan["kept"].as_array().unwrap();
        let is_old = |it: &&Value| it["id"] == *newest && it["reason"] == "newest";
        kept.iter().find(is_old).map(drop)
    })
    .await;
    let status = ContainerStatus {
        id: id.clone(),
        state: ContainerState::ContainerExited.into(),
        ..ContainerStatus::default()
    };
    let answer = ContainerStatusResponse {
        status: Some(status),
        ..ContainerStatusResponse::default()
    };
    rig.sim.clear_faults();
    rig.sim
        .set_fault(Rpc::ContainerStatus, Fault::garbage(answer.encode_to_vec()));
    assert!(
        rig.sim
            .change(|node| node.edit_container(&id, |it| it.row.created_at = 0))
    );
    rig.gc("dry_run=true&target=containers").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let plan = rig.get("/api/v1/plan").await.json();
    assert_eq!(plan["removals"], json!([]));
    // A status that does not say it never will.
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    rig.gc("dry_run=true&target=containers").await;
    rig.gc("dry_run=true&target=containers").await;
    assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), asked);
}
