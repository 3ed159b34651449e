//! The incident in small: the kubelet cannot list, so its node is not ready, until one pass.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::workload::{FOREVER, Workload};
use super::{Site, Source, none_started_twice};
use crate::big_lists::refused;
use crate::support::cluster::{Cluster, ready_condition};
use crate::support::crisweep::NODE_NAME;
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::Population;
use crate::support::wait::wait_for;

const KIB: usize = 1024;
/// The kubelet says that it cannot list when it could not for three minutes.
const BLIND: Duration = Duration::from_secs(400);

/// Pods that are gone, each with three dead containers of heavy rows and a dead sandbox.
fn deleted() -> Vec<PodPlan> {
    let containers = ["a", "b", "c"].map(|name| (name, 0, End::Exits(0)));
    let pod = |number| {
        let pod = PodPlan::new(number, format!("deleted-{number}"), Known::Absent);
        pod.sandbox(Fate::Stopped, &containers)
            .with_ballast(300 * KIB)
    };
    (100..120).map(pod).collect()
}

#[tokio::test]
async fn one_pass_makes_a_blind_node_ready_again() {
    let cluster = Cluster::start().await;
    let workload = Workload::new(&cluster);
    workload.alive_and_done(&cluster, 2).await;
    // A running kubelet would collect them while they are made.
    cluster.kubelet().signal("-STOP");
    Population::make(&cluster.node, deleted()).await;
    let cri = cluster.node.cri().await;
    refused(&cri).await;
    cluster.kubelet().signal("-CONT");
    let node = format!("node/{NODE_NAME}");
    let message = wait_for("the node to be blind", BLIND, || async {
        let node = cluster.try_get(&node)?;
        let ready = ready_condition(&node);
        let message = ready["message"].as_str().unwrap_or_default();
        if ready["status"] == "False" {
            Ok(message.to_owned())
        } else {
            Err(ready.to_string())
        }
    })
    .await;
    println!("{message}");
    assert!(message.contains("PLEG is not healthy"), "{message}");
    cluster.apply("default", &[workload.deployment("late", 1, FOREVER)]);

    let mut pods = Source::ApiServer.granted(&cluster, &json!({}));
    pods["quiet"] = json!("2s");
    let site = Site::start(cluster, pods, &json!({})).await;
    let began = Instant::now();
    let pass = site
        .crisweep
        .pass("target=containers&target=sandboxes")
        .await;
    println!("{pass}");
    assert_eq!(pass["outcome"], "completed", "{pass}");
    site.cluster.node_is("True").await;
    println!("ready after {:?}", began.elapsed());
    site.cluster.deployment_is_ready("default", "late", 1).await;
    none_started_twice(&site, &workload);
}
