//! Debian 12's kubelet, which `kubelet.sh` builds, with its containers on the node's containerd. Run by `make kubelet`.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep_until};

use crate::big_lists::refused;
use crate::support::crisweep::Crisweep;
use crate::support::kubelet::{Kubelet, StaticPod};
use crate::support::node::Node;
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};

const KIB: usize = 1024;
const FOREVER: &str = "exec sleep 2147483647";
/// The least passes beside changing pods.
const ROUNDS: usize = 40;

async fn crisweep(node: &Node, kubelet: &Kubelet, quiet: &str) -> Crisweep {
    let sections = json!({
        "pods": kubelet.pods_section(quiet),
        "gc": { "batch_pause": "0s" },
        "brakes": { "cooldown": "0s", "max_passes_per_hour": 0 },
    });
    Crisweep::start_with(node, &node.dir().join("none"), sections).await
}

fn pods(name: &str, count: usize, policy: &'static str, script: &'static str) -> Vec<StaticPod> {
    let one = |number| StaticPod::new(format!("{name}-{number}"), policy, script);
    (0..count).map(one).collect()
}

#[tokio::test]
async fn no_pod_runs_twice_and_none_stops_beside_passes() {
    let node = Node::start().await;
    let kubelet = Kubelet::start(&node).await;
    let mut once = pods("once", 4, "Never", "sleep 1");
    once.extend(pods("failed", 2, "Never", "sleep 1; exit 3"));
    once.extend(pods("job", 1, "OnFailure", "sleep 1"));
    once.extend(pods("alive", 2, "Always", FOREVER));
    let mut with_init = pods("init-job", 1, "OnFailure", "sleep 1");
    with_init.extend(pods("init-alive", 2, "Always", FOREVER));
    once.extend(
        with_init
            .into_iter()
            .map(|pod| StaticPod { init: true, ..pod }),
    );
    let mut again = pods("crash", 3, "Always", "sleep 0.3; exit 1");
    let probed = pods("probe", 2, "Always", FOREVER).into_iter();
    again.extend(probed.map(|pod| StaticPod {
        fails_probe: true,
        ..pod
    }));
    for pod in once.iter().chain(&again) {
        kubelet.add(pod);
    }
    for pod in once.iter().chain(&again) {
        kubelet
            .status(&pod.name, &["Running", "Succeeded", "Failed"])
            .await;
    }

    let crisweep = crisweep(&node, &kubelet, "5s").await;
    let mut removed = [0, 0];
    let mut there: Vec<StaticPod> = Vec::new();
    // More of them on a quick machine: a deleted pod's records wait for `quiet`.
    for round in 0..5 * ROUNDS {
        if round >= ROUNDS && removed.iter().all(|count| *count > 0) {
            break;
        }
        let (policy, script) = [("Always", FOREVER), ("Never", "sleep 0.5")][round % 2];
        let pod = StaticPod::new(format!("churn-{round}"), policy, script);
        kubelet.add(&pod);
        kubelet.status(&pod.name, &["Running", "Succeeded"]).await;
        there.push(pod);
        // Not more often: the list of pods counts for little while a pod is gone from it that still runs.
        if round % 10 == 9 {
            kubelet.remove(&there.remove(fastrand::usize(..there.len())).name);
        }
        let pass = crisweep.pass("target=containers&target=sandboxes").await;
        for (sum, target) in removed.iter_mut().zip(["containers", "sandboxes"]) {
            *sum += pass["targets"][target]["removed"].as_u64().unwrap();
        }
    }
    println!("removed {removed:?} containers and sandboxes");
    assert!(removed.iter().all(|count| *count > 0), "{removed:?}");
    for pod in once.iter().chain(&there) {
        let starts = kubelet.starts(&pod.name, "app");
        assert_eq!(starts, 1, "{}\n{}", pod.name, crisweep.log_tail());
        let inits = kubelet.starts(&pod.name, "init");
        assert_eq!(inits, usize::from(pod.init), "{}", pod.name);
    }
    // The kubelet counts restarts from the records that it finds.
    for pod in &again {
        let starts = || async {
            let status = kubelet.status(&pod.name, &["Running"]).await;
            let restarts = status["containerStatuses"][0]["restartCount"].as_u64();
            let starts = kubelet.starts(&pod.name, "app");
            if restarts.map(|count| count + 1) == u64::try_from(starts).ok() && starts > 1 {
                Ok(starts)
            } else {
                Err(format!("{starts} starts, {status}"))
            }
        };
        let starts = wait_for(&pod.name, PATIENCE, starts).await;
        println!("{} started {starts} times", pod.name);
    }
}

/// Static pods that are gone, each with three dead containers of heavy rows and a dead sandbox.
fn deleted() -> Vec<PodPlan> {
    let containers = ["a", "b", "c"].map(|name| (name, 0, End::Exits(0)));
    let pod = |number| {
        let pod = PodPlan::new(number, format!("deleted-{number}"), Known::StaticAbsent);
        pod.sandbox(Fate::Stopped, &containers)
            .with_ballast(300 * KIB)
    };
    (100..120).map(pod).collect()
}

#[tokio::test]
async fn a_kubelet_whose_list_is_too_big_sees_its_pods_again() {
    let node = Node::start().await;
    let kubelet = Kubelet::start(&node).await;
    let mut known = pods("alive", 3, "Always", FOREVER);
    known.extend(pods("once", 2, "Never", "sleep 1"));
    for pod in &known {
        kubelet.add(pod);
    }
    for pod in &known {
        kubelet.status(&pod.name, &["Running", "Succeeded"]).await;
    }
    // Awake it would collect them while they are made.
    kubelet.signal("-STOP");
    let made = Population::make(&node, deleted()).await;
    let made_at = Instant::now();
    let cri = node.cri().await;
    refused(&cri).await;
    kubelet.signal("-CONT");
    wait_for("the kubelet to fail", PATIENCE, || async {
        let log = kubelet.log();
        if log.contains("ResourceExhausted") {
            Ok(())
        } else {
            Err(log.lines().last().unwrap_or_default().to_owned())
        }
    })
    .await;
    let late = StaticPod::new("late".to_owned(), "Always", FOREVER);
    kubelet.add(&late);
    // More than ten times `quiet` before crisweep sees the outage.
    sleep_until(made_at + Duration::from_secs(21)).await;
    // It starts the pod and does not see that it runs.
    kubelet.status("late", &["Pending"]).await;

    let crisweep = crisweep(&node, &kubelet, "2s").await;
    let pass = crisweep.pass("target=containers&target=sandboxes").await;
    if pass["outcome"] != "completed" {
        let plan = crisweep.get("/api/v1/plan").await.unwrap();
        panic!("{pass}\n{}\n{}", plan["kept"], crisweep.log_tail());
    }
    println!("{}", pass["targets"]);
    kubelet.status("late", &["Running"]).await;
    let left: Vec<String> = cri
        .containers()
        .await
        .into_iter()
        .map(|row| row.id)
        .collect();
    assert!(
        made.containers()
            .all(|(_, container)| !left.contains(&container.id))
    );
    for pod in known.iter().chain([&late]) {
        assert_eq!(kubelet.starts(&pod.name, "app"), 1, "{}", pod.name);
    }
}
