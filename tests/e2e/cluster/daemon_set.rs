//! The chart's `DaemonSet` as it is, and `kubectl crisweep`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::workload::{FOREVER, Workload};
use crate::image::{IMAGE, import};
use crate::support::cluster::Cluster;
use crate::support::crisweep::NODE_NAME;
use crate::support::node::here;
use crate::support::wait::{PATIENCE, wait_for};

fn values(cluster: &Cluster) -> Value {
    let dir = cluster.node.dir();
    let (repository, tag) = IMAGE.rsplit_once(':').unwrap();
    json!({
        "image": { "repository": repository, "tag": tag, "pullPolicy": "Never" },
        "runtime": {
            "socketDirectory": dir,
            "socket": "c.sock",
            "filesystems": [dir.join("root/io.containerd.snapshotter.v1.overlayfs")],
        },
        "state": { "hostPath": dir.join("crisweep") },
        "config": {
            "mode": "enforce",
            "policy": {
                "containers": { "min_age": "1s", "max_dead": 0 },
                "sandboxes": { "min_age": "1s", "max_dead": 0 },
            },
            "pods": { "settle": "1s", "quiet": "5s" },
            // The image file system is this machine's, however full.
            "thresholds": { "image_fs_used_percent": 0 },
            "brakes": { "cooldown": "0s" },
            "events": { "enabled": true },
        },
    })
}

/// Runs the plugin as a person does, and returns what it prints.
fn plugin(cluster: &Cluster, words: &str) -> Result<String, String> {
    let kubectl = format!(
        "{} --kubeconfig={}",
        cluster.kubectl.display(),
        cluster.kubeconfig("admin").display()
    );
    let output = Command::new(here().join("../../deploy/kubectl-crisweep"))
        .arg(NODE_NAME)
        .args(words.split(' '))
        .env("KUBECTL", kubectl)
        .env("CRISWEEP", env!("CARGO_BIN_EXE_crisweep"))
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(format!("{words}: {output:?}"))
    }
}

/// Makes a pod of crisweep's that is being deleted: `Running`, without a container. Its finalizer keeps it so.
async fn ends(cluster: &Cluster, workload: &Workload) {
    let mut pod = workload.pod("a-ending", "Always", FOREVER);
    pod["metadata"]["labels"] = json!({ "app.kubernetes.io/name": "crisweep" });
    pod["metadata"]["finalizers"] = json!(["crisweep.test/hold"]);
    cluster.apply("crisweep", &[pod]);
    let pod = "pod/a-ending --namespace=crisweep";
    let runs = |pod: &Value| pod["status"]["phase"] == "Running";
    cluster.see(pod, runs).await;
    cluster.kubectl(&format!("delete {pod} --wait=false"));
    let has_ended = |pod: &Value| {
        let state = &pod["status"]["containerStatuses"][0]["state"];
        runs(pod) && state["running"].is_null()
    };
    cluster.see(pod, has_ended).await;
}

#[tokio::test]
async fn the_daemon_set_sweeps_its_node_and_the_plugin_asks_it() {
    let cluster = Cluster::start().await;
    let workload = Workload::new(&cluster);
    import(&cluster.node).await;
    let chmod = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    // As /run/containerd, which group 0 may enter.
    chmod(cluster.node.dir(), 0o710);
    // Elsewhere it is not below the socket's directory, and has a mount of its own.
    chmod(&cluster.node.dir().join("root"), 0o711);
    cluster.install(&values(&cluster), &[]);
    let set = "daemonset/crisweep --namespace=crisweep";
    let is_ready = |set: &Value| set["status"]["numberReady"] == 1;
    cluster.see(set, is_ready).await;
    workload.alive_and_done(&cluster, 1).await;

    ends(&cluster, &workload).await;
    wait_for("a node whose state is known", PATIENCE, || async {
        let status = plugin(&cluster, "status")?;
        if status.starts_with("OK") {
            Ok(())
        } else {
            Err(status)
        }
    })
    .await;
    wait_for("the job's records to go", PATIENCE, || async {
        let pass = plugin(&cluster, "gc --target=containers --target=sandboxes")?;
        if pass.starts_with("completed") {
            Ok(())
        } else {
            Err(pass)
        }
    })
    .await;
    wait_for("an Event of the pass", PATIENCE, || async {
        let events = cluster.try_get("events")?;
        let events = events["items"].as_array().unwrap();
        let is_there = events
            .iter()
            .any(|event| event["reason"] == "GarbageCollected");
        is_there.then_some(()).ok_or_else(|| format!("{events:?}"))
    })
    .await;
    let starts = workload.starts();
    assert!(starts.values().all(|count| *count == 1), "{starts:?}");
    assert!(is_ready(&cluster.try_get(set).unwrap()));
}
