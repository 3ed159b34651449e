//! The API server is away: nothing may be taken for deleted.

use std::fs;

use serde_json::json;

use super::workload::{FOREVER, Workload};
use super::{Site, Source, none_started_twice, only_living_pods_are_left, removals, uids};
use crate::support::cluster::Cluster;
use crate::support::kubelet::StaticPod;
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};

/// Pods that were deleted before the kubelet saw their end: only the runtime has their records.
fn orphans() -> Vec<PodPlan> {
    let pod = |number| {
        let name = format!("orphan-{number}");
        PodPlan::new(number, name, Known::Absent)
            .sandbox(Fate::Stopped, &[("app", 0, End::Exits(0))])
    };
    (0..5).map(pod).collect()
}

#[tokio::test]
async fn nothing_goes_as_deleted_while_the_api_server_is_away() {
    let cluster = Cluster::start().await;
    let workload = Workload::new(&cluster);
    workload.alive_and_done(&cluster, 2).await;
    // A running kubelet would collect the orphans.
    cluster.kubelet().signal("-STOP");
    let made = Population::make(&cluster.node, orphans()).await;
    let pods = Source::KubeletAccount.granted(&cluster, &json!({}));
    let mut site = Site::start(cluster, pods, &json!({})).await;

    site.cluster.signal_api_server("-STOP");
    nothing_goes(&site).await;
    site.cluster.kill_api_server();
    nothing_goes(&site).await;
    site.cluster.start_api_server().await;
    let cri = site.cluster.node.cri().await;
    wait_for("the orphans to go", PATIENCE, || async {
        let pass = site.crisweep.pass("").await;
        let left = cri.containers().await;
        if left
            .iter()
            .any(|row| made.containers().any(|(_, it)| it.id == row.id))
        {
            return Err(pass.to_string());
        }
        Ok(())
    })
    .await;
    assert_eq!(removals(&site.crisweep, "pod-deleted").await, 10);
    site.cluster.kubelet().signal("-CONT");
    none_started_twice(&site, &workload);
}

async fn nothing_goes(site: &Site) {
    let before = uids(&site.cluster).await;
    for _ in 0..3 {
        let pass = site.crisweep.pass("").await;
        assert_eq!(pass["outcome"], "partial", "{pass}");
        println!("{}", pass["errors"]);
    }
    assert_eq!(uids(&site.cluster).await, before);
    assert_eq!(removals(&site.crisweep, "pod-deleted").await, 0);
    assert_eq!(removals(&site.crisweep, "over-cap").await, 0);
}

#[tokio::test]
async fn a_kubelet_that_started_without_the_api_server_says_of_no_pod_that_it_is_deleted() {
    let mut cluster = Cluster::start().await;
    let workload = Workload::new(&cluster);
    let kubelet = cluster.kubelet();
    kubelet.add(&StaticPod::new("static".to_owned(), "Always", FOREVER));
    kubelet.status("static", &["Running"]).await;
    let jobs = ["a", "b", "c"].map(|name| workload.job(name, "Never", "sleep 1"));
    cluster.apply("default", &jobs);
    for job in ["a", "b", "c"] {
        cluster.job_is_done("default", job).await;
    }
    cluster.kill_api_server();
    cluster.restart_open_kubelet().await;
    cluster.kubelet().status("static", &["Running"]).await;
    // This kubelet takes any token.
    fs::write(cluster.node.dir().join("token"), "any").unwrap();
    let pods = cluster.kubelet().pods_section("2s");
    let mut site = Site::start(cluster, pods, &json!({})).await;
    let before = uids(&site.cluster).await;
    for _ in 0..8 {
        let pass = site.crisweep.pass("").await;
        println!("{} {}", pass["outcome"], pass["errors"]);
        assert_eq!(uids(&site.cluster).await, before);
    }
    println!(
        "{}",
        site.crisweep.get("/api/v1/status").await.unwrap()["pods"]
    );
    site.cluster.start_api_server().await;
    only_living_pods_are_left(&site).await;
    assert_eq!(removals(&site.crisweep, "pod-deleted").await, 0);
    none_started_twice(&site, &workload);
}
