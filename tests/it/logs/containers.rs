//! The logs of removed containers.

use std::os::unix::fs::symlink;
use std::time::Duration;

use crisweep_proto::cri::{ContainerState, ListContainersResponse};
use crisweep_sim::{ContainerRecord, Fault, Options, PodSpec, Rpc, SEND_LIMIT_BYTES, Sim, hours};
use prost::Message;
use serde_json::{Value, json};
use tokio::process::Command;
use tonic::Code;

use super::tree::{Tree, verdict};
use crate::support::Rig;
use crate::support::rig::{config, no_harm, write};
use crate::support::service::Service;
use crate::support::wait::until_true;

#[tokio::test]
async fn a_removed_containers_log_rotations_and_link_are_removed_with_it() {
    for tree in Tree::both() {
        let node = tree
            .node()
            .pod(
                PodSpec::new("web")
                    .running("app", 3)
                    .exited("app", 2, hours(3)),
            )
            .pod(PodSpec::new("gone").exited("app", 0, hours(3)).deleted())
            .pod(
                PodSpec::new("gone-too")
                    .exited("a", 0, hours(4))
                    .exited("b", 0, hours(3))
                    .deleted(),
            );
        // New orphans must wait, so here only containers' logs are removed.
        let rig = Rig::start(node, tree.config(&json!({ "grace": "1h" }))).await;
        tree.fill(&rig.sim);
        assert_eq!(tree.files().len(), 5 * 4);
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "completed", "{pass:#}");
        let report = &pass["targets"]["logs"];
        assert_eq!(report["reasons"], json!({ "container-removed": 3 }));
        assert_eq!(
            (&report["removed"], &report["failed"]),
            (&json!(3), &json!(0))
        );
        // At least nine files of a block each.
        assert!(
            report["freed_bytes"].as_u64().unwrap() >= 9 * 512,
            "{report}"
        );
        let left = rig.sim.containers();
        assert_eq!(left.len(), 2);
        assert_eq!(tree.files().len(), 2 * 4);
        assert!(
            left.iter()
                .all(|it| tree.has(&it.log_path) && tree.has(&tree.link(it)))
        );
        let again = rig.gc("").await;
        assert_eq!(again["outcome"], "nothing-to-do", "{again:#}");
    }
}

#[tokio::test]
async fn the_logs_of_a_saved_plans_containers_go_with_them_and_no_others() {
    let tree = Tree::plain();
    let gone = |name: &str| PodSpec::new(name).exited("app", 0, hours(3)).deleted();
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let rig = Rig::start(
        node.pod(gone("planned")),
        tree.config(&json!({ "grace": "1h" })),
    )
    .await;
    let plan = rig.post("/api/v1/plans?target=containers").await.json();
    rig.sim.add_pod(&gone("appears"));
    tree.fill(&rig.sim);
    assert_eq!(tree.files().len(), 3 * 4);
    let pass = rig
        .gc(&format!("plan={}", plan["id"].as_str().unwrap()))
        .await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let left = rig.sim.containers();
    assert_eq!((left.len(), tree.files().len()), (2, 2 * 4));
    assert!(
        left.iter()
            .all(|it| tree.has(&it.log_path) && tree.has(&tree.link(it)))
    );
}

/// In a pod of Kubernetes: the log directories belong to root, and so does the state then.
#[tokio::test]
async fn root_without_any_capability_removes_logs() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: capabilities need root");
        return;
    }
    let tree = Tree::plain();
    let node = tree
        .node()
        .pod(PodSpec::new("web").running("app", 0))
        .pod(PodSpec::new("gone").exited("app", 0, hours(3)).deleted());
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        pods_file: Some(dir.path().join("pods.json")),
        ..Options::default()
    };
    let sim = Sim::start(dir.path().join("cri.sock"), node.build(), options).unwrap();
    let changes = tree.config(&json!({ "grace": "1h" }));
    let settings = write(dir.path(), &config(dir.path(), &changes));
    let mut command = Command::new("setpriv");
    command.kill_on_drop(true);
    command.args(["--reuid", "0", "--regid", "0", "--clear-groups"]);
    command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
    command.arg(env!("CARGO_BIN_EXE_crisweep"));
    let service = Service::start_as(command, &settings).await;
    service.ready().await;
    tree.fill(&sim);
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");

    let pass = service.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["removed"], 1, "{pass:#}");
    assert_eq!(tree.files().len(), 4, "only those of the running container");
    let page = service.metrics().await;
    page.is("crisweep_state_write_failures_total", 0.0);
    service.stop().await;
    no_harm(&sim);
}

/// cri-dockerd makes each log a link to Docker's own file, and removes it with the container.
#[tokio::test]
async fn logs_that_are_links_into_dockers_directory_go_with_their_containers_and_docker_keeps_its_files()
 {
    let tree = Tree::plain();
    let node = tree
        .node()
        .pod(PodSpec::new("web").running("app", 0).running("side", 0))
        .pod(PodSpec::new("gone").exited("app", 0, hours(3)).deleted());
    let options = Options::cri_dockerd();
    let rig = Rig::with(
        node.build(),
        options,
        tree.config(&json!({ "grace": "1h" })),
    )
    .await;
    let docker = tempfile::tempdir().unwrap();
    let real = |id: &str| docker.path().join(format!("{id}-json.log"));
    for container in rig.sim.containers() {
        let log = tree.real(&container.log_path);
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        std::fs::write(real(&container.row.id), "{}\n").unwrap();
        symlink(real(&container.row.id), &log).unwrap();
        symlink(&log, tree.real(&tree.link(&container))).unwrap();
    }
    // Docker rotates: the log of a running container may lead nowhere for a moment.
    let side = rig.sim.container_id("default/web/side#0").unwrap();
    std::fs::remove_file(real(&side)).unwrap();
    let gone = rig.sim.container_id("default/gone/app#0").unwrap();
    let dead = tree.dead_link(&format!("x_default_app-{}.log", "a".repeat(64)));

    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let reasons = json!({ "container-removed": 1, "dead-link": 1 });
    assert_eq!(pass["targets"]["logs"]["reasons"], reasons, "{pass:#}");
    assert!(!tree.has(&dead));
    assert!(real(&gone).exists(), "Docker's file");
    let left = rig.sim.containers();
    assert_eq!(left.len(), 2);
    assert!(
        left.iter()
            .all(|it| tree.has(&it.log_path) && tree.has(&tree.link(it)))
    );
    assert_eq!(tree.files().len(), 2 * 2);
}

#[tokio::test]
async fn the_logs_of_a_crash_looper_go_with_its_superseded_containers() {
    let tree = Tree::plain();
    let crash = (0..50).fold(PodSpec::new("crash"), |pod, attempt| {
        pod.exited("app", attempt, hours(60 - u64::from(attempt)))
    });
    let side = PodSpec::new("side")
        .exited("app", 0, hours(3))
        .exited("app", 1, hours(2))
        .running("app", 2)
        .running("proxy", 0);
    let rig = Rig::start(tree.node().pod(crash).pod(side), tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let log_of = |subject: &str| {
        let id = rig.sim.container_id(subject).unwrap();
        rig.sim.container(&id).unwrap().log_path
    };
    let (old, last) = (
        log_of("default/crash/app#0"),
        log_of("default/crash/app#49"),
    );
    // The preview shows it already.
    let plan = rig.get("/api/v1/plan").await.json();
    assert_eq!(verdict(&plan, &old), ("remove", "container-removed".into()));
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let report = &pass["targets"]["logs"];
    assert_eq!(report["reasons"], json!({ "container-removed": 50 }));
    assert_eq!(report["removed"], 50, "{report}");
    assert!(!tree.has(&old) && tree.has(&last));
    // Four files each: of the crash loop's newest container, and of three of the other pod.
    assert_eq!(tree.files().len(), 4 * 4);
}

#[tokio::test]
async fn a_pass_over_containers_alone_removes_their_logs_and_reports_no_other_target() {
    let tree = Tree::plain();
    let crash = (0..5).fold(PodSpec::new("crash"), |pod, attempt| {
        pod.exited("app", attempt, hours(60 - u64::from(attempt)))
    });
    let rig = Rig::start(tree.node().pod(crash), tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let pass = rig.gc("target=containers&max_removals=3").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 3, "{pass:#}");
    assert_eq!(pass["targets"].as_object().unwrap().len(), 1, "{pass:#}");
    assert_eq!(tree.files().len(), 2 * 4);
    rig.metrics().await.is(
        "crisweep_removals_total{target=\"logs\",reason=\"container-removed\"}",
        3.0,
    );
}

#[tokio::test]
async fn logs_go_although_the_look_before_their_containers_went_could_not_read_the_root() {
    let tree = Tree::plain();
    let crash = (0..3).fold(PodSpec::new("crash"), |pod, attempt| {
        pod.exited("app", attempt, hours(60 - u64::from(attempt)))
    });
    let rig = Rig::start(tree.node().pod(crash), tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let root = tree.real(&tree.pods_root());
    let aside = root.with_extension("aside");
    std::fs::rename(&root, &aside).unwrap();
    std::fs::write(&root, "").unwrap();
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    rig.removing().await;
    std::fs::remove_file(&root).unwrap();
    std::fs::rename(&aside, &root).unwrap();
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 2, "{pass:#}");
    assert_eq!(tree.files().len(), 4, "of the newest alone: {pass:#}");
}

#[tokio::test]
async fn the_logs_of_a_batch_go_beside_the_next_batch_and_those_of_the_last_one_alone() {
    let tree = Tree::plain();
    let names = ["a", "b", "c", "d", "e"];
    let gone = names
        .iter()
        .fold(PodSpec::new("gone").deleted(), |pod, name| {
            pod.exited(name, 0, hours(3))
        });
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let mut config = tree.config(&json!({ "grace": "1h" }));
    config["gc"] = json!({ "batch_size": 2 });
    let rig = Rig::start(node.pod(gone), config).await;
    tree.fill(&rig.sim);
    let pass = rig.gc("target=containers&target=logs&max_removals=4").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 4, "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["removed"], 4, "{pass:#}");
    assert_eq!(tree.files().len(), 2 * 4);
    let batches = rig.service.logs(4, "batch begins").await;
    let targets = batches
        .iter()
        .map(|batch| batch["target"].as_str().unwrap());
    assert_eq!(
        targets.collect::<Vec<_>>(),
        ["containers", "containers", "logs", "logs"]
    );
}

/// A node with five old containers, oldest first, and one at a time removed.
async fn five_one_by_one(tree: &Tree, batch_size: u64) -> (Rig, Vec<String>) {
    let oldest_first = [("a", 9), ("b", 8), ("c", 7), ("d", 6), ("e", 5)];
    let gone = oldest_first
        .iter()
        .fold(PodSpec::new("gone").deleted(), |pod, (name, age)| {
            pod.exited(name, 0, hours(*age))
        });
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let mut config = tree.config(&json!({ "grace": "1h" }));
    config["gc"] = json!({ "batch_size": batch_size, "max_concurrency": 1 });
    let rig = Rig::start(node.pod(gone), config).await;
    tree.fill(&rig.sim);
    let records = rig.sim.containers();
    let id = |name: &str| {
        let is_it =
            |it: &&ContainerRecord| it.row.metadata.as_ref().is_some_and(|it| it.name == name);
        records.iter().find(is_it).unwrap().row.id.clone()
    };
    (rig, oldest_first.map(|(name, _)| id(name)).into())
}

/// Restarts the runtime when so many batches have begun and so many containers are left.
async fn lose(rig: &Rig, batches: usize, containers: usize) {
    until_true("the batch begins", || {
        let begun = rig.service.logged("batch begins").len();
        begun >= batches && rig.sim.containers().len() == containers
    })
    .await;
    rig.sim.stop().await;
    rig.sim.clear_faults();
    rig.sim.start().unwrap();
}

#[tokio::test]
async fn logs_that_a_lost_runtime_left_open_go_with_a_later_batch() {
    let tree = Tree::plain();
    let (rig, ids) = five_one_by_one(&tree, 2).await;
    // A removal of the second batch that hangs holds back the logs of the first one.
    rig.sim.set_removal_fault(&ids[2], Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    lose(&rig, 2, 4).await;
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], 5, "{pass:#}");
    assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
}

#[tokio::test]
async fn logs_that_a_lost_runtime_left_open_after_the_last_batch_go_before_the_pass_ends() {
    let tree = Tree::plain();
    let (rig, ids) = five_one_by_one(&tree, 50).await;
    rig.sim.set_removal_fault(&ids[4], Fault::hang());
    let id = rig.begin_gc("target=containers&target=logs").await;
    until_true("four are gone", || rig.sim.containers().len() == 2).await;
    // Now the question before the first log's removal hangs, and holds back the others.
    rig.sim.set_status_fault(&ids[0], Fault::hang());
    rig.sim.clear_removal_fault(&ids[4]);
    lose(&rig, 2, 1).await;
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let logs = &pass["targets"]["logs"];
    assert_eq!(
        (&logs["planned"], &logs["removed"], &logs["remaining"]),
        (&json!(5), &json!(5), &json!(0)),
        "{pass:#}"
    );
    assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
}

#[tokio::test]
async fn logs_of_a_removal_that_was_carried_out_although_the_runtime_went_away_go() {
    let tree = Tree::plain();
    let (rig, ids) = five_one_by_one(&tree, 50).await;
    rig.sim.set_removal_fault(&ids[1], Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    until_true("it is under way", || rig.removals().len() == 2).await;
    assert!(rig.sim.change(|node| node.vanish_container(&ids[1])));
    rig.sim.restart().await.unwrap();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["containers"]["already_gone"], 1, "{pass:#}");
    assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
}

/// The runtime stays away for longer than the pass may wait for it.
#[tokio::test]
async fn logs_that_a_pass_leaves_because_the_runtime_is_away_go_with_the_next_pass() {
    for bound in [
        json!({ "runtime": { "removal_timeout": "2s" } }),
        json!({ "gc": { "deadline": "3s" } }),
    ] {
        let tree = Tree::plain();
        let (mut rig, ids) = five_one_by_one(&tree, 50).await;
        rig.configure(&bound);
        assert_eq!(rig.post("/-/reload").await.status, 200);
        rig.sim.set_removal_fault(&ids[2], Fault::hang());
        let id = rig.begin_gc("target=containers").await;
        until_true("two are gone", || rig.removals().len() == 3).await;
        // The runtime carries out the third as it ends, which no look of the pass shows.
        assert!(rig.sim.change(|node| node.vanish_container(&ids[2])));
        rig.sim.stop().await;
        let pass = rig.finished(&id).await;
        assert_eq!(pass["outcome"], "partial", "{pass:#}");
        assert_eq!(pass["targets"]["containers"]["removed"], 2, "{pass:#}");
        assert_eq!(tree.files().len(), 6 * 4, "{:?}", tree.files());
        rig.sim.clear_faults();
        rig.sim.start().unwrap();
        rig.ready().await;
        assert_eq!(rig.gc("dry_run=true").await["outcome"], "planned");
        assert_eq!(tree.files().len(), 6 * 4, "{:?}", tree.files());
        let pass = rig.gc("target=containers").await;
        assert_eq!(pass["outcome"], "completed", "{pass:#}");
        assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
    }
}

#[tokio::test]
async fn logs_that_a_pass_leaves_because_a_later_look_failed_go_with_the_next_pass() {
    let tree = Tree::plain();
    let (rig, ids) = five_one_by_one(&tree, 2).await;
    rig.sim
        .set_removal_fault(&ids[1], Fault::slow(Duration::from_millis(500)));
    let id = rig.begin_gc("target=containers").await;
    until_true("the second goes", || rig.removals().len() == 2).await;
    let overloaded = Fault::fail(Code::ResourceExhausted, "too many requests");
    rig.sim.set_fault(Rpc::ListContainers, overloaded);
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], 2, "{pass:#}");
    rig.sim.clear_faults();
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
}

/// No look then shows that nothing writes to them.
#[tokio::test]
async fn logs_of_containers_that_went_while_a_list_was_incomplete_go_once_it_is_whole() {
    let tree = Tree::plain();
    let crash = |number| {
        let pod = PodSpec::new(&format!("crash-{number}"));
        (0..3).fold(pod, |pod, attempt| {
            pod.exited("app", attempt, hours(9 - u64::from(attempt)))
        })
    };
    let mut config = tree.config(&json!({}));
    // Use only what lists contain.
    config["policy"]["containers"] = json!({ "age_from": "created" });
    let node = tree.node().pods(5, crash).build();
    let rig = Rig::with(node, Options::not_containerd(), config).await;
    tree.fill(&rig.sim);
    // The records of one pod fit.
    rig.sim.conduct(|it| it.send_limit_bytes = 4_000);
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 10, "{pass:#}");
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    assert!(errors.contains("logs: those of 10 removed containers stay"));
    assert_eq!(tree.files().len(), 15 * 4, "{:?}", tree.files());
    rig.sim.conduct(|it| it.send_limit_bytes = SEND_LIMIT_BYTES);
    // A list that was too long is read whole on a new connection.
    rig.sim.restart().await.unwrap();
    rig.ready().await;
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(tree.files().len(), 5 * 4, "{:?}", tree.files());
}

/// The runtime lists nothing while the last logs go, so it does not say whether something writes to them.
#[tokio::test]
async fn logs_whose_own_question_failed_go_with_the_next_pass() {
    let tree = Tree::plain();
    let (rig, ids) = five_one_by_one(&tree, 50).await;
    rig.sim
        .set_removal_fault(&ids[4], Fault::slow(Duration::from_millis(500)));
    let id = rig.begin_gc("target=containers").await;
    until_true("the last one goes", || rig.removals().len() == 5).await;
    let overloaded = Fault::fail(Code::ResourceExhausted, "too many requests");
    rig.sim.set_fault(Rpc::ListContainers, overloaded);
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(tree.files().len(), 6 * 4, "{pass:#}");
    rig.sim.clear_faults();
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
}

#[tokio::test]
async fn logs_that_a_stop_gives_up_on_a_hung_runtime_go_with_the_next_pass() {
    let tree = Tree::plain();
    let (rig, ids) = five_one_by_one(&tree, 50).await;
    rig.sim
        .set_removal_fault(&ids[4], Fault::slow(Duration::from_millis(500)));
    let id = rig.begin_gc("target=containers").await;
    until_true("the last one goes", || rig.removals().len() == 5).await;
    let lists = rig.sim.call_count(Rpc::ListContainers);
    rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
    until_true("the first log is asked about", || {
        rig.sim.call_count(Rpc::ListContainers) > lists
    })
    .await;
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 5, "{pass:#}");
    assert_eq!(tree.files().len(), 6 * 4, "{pass:#}");
    rig.sim.clear_faults();
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
}

#[tokio::test]
async fn the_log_of_a_container_that_goes_late_while_the_next_pass_asks_about_it_goes() {
    let tree = Tree::plain();
    let (mut rig, ids) = five_one_by_one(&tree, 50).await;
    rig.configure(&json!({ "runtime": { "removal_timeout": "1s" } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    rig.sim.set_removal_fault(&ids[4], Fault::hang());
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["targets"]["containers"]["failed"], 1, "{pass:#}");
    rig.sim.clear_faults();
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    rig.sim
        .set_status_fault(&ids[4], Fault::slow(Duration::from_millis(500)));
    let id = rig.begin_gc("target=containers").await;
    until_true("it is asked about", || {
        rig.sim.call_count(Rpc::ContainerStatus) > asked
    })
    .await;
    // The runtime carries out the removal of the first pass.
    assert!(rig.sim.change(|node| node.vanish_container(&ids[4])));
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["containers"]["already_gone"], 1, "{pass:#}");
    assert_eq!(tree.files().len(), 4, "{:?}", tree.files());
}

/// What is switched on later is not for what went before.
#[tokio::test]
async fn logs_of_a_container_that_went_while_logs_were_off_stay() {
    let tree = Tree::plain();
    let (mut rig, ids) = five_one_by_one(&tree, 50).await;
    let off = json!({ "policy": { "logs": { "enabled": false } }, "gc": { "deadline": "3s" } });
    rig.configure(&off);
    assert_eq!(rig.post("/-/reload").await.status, 200);
    rig.sim.set_removal_fault(&ids[2], Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    until_true("the others are gone", || rig.sim.containers().len() == 2).await;
    // The runtime carries it out, and only the look after the pass shows it.
    assert!(rig.sim.change(|node| node.vanish_container(&ids[2])));
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    rig.sim.clear_faults();
    rig.configure(&json!({ "policy": { "logs": { "enabled": true } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(tree.files().len(), 6 * 4, "{:?}", tree.files());
}

#[tokio::test]
async fn a_pass_that_is_cancelled_takes_the_logs_of_what_it_removed_and_says_what_did_not_begin() {
    let tree = Tree::plain();
    let (rig, ids) = five_one_by_one(&tree, 50).await;
    rig.sim
        .set_removal_fault(&ids[2], Fault::slow(Duration::from_secs(1)));
    let id = rig.begin_gc("target=containers").await;
    until_true("the third goes", || rig.removals().len() == 3).await;
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    let pass = rig.finished(&id).await;
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["removed"], &report["remaining"]),
        (&json!(3), &json!(2)),
        "{pass:#}"
    );
    // Of the one that runs and of two that stay.
    assert_eq!(tree.files().len(), 3 * 4, "{:?}", tree.files());
    let audit = rig.get(&format!("/api/v1/removals?pass={id}")).await.json();
    let of_object = |row: &Value| {
        let field = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (field("target"), field("result"))
    };
    let mut results: Vec<_> = audit["removals"]
        .as_array()
        .unwrap()
        .iter()
        .map(of_object)
        .collect();
    results.sort();
    let rows = |target: &str, result: &str, count| {
        std::iter::repeat_n((target.to_owned(), result.to_owned()), count)
    };
    let expected = rows("containers", "removed", 3)
        .chain(rows("containers", "skipped", 2))
        .chain(rows("logs", "removed", 3));
    assert_eq!(results, expected.collect::<Vec<_>>(), "{audit:#}");
}

#[tokio::test]
async fn at_the_deadline_logs_go_beside_a_removal_that_hangs() {
    let tree = Tree::plain();
    let (mut rig, ids) = five_one_by_one(&tree, 50).await;
    rig.configure(&json!({ "gc": { "deadline": "2s" } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let slow = Fault::slow(Duration::from_millis(700));
    rig.sim.set_fault(Rpc::RemoveContainer, slow);
    rig.sim.set_removal_fault(&ids[2], Fault::hang());
    let pass = rig.gc("target=containers").await;
    let removed = pass["targets"]["containers"]["removed"].as_u64().unwrap();
    assert_ne!(removed, 0, "{pass:#}");
    let left = u64::try_from(tree.files().len()).unwrap();
    assert_eq!(left, (6 - removed) * 4, "{pass:#}");
}

/// The last removals are slow, so their logs follow at the very end.
#[tokio::test]
async fn a_pass_that_is_cancelled_during_its_last_logs_takes_them_all() {
    let tree = Tree::plain();
    let (rig, _ids) = five_one_by_one(&tree, 50).await;
    let slow = Fault::slow(Duration::from_secs(3));
    rig.sim.set_fault(Rpc::RemoveContainer, slow);
    let id = rig.begin_gc("target=containers").await;
    until_true("the first logs go", || tree.files().len() < 6 * 4).await;
    let lists = rig.sim.call_count(Rpc::ListContainers);
    // The question before the first of the last logs hangs, and holds back the others.
    rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
    until_true("the last logs begin", || {
        rig.sim.call_count(Rpc::ListContainers) > lists && rig.sim.containers().len() == 1
    })
    .await;
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 5, "{pass:#}");
    assert_eq!(tree.files().len(), 4, "{pass:#}");
    assert_eq!(pass["errors"], json!([]));
}

#[tokio::test]
async fn logs_that_do_not_exist_are_not_planned() {
    let tree = Tree::plain();
    let gone = PodSpec::new("gone").exited("app", 0, hours(3)).deleted();
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let rig = Rig::start(node.pod(gone), tree.config(&json!({}))).await;
    let dry = rig.gc("dry_run=true").await;
    assert_eq!(dry["targets"]["logs"]["planned"], 0, "{dry:#}");
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["planned"], 0, "{pass:#}");
}

#[tokio::test]
async fn without_a_source_the_lever_takes_the_logs_too() {
    let tree = Tree::plain();
    let mut changes = tree.config(&json!({}));
    changes["pods"] = json!({ "source": "none", "file": null });
    changes["policy"]["containers"] = json!({ "max_dead": 0 });
    changes["policy"]["sandboxes"] = json!({ "max_dead": 0 });
    let over = PodSpec::new("over").exited("app", 0, hours(3)).deleted();
    let rig = Rig::start(tree.node().pod(over), changes).await;
    tree.fill(&rig.sim);
    let pass = rig.gc("assume_finished_after=1h").await;
    // The report names the kept directory.
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    // The directory stays: the pod is not known to be deleted.
    assert_eq!(tree.files().len(), 0);
    assert_eq!(
        pass["targets"]["logs"]["kept"],
        json!({ "pods-unknown": 1 })
    );
}

#[tokio::test]
async fn a_log_elsewhere_is_kept() {
    let tree = Tree::plain();
    let elsewhere = tempfile::tempdir().unwrap();
    let node = tree
        .node()
        .log_root(&elsewhere.path().display().to_string());
    let gone = PodSpec::new("gone").exited("app", 0, hours(3)).deleted();
    let rig = Rig::start(
        node.pod(PodSpec::new("web").running("app", 0)).pod(gone),
        tree.config(&json!({})),
    )
    .await;
    tree.fill(&rig.sim);
    let id = rig.sim.container_id("default/gone/app#0").unwrap();
    let log = rig.sim.container(&id).unwrap().log_path;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["planned"], 0, "{pass:#}");
    assert!(tree.has(&log));
}

#[tokio::test]
async fn only_a_pass_that_was_asked_for_logs_touches_others_than_its_containers() {
    let tree = Tree::plain();
    let gone = PodSpec::new("gone").exited("app", 0, hours(3)).deleted();
    let node = tree
        .node()
        .pod(PodSpec::new("web").running("app", 0))
        .pod(gone);
    let mut rig = Rig::start(node, tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let dead = tree.dead_link(&format!("x_default_app-{}.log", "a".repeat(64)));
    let before = tree.files();
    rig.gc("dry_run=true").await;
    assert_eq!(tree.files(), before);
    rig.gc("target=containers&target=sandboxes").await;
    assert_eq!(rig.exited_containers(), 0);
    assert_eq!(tree.files().len(), before.len() - 4);
    assert!(tree.has(&dead));
    let before = tree.files();
    rig.configure(&json!({ "policy": { "logs": { "enabled": false } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(tree.files(), before);
    rig.configure(&json!({ "policy": { "logs": { "enabled": true } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.gc("target=logs").await;
    // The file does not list pods of every kind.
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(!tree.has(&dead));
}

#[tokio::test]
async fn logs_go_while_the_list_of_all_containers_is_over_the_limit() {
    let tree = Tree::plain();
    let starting = |n| PodSpec::new(&format!("new-{n}")).created("app", 0, hours(2));
    let gone = |n| {
        let pod = PodSpec::new(&format!("gone-{n}"));
        pod.exited("app", 0, hours(3)).deleted()
    };
    let running = |n| PodSpec::new(&format!("web-{n}")).running("app", 0);
    let node = tree.node().pods(8, starting).pods(8, running).pods(3, gone);
    let rig = Rig::start(node, tree.config(&json!({ "grace": "1h" }))).await;
    tree.fill(&rig.sim);
    // What stays is over it, and the containers of each state are not.
    let rows = rig.sim.containers().into_iter().map(|it| it.row);
    let stay = rows.filter(|row| row.state() != ContainerState::ContainerExited);
    let containers = stay.collect();
    let weight = ListContainersResponse { containers }.encoded_len();
    rig.sim.conduct(|it| it.send_limit_bytes = weight - 1);
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 3, "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["removed"], 3, "{pass:#}");
    assert_eq!(tree.files().len(), 16 * 4);
}

#[tokio::test]
async fn a_pod_that_returns_after_its_container_was_removed_keeps_its_log() {
    const UID: &str = "0123456789abcdef0123456789abcdef";
    let tree = Tree::plain();
    let node = tree
        .node()
        .pod(PodSpec::new("etcd").static_pod().running("app", 0))
        .pod(
            PodSpec::new("proxy")
                .static_pod()
                .uid(UID)
                .exited("app", 0, hours(3))
                .deleted(),
        );
    let changes = tree.config(&json!({ "grace": "1h" }));
    let rig = Rig::with(node.build(), Options::containerd_2_4(), changes).await;
    tree.fill(&rig.sim);
    let id = rig.sim.container_id("default/proxy/app#0").unwrap();
    let log = rig.sim.container(&id).unwrap().log_path;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers&target=logs").await;
    until_true("the pass removes the container", || {
        rig.sim.call_count(Rpc::RemoveContainer) > 0
    })
    .await;
    let lists = || rig.sim.call_count(Rpc::StreamContainers);
    let looks = lists();
    rig.sim.set_fault(Rpc::StreamContainers, Fault::hang());
    rig.sim.clear_fault(Rpc::RemoveContainer);
    until_true("the pass asks before it removes the log", || {
        lists() > looks
    })
    .await;
    // The manifest is back: the same UID, attempts from 0, the same file.
    let back = PodSpec::new("proxy").static_pod().uid(UID);
    rig.sim.add_pod(&back.running("app", 0));
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["skipped"], 1, "{pass:#}");
    assert!(tree.has(&log));
}

#[tokio::test]
async fn a_pod_that_returns_while_the_runtime_is_slow_to_say_that_its_container_is_gone_keeps_its_log()
 {
    const UID: &str = "0123456789abcdef0123456789abcdef";
    let tree = Tree::plain();
    let gone = PodSpec::new("proxy").static_pod().uid(UID);
    let node = tree
        .node()
        .pod(PodSpec::new("etcd").static_pod().running("app", 0))
        .pod(gone.exited("app", 0, hours(3)).deleted());
    let rig = Rig::start(node, tree.config(&json!({ "grace": "1h" }))).await;
    tree.fill(&rig.sim);
    let container = rig.sim.container_id("default/proxy/app#0").unwrap();
    let log = rig.sim.container(&container).unwrap().log_path;
    // Its record stays for a moment, so that the list of all containers still has it.
    rig.sim.set_removal_fault(&container, Fault::pretend());
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers&target=logs").await;
    let called = |rpc| rig.sim.call_count(rpc);
    until_true("the pass removes the container", || {
        called(Rpc::RemoveContainer) > 0
    })
    .await;
    let (statuses, lists) = (called(Rpc::ContainerStatus), called(Rpc::ListContainers));
    rig.sim.set_status_fault(&container, Fault::hang());
    rig.sim.clear_fault(Rpc::RemoveContainer);
    until_true("the pass asks about the container in the list", || {
        called(Rpc::ContainerStatus) > statuses && called(Rpc::ListContainers) > lists
    })
    .await;
    let asked = std::time::Instant::now();
    rig.sim.change(|node| node.vanish_container(&container));
    let back = PodSpec::new("proxy").static_pod().uid(UID);
    rig.sim.add_pod(&back.running("app", 0));
    until_true("the list is old", || asked.elapsed().as_millis() > 200).await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["targets"]["logs"]["skipped"], 1, "{pass:#}");
    assert!(tree.has(&log));
}
