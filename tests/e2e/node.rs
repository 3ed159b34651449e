//! The test node itself: checks the assumptions of the other tests.

use std::collections::BTreeMap;
use std::path::Path;

use crisweep_proto::cri::{ContainerState, PodSandboxState};
use serde_json::Value;

use crate::support::cri::Cri;
use crate::support::node::Node;
use crate::support::plan;
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};

async fn container_states(cri: &Cri) -> BTreeMap<String, ContainerState> {
    cri.containers()
        .await
        .iter()
        .map(|row| (row.id.clone(), row.state()))
        .collect()
}

async fn sandbox_states(cri: &Cri) -> BTreeMap<String, PodSandboxState> {
    cri.sandboxes()
        .await
        .iter()
        .map(|row| (row.id.clone(), row.state()))
        .collect()
}

/// Asserts that the runtime lists what was made, in the states that the plan has for it.
pub(crate) async fn is_as_planned(node: &Node, population: &Population) {
    let cri = node.cri().await;
    assert_eq!(container_states(&cri).await, population.container_states());
    assert_eq!(sandbox_states(&cri).await, population.sandbox_states());
}

#[tokio::test]
async fn a_node_is_what_the_other_tests_take_it_for() {
    let mut node = Node::start().await;
    let population = Population::make(&node, plan::handful()).await;
    the_pods_file_knows_every_pod_that_lives(&node, &population).await;
    rows_carry_the_kubelets_labels_and_annotations(&node, &population).await;
    containers_outlive_a_restart_of_containerd(&mut node, &population).await;
    events_name_removed_objects_in_order(&node, &population).await;
    a_node_leaves_nothing_behind(node);
}

async fn the_pods_file_knows_every_pod_that_lives(node: &Node, population: &Population) {
    let file = node.dir().join("pods.json");
    population.write_pods_file(&file);

    let list: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let items = list["items"].as_array().unwrap();
    let phases: BTreeMap<&str, &str> = items
        .iter()
        .map(|item| {
            (
                item["metadata"]["uid"].as_str().unwrap(),
                item["status"]["phase"].as_str().unwrap(),
            )
        })
        .collect();
    let cri = node.cri().await;
    let ready = cri
        .sandboxes()
        .await
        .into_iter()
        .filter(|row| row.state() == PodSandboxState::SandboxReady);
    let running = cri
        .containers()
        .await
        .into_iter()
        .filter(|row| row.state() == ContainerState::ContainerRunning);
    let mut living: Vec<String> = ready
        .map(|row| row.labels["io.kubernetes.pod.uid"].clone())
        .collect();
    living.extend(running.map(|row| row.labels["io.kubernetes.pod.uid"].clone()));
    assert_eq!(living.len(), 4 + 3);
    for uid in living {
        assert_eq!(phases.get(uid.as_str()), Some(&"Running"));
    }
    let missing: Vec<&str> = population
        .pods
        .iter()
        .filter(|pod| !phases.contains_key(pod.plan.uid.as_str()))
        .map(|pod| pod.plan.name.as_str())
        .collect();
    assert_eq!(missing, ["job-0", "foreign"]);
    let finished = phases
        .values()
        .filter(|phase| **phase == "Succeeded")
        .count();
    assert_eq!(finished, 2);
}

async fn rows_carry_the_kubelets_labels_and_annotations(node: &Node, population: &Population) {
    let cri = node.cri().await;

    let rows = cri.containers().await;
    let web = population
        .pods
        .iter()
        .find(|pod| pod.plan.name == "web-0")
        .unwrap();
    let newest = web
        .containers()
        .find(|container| web.is_newest(container))
        .unwrap();
    let row = rows.iter().find(|row| row.id == newest.id).unwrap();
    assert_eq!(row.metadata.as_ref().unwrap().attempt, 4);
    assert_eq!(row.pod_sandbox_id, web.sandboxes[0].id);
    assert_eq!(row.labels["io.kubernetes.pod.uid"], web.plan.uid);
    assert_eq!(row.labels["io.kubernetes.container.name"], "app");
    assert_eq!(row.annotations["io.kubernetes.container.restartCount"], "4");

    let first = cri
        .container_status(&web.sandboxes[0].containers[0].id)
        .await
        .unwrap();
    assert_eq!((first.exit_code, first.reason.as_str()), (3, "Error"));
    assert!(
        first.finished_at >= first.created_at && first.started_at >= first.created_at,
        "{first:?}"
    );
    assert!(
        Path::new(&first.log_path).starts_with(node.log_root()),
        "{first:?}"
    );
    let log = std::fs::read_to_string(&first.log_path).unwrap();
    assert!(log.contains("app 0 ends"), "{log}");
}

async fn containers_outlive_a_restart_of_containerd(node: &mut Node, population: &Population) {
    let events = node.events().await;

    node.pause().await;
    node.resume().await;

    is_as_planned(node, population).await;
    assert_eq!(events.removed(), Vec::<String>::new());
}

fn a_node_leaves_nothing_behind(node: Node) {
    let dir = node.dir().to_owned();
    let parent = node.cgroups().path();
    let group = Path::new("/sys/fs/cgroup/pids").join(parent.trim_start_matches('/'));
    assert!(group.is_dir() || !Path::new("/sys/fs/cgroup/pids").is_dir());

    drop(node);

    assert!(!dir.exists());
    assert!(!group.exists());
    let dir = dir.to_string_lossy().into_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&dir), "{mounts}");
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(!line.contains(&dir), "{line}");
    }
}

async fn events_name_removed_objects_in_order(node: &Node, population: &Population) {
    let events = node.events().await;
    let job = population
        .pods
        .iter()
        .find(|pod| pod.plan.name == "job-0")
        .unwrap();
    let dead: Vec<String> = job
        .containers()
        .map(|container| container.id.clone())
        .collect();

    let cri = node.cri().await;
    for id in &dead {
        cri.remove_container(id).await;
    }

    wait_for("the removals", PATIENCE, || async {
        let removed = events.removed();
        if removed == dead {
            Ok(())
        } else {
            Err(format!("{removed:?}"))
        }
    })
    .await;
}
