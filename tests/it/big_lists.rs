//! Lists over the runtime's message limit: the kubelet cannot read them, but crisweep must.

use std::time::Duration;

use crisweep_proto::cri::{ContainerState, ListContainersResponse, ListPodSandboxResponse};
use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, Sim, hours, seconds};
use prost::Message;
use serde_json::{Value, json};

use crate::support::{Rig, nodes, until};

const DELETED: usize = 60;
const STARTING: usize = 8;

/// Sixty deleted pods, some that start, one that runs.
fn node() -> NodeBuilder {
    let starting = |n| PodSpec::new(&format!("new-{n}")).created("app", 0, hours(2));
    nodes::litter(DELETED).pods(STARTING, starting)
}

fn weigh(sim: &Sim, counts: impl Fn(ContainerState) -> bool) -> usize {
    let rows = sim.containers().into_iter().map(|record| record.row);
    let containers = rows.filter(|row| counts(row.state())).collect();
    ListContainersResponse { containers }.encoded_len()
}

fn weigh_sandboxes(sim: &Sim) -> usize {
    let items = sim.sandboxes().into_iter().map(|record| record.row);
    let items = items.collect();
    ListPodSandboxResponse { items }.encoded_len()
}

fn exited(state: ContainerState) -> bool {
    state == ContainerState::ContainerExited
}

async fn start(node: NodeBuilder, options: Options) -> Rig {
    Rig::with(node.build(), options, json!({})).await
}

/// Asserts how a list is read, whether completely, and its size and limit.
async fn assert_list(rig: &Rig, list: &str, mode: &str, whole: bool, bytes: usize) {
    let page = rig.metrics().await;
    let label = format!("list=\"{list}\"");
    let all_modes = page.sum("cri_list_mode", &label);
    let this_mode = page.get(&format!("cri_list_mode{{{label},mode=\"{mode}\"}}"));
    assert_eq!(
        (this_mode, all_modes),
        (Some(1.0), 1.0),
        "{list} is not {mode}"
    );
    page.is(
        &format!("cri_list_complete{{{label}}}"),
        f64::from(u8::from(whole)),
    );
    let bytes = f64::from(u32::try_from(bytes).unwrap());
    page.is(&format!("cri_list_response_bytes{{{label}}}"), bytes);
}

/// Runs a pass, which must remove every dead container and sandbox, and nothing else.
async fn sweep(rig: &Rig) {
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    for target in ["containers", "sandboxes"] {
        assert_eq!(pass["targets"][target]["removed"], DELETED, "{pass}");
    }
    assert_eq!(rig.exited_containers(), 0);
    let created = rig.sim.count_containers(ContainerState::ContainerCreated);
    let running = rig.sim.count_containers(ContainerState::ContainerRunning);
    assert_eq!((created, running), (STARTING, 1));
    // The next look tries the whole list, now that it fits.
    rig.metrics().await;
    for (list, bytes) in [
        ("containers", weigh(&rig.sim, |_| true)),
        ("sandboxes", weigh_sandboxes(&rig.sim)),
    ] {
        assert_list(rig, list, "unary", true, bytes).await;
    }
}

#[tokio::test]
async fn over_the_limit_in_total_the_node_is_swept_and_lists_work_again() {
    let rig = start(node(), Options::default()).await;
    let bytes = weigh(&rig.sim, |_| true);
    rig.sim.conduct(|it| it.send_limit_bytes = bytes - 1);
    assert_list(&rig, "containers", "per-state", true, bytes).await;
    let limit = f64::from(u32::try_from(bytes - 1).unwrap());
    let page = rig.metrics().await;
    page.is("cri_list_limit_bytes{list=\"containers\"}", limit);
    page.is(
        "crisweep_removable{target=\"containers\",reason=\"pod-deleted\"}",
        60.0,
    );
    sweep(&rig).await;
}

/// The dead alone are over the limit, and one look takes one call more than below it.
#[tokio::test]
async fn a_runtime_that_compresses_shows_everything_in_one_answer() {
    let options = Options {
        gzip: Some(Duration::ZERO),
        ..Options::default()
    };
    let rig = start(node(), options).await;
    rig.sim
        .conduct(|it| it.send_limit_bytes = weigh(&rig.sim, exited) / 2);
    let bytes = weigh(&rig.sim, |_| true);
    assert_list(&rig, "containers", "compressed", true, bytes).await;
    let bytes = weigh_sandboxes(&rig.sim);
    assert_list(&rig, "sandboxes", "compressed", true, bytes).await;
    rig.sim.clear_record();
    let page = rig.metrics().await;
    let limit = f64::from(u32::try_from(weigh(&rig.sim, exited) / 2).unwrap());
    page.is("cri_list_limit_bytes{list=\"containers\"}", limit);
    assert_eq!(rig.sim.call_count(Rpc::ListContainers), 2);
    assert_eq!(rig.sim.call_count(Rpc::ListPodSandbox), 2);
    sweep(&rig).await;
}

#[tokio::test]
async fn exited_ones_over_the_limit_by_themselves_are_swept() {
    let rig = start(node(), Options::default()).await;
    rig.sim
        .conduct(|it| it.send_limit_bytes = weigh(&rig.sim, exited) - 1);
    // The dead sandboxes are heavier and do not fit either: only containerd has their ids.
    let bytes = weigh(&rig.sim, |_| true);
    assert_list(&rig, "containers", "status", true, bytes).await;
    assert_list(&rig, "sandboxes", "status", true, weigh_sandboxes(&rig.sim)).await;
    sweep(&rig).await;
}

#[tokio::test]
async fn with_streams_of_fat_rows_too() {
    let rig = start(node(), Options::containerd_2_4()).await;
    rig.sim
        .conduct(|it| it.send_limit_bytes = weigh(&rig.sim, exited) - 1);
    let bytes = weigh(&rig.sim, |_| true);
    assert_list(&rig, "containers", "status", true, bytes).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["sandboxes"]["removed"], DELETED, "{pass}");
    rig.metrics().await;
    let bytes = weigh(&rig.sim, |_| true);
    assert_list(&rig, "containers", "streaming", true, bytes).await;
}

#[tokio::test]
async fn created_ones_alone_over_the_limit_are_kept() {
    let starting = |n| PodSpec::new(&format!("wait-{n}")).created("app", 0, hours(2));
    let rig = start(nodes::litter(10).pods(100, starting), Options::default()).await;
    let created = |state| state == ContainerState::ContainerCreated;
    rig.sim
        .conduct(|it| it.send_limit_bytes = weigh(&rig.sim, created) - 1);
    let bytes = weigh(&rig.sim, |_| true);
    assert_list(&rig, "containers", "status", true, bytes).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    assert_eq!(pass["targets"]["containers"]["removed"], 10, "{pass}");
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 10, "{pass}");
    assert_eq!(
        rig.sim.count_containers(ContainerState::ContainerCreated),
        100
    );
}

#[tokio::test]
async fn a_list_not_proven_complete_removes_superseded_records_and_those_of_pods_seen_whole() {
    let crash = |n| {
        let pod = PodSpec::new(&format!("crash-{n}"));
        (0..4).fold(pod, |pod, attempt| {
            pod.exited("app", attempt, hours(5 - u64::from(attempt)))
        })
    };
    let node = nodes::litter(10).pods(30, crash);
    let rig = start(node, Options::not_containerd()).await;
    let dead = 10 + 30 * 4;
    assert_eq!(rig.exited_containers(), dead);
    rig.sim
        .conduct(|it| it.send_limit_bytes = weigh(&rig.sim, exited) / 2);
    rig.metrics().await;
    let page = rig.metrics().await;
    page.is("cri_list_complete{list=\"containers\"}", 0.0);
    page.is("cri_list_complete{list=\"sandboxes\"}", 1.0);
    let lists = rig.get("/api/v1/status").await.json()["lists"].clone();
    assert_eq!(lists["containers"]["complete"], false, "{lists:#}");
    assert_eq!(lists["sandboxes"]["complete"], true, "{lists:#}");
    // Three of four attempts are surplus, whatever is missing. Of the deleted pods every record was read. No sandbox is
    // known to be empty.
    let plan = rig.get("/api/v1/plan").await.json();
    let removals = plan["removals"].as_array().unwrap().iter();
    let of = |reason: &str| removals.clone().filter(|it| it["reason"] == reason).count();
    assert_eq!((of("superseded"), of("pod-deleted")), (90, 10));
    assert_eq!(removals.len(), 100);
    // Once they are gone it fits, and the same pass sees everything.
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 100, "{pass}");
    assert_eq!(pass["after"]["complete"], true, "{pass}");
    assert_eq!(rig.exited_containers(), 30);
    assert_eq!(rig.dead_sandboxes(), 0);
    let page = rig.metrics().await;
    page.is("cri_list_complete{list=\"containers\"}", 1.0);
}

/// Sets a limit that the dead objects of both lists exceed.
fn forbid_the_dead(rig: &Rig) {
    let limit = weigh(&rig.sim, exited).min(weigh_sandboxes(&rig.sim) / 2);
    rig.sim.conduct(|it| it.send_limit_bytes = limit / 2);
}

/// Runs a pass to its end, however long it takes on a busy machine, while it makes calls.
async fn gc(rig: &Rig, query: &str) -> Value {
    let calls = || -> u64 { Rpc::ALL.iter().map(|rpc| rig.sim.call_count(*rpc)).sum() };
    let id = rig.begin_gc(query).await;
    loop {
        let before = calls();
        let done = until("the pass goes on", || async {
            let pass = rig.pass(&id).await;
            let is_done = pass["state"] == "done";
            (is_done || calls() > before).then_some((is_done, pass))
        });
        if let (true, pass) = done.await {
            return pass;
        }
    }
}

/// Returns the number of looks; each asks for the runtime's configuration once.
fn looks(rig: &Rig) -> u64 {
    rig.sim.call_count(Rpc::Status)
}

#[tokio::test]
async fn a_pass_removes_all_dead_with_the_last_fallback_and_reads_each_once() {
    // Seven batches, and a look before each.
    const DEAD: u64 = 310;
    let node = nodes::litter(310).build();
    // A look before each batch; a call may take long on a busy machine.
    let patient = json!({ "runtime": { "timeout": "60s" } });
    let rig = Rig::with(node, Options::default(), patient).await;
    forbid_the_dead(&rig);
    rig.sim.clear_record();
    let pass = gc(&rig, "target=containers").await;
    assert_eq!(pass["outcome"], "completed", "{pass}");
    assert_eq!(pass["targets"]["containers"]["removed"], DEAD, "{pass}");
    let looks = looks(&rig);
    assert!(looks >= DEAD / 50, "{looks} looks");
    // Each once because no list shows it, and each container once more right before its removal, or twice where a busy
    // machine took long after the first answer. Once for each look they would be 1,400 and more.
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    assert!(asked <= 3 * DEAD + 100, "{asked} containers");
    let asked = rig.sim.call_count(Rpc::PodSandboxStatus);
    assert!(asked <= DEAD + 100, "{asked} sandboxes");
    // The number of a look's other calls does not grow with the node.
    for (rpc, of_look) in [
        (Rpc::ListContainers, 6),
        (Rpc::ListPodSandbox, 4),
        (Rpc::ContainersListStream, 2),
    ] {
        let asked = rig.sim.call_count(rpc);
        assert!(asked <= of_look * looks, "{asked} {rpc:?} in {looks} looks");
    }
}

#[tokio::test]
async fn superseded_records_are_still_removed_when_looks_are_slow_and_incomplete() {
    let crash = |number| {
        let pod = PodSpec::new(&format!("crash-{number}"));
        (0..12_u32).fold(pod, |pod, attempt| {
            pod.exited("app", attempt, hours(u64::from(15 - attempt)))
        })
    };
    let changes = json!({
        "collect": { "max_age": "10ms" },
        "runtime": { "timeout": "60s" },
        // Use only what lists contain.
        "policy": { "containers": { "age_from": "created" } },
    });
    let node = NodeBuilder::new().pods(100, crash).build();
    let rig = Rig::with(node, Options::not_containerd(), changes).await;
    rig.write_log_directories();
    forbid_the_dead(&rig);
    // No source of all ids, and slow lists per pod.
    let slow = Fault::slow(Duration::from_millis(60));
    rig.sim.set_fault(Rpc::ListContainers, slow);
    rig.sim.clear_record();
    let pass = gc(&rig, "target=containers").await;
    // Eleven of twelve attempts each.
    let removed = 1_100;
    assert_eq!(pass["targets"]["containers"]["removed"], removed, "{pass}");
    let looks = looks(&rig);
    assert!(looks < removed / 50, "{looks} looks");
}

/// `runtime.max_message_bytes` bounds crisweep alone: what is over it is no outage of the kubelet.
#[tokio::test]
async fn a_limit_of_our_own_makes_no_kubelet_blind() {
    let ended = |n| {
        PodSpec::new(&format!("gone-{n}"))
            .exited("app", 0, seconds(5))
            .deleted()
    };
    let node = nodes::healthy().pods(DELETED, ended);
    let changes = json!({
        "runtime": { "max_message_bytes": "24KiB" },
        "pods": { "quiet": "1s" },
        "policy": { "containers": { "min_age": "0s" }, "sandboxes": { "min_age": "0s" } },
    });
    let rig = Rig::start(node, changes).await;
    let page = rig.metrics().await;
    let list = "list=\"containers\"";
    assert!(page.sum("cri_list_response_bytes", list) > f64::from(24 << 10));
    page.is(
        &format!("cri_list_limit_bytes{{{list}}}"),
        f64::from(16 << 20),
    );
    until("pods that were seen over have gone", async || {
        let pass = rig.gc("").await;
        let errors = pass["errors"].to_string();
        assert!(!errors.contains("the kubelet can list"), "{pass:#}");
        (rig.exited_containers() == 0).then_some(())
    })
    .await;
}

/// On CRI-O, where nothing proves that a list in parts is whole, it would stay so for ever.
#[tokio::test]
async fn a_list_over_a_limit_of_our_own_names_the_setting_that_helps() {
    let changes = json!({ "runtime": { "max_message_bytes": "24KiB" } });
    let rig = Rig::with(node().build(), Options::not_containerd(), changes).await;
    let status = rig.get("/api/v1/status").await.json();
    let why = status["lists"]["containers"]["why"].as_str().unwrap();
    assert!(why.contains("runtime.max_message_bytes"), "{why}");
}
