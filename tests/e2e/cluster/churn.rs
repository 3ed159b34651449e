//! Pods of every kind come, end and go beside passes.

use serde_json::json;

use super::workload::{FOREVER, Workload};
use super::{Site, Source, none_started_twice, only_living_pods_are_left, removals, uids};
use crate::support::cluster::Cluster;
use crate::support::kubelet::StaticPod;

/// Jobs that come and go beside passes.
const ROUNDS: usize = 6;

/// Makes what is there before the first pass.
fn populate(cluster: &Cluster, workload: &Workload) {
    cluster.kubectl("create namespace work");
    cluster.kubectl("create namespace doomed");
    let held = [
        ("held", "Always", FOREVER),
        ("held-done", "Never", "sleep 1"),
    ];
    let held = held.map(|(name, policy, script)| {
        let mut pod = workload.pod(name, policy, script);
        pod["metadata"]["finalizers"] = json!(["crisweep.test/hold"]);
        pod
    });
    let mut objects = vec![
        workload.job("done", "Never", "sleep 1"),
        workload.job("failed", "Never", "sleep 1; exit 3"),
        workload.job("on-failure", "OnFailure", "sleep 1"),
        workload.deployment("alive", 2, FOREVER),
        workload.deployment("crash", 2, "sleep 0.3; exit 1"),
        workload.stateful_set("store", FOREVER),
        workload.pod_with_init("init-alive", "Always", FOREVER),
        workload.pod_with_init("init-done", "Never", "sleep 1"),
        // It ignores SIGTERM, so only a kill ends it.
        workload.pod("forced", "Always", "trap : TERM; while :; do sleep 1; done"),
        workload.pod_with_full_volume("evicted"),
    ];
    objects.extend(held);
    cluster.apply("work", &objects);
    let doomed = [
        workload.job("done", "Never", "sleep 1"),
        workload.deployment("alive", 1, FOREVER),
    ];
    cluster.apply("doomed", &doomed);
    for (name, policy, script) in [
        ("static", "Always", FOREVER),
        ("static-once", "Never", "sleep 1"),
    ] {
        let pod = StaticPod::new(name.to_owned(), policy, script);
        cluster.kubelet().add(&pod);
    }
}

/// Waits until all of it is as it will stay.
async fn populated(cluster: &Cluster) {
    for (object, key, value) in [
        ("pod/init-alive", "phase", json!("Running")),
        ("pod/init-done", "phase", json!("Succeeded")),
        ("pod/forced", "phase", json!("Running")),
        ("pod/held", "phase", json!("Running")),
        ("pod/held-done", "phase", json!("Succeeded")),
        ("pod/store-0", "phase", json!("Running")),
        ("pod/evicted", "reason", json!("Evicted")),
        ("job/done", "succeeded", json!(1)),
        ("job/failed", "failed", json!(1)),
        ("job/on-failure", "succeeded", json!(1)),
        ("deployment/alive", "readyReplicas", json!(2)),
    ] {
        let object = format!("{object} --namespace=work");
        cluster.see(&object, |it| it["status"][key] == value).await;
    }
    cluster.job_is_done("doomed", "done").await;
    cluster.deployment_is_ready("doomed", "alive", 1).await;
    cluster.kubelet().status("static", &["Running"]).await;
    cluster
        .kubelet()
        .status("static-once", &["Succeeded"])
        .await;
}

/// One more Job, one more pod of the `StatefulSet` under the same name, and passes beside them.
async fn round(site: &Site, workload: &Workload, number: usize) {
    let (crisweep, cluster) = (&site.crisweep, &site.cluster);
    let store = "pod/store-0 --namespace=work";
    let name = format!("cron-{number}");
    cluster.apply("work", &[workload.job(&name, "Never", "sleep 0.5")]);
    let old = cluster.try_get(store).unwrap();
    cluster.kubectl(&format!("delete {store}"));
    crisweep.pass("").await;
    cluster.job_is_done("work", &name).await;
    crisweep.pass("").await;
    cluster
        .see(store, |new| {
            new["metadata"]["uid"] != old["metadata"]["uid"] && new["status"]["phase"] == "Running"
        })
        .await;
    // The last ones stay, as a CronJob's history does.
    if let Some(over) = number.checked_sub(2) {
        cluster.kubectl(&format!("delete job cron-{over} --namespace=work"));
    }
    none_started_twice(site, workload);
}

async fn none_runs_twice(source: Source) {
    let cluster = Cluster::start().await;
    let workload = Workload::new(&cluster);
    let pods = source.granted(&cluster, &json!({}));
    if source == Source::Kubelet {
        // A kubelet before 1.33 knows no `nodes/pods`: it asks for what the documents say never to grant.
        cluster.kubectl("create clusterrole old-kubelet --verb=get --resource=nodes/proxy");
        cluster.kubectl(
            "create clusterrolebinding old-kubelet --clusterrole=old-kubelet --serviceaccount=crisweep:crisweep",
        );
    }
    populate(&cluster, &workload);
    populated(&cluster).await;
    let mut site = Site::start(cluster, pods, &json!({})).await;
    let (crisweep, cluster) = (&site.crisweep, &site.cluster);

    // The kubelet itself removes what an evicted pod leaves, once a minute.
    let evicted = cluster.try_get("pod/evicted --namespace=work").unwrap();
    let evicted = evicted["metadata"]["uid"].as_str().unwrap();
    let kept = async || {
        let mut kept = uids(cluster).await;
        kept.remove(evicted);
        kept
    };
    let before = kept().await;
    for _ in 0..2 {
        crisweep.pass("max_dead=200").await;
    }
    assert_eq!(before, kept().await, "finished pods are within the limit");
    for reason in ["pod-deleted", "over-cap"] {
        assert_eq!(removals(crisweep, reason).await, 0, "{reason}");
    }

    cluster.kubectl("delete namespace doomed --wait=false");
    cluster.kubectl("delete pod held held-done --namespace=work --wait=false");
    cluster.kubectl("delete pod forced --namespace=work --wait=false --force --grace-period=0");
    for number in 0..ROUNDS {
        round(&site, &workload, number).await;
    }
    only_living_pods_are_left(&site).await;
    for reason in ["pod-deleted", "superseded", "over-cap"] {
        let count = removals(crisweep, reason).await;
        println!("{reason}: {count}");
        assert!(count > 0, "{reason}");
    }
    let held = cluster.try_get("pod/held --namespace=work").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    cluster.kubectl(
        r#"patch pod held held-done --namespace=work --type=merge --patch={"metadata":{"finalizers":null}}"#,
    );

    // The new kubelet decides from the records that are left.
    site.cluster.restart_kubelet().await;
    site.cluster
        .apply("work", &[workload.job("after", "Never", "true")]);
    site.cluster.job_is_done("work", "after").await;
    only_living_pods_are_left(&site).await;
    none_started_twice(&site, &workload);
}

#[tokio::test]
async fn no_pod_runs_twice_beside_passes_that_ask_the_api_server() {
    none_runs_twice(Source::ApiServer).await;
}

#[tokio::test]
async fn no_pod_runs_twice_beside_passes_that_ask_the_kubelet() {
    none_runs_twice(Source::Kubelet).await;
}
