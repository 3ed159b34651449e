//! The kubelet's pods socket.

use std::collections::BTreeMap;

use crisweep_proto::pods::{ListPodsResponse, ObjectMeta, Pod, PodSpec, PodStatus};
use crisweep_sim::{self, NodeBuilder, Sim, hours};
use serde_json::{Value, json};
use tonic::Status;

use super::api_server::{self, ApiServer};
use super::{LITTER, cleans, fails, keeps_all, status};
use crate::support::kubelet::{PodsSocket, silent_socket};
use crate::support::rig::NODE_NAME;
use crate::support::{Rig, nodes};

/// The answer of a simulated node's kubelet.
pub(super) fn answer(sim: &Sim) -> ListPodsResponse {
    let pods = sim.pods().into_iter().map(|pod| {
        let source = if pod.is_static { "file" } else { "api" };
        let annotation = ("kubernetes.io/config.source".to_owned(), source.to_owned());
        Pod {
            metadata: Some(ObjectMeta {
                owner_references: Vec::new(),
                name: pod.name,
                namespace: pod.namespace,
                uid: pod.uid,
                annotations: BTreeMap::from([annotation]),
            }),
            status: Some(PodStatus {
                phase: format!("{:?}", pod.phase),
            }),
            spec: Some(PodSpec {
                node_name: NODE_NAME.to_owned(),
            }),
        }
    });
    ListPodsResponse {
        pods: pods.collect(),
    }
}

#[tokio::test]
async fn deleted_pods_go_once_the_kubelet_is_in_sync() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let changes = json!({
        "runtime": { "timeout": "1s" },
        "pods": { "source": "kubelet-socket", "file": null, "kubelet_socket": path },
    });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    fails(&rig, "cannot connect to").await;
    let silent = silent_socket(&path);
    fails(&rig, "the kubelet's pods socket gave no answer in 1s").await;
    drop(silent);
    // The file still exists, but no process listens.
    fails(&rig, "cannot connect to").await;
    let kubelet = PodsSocket::start(&path);
    fails(&rig, "FAILED_PRECONDITION").await;
    let mut nameless = answer(&rig.sim);
    nameless.pods.push(Pod::default());
    kubelet.set_answer(nameless);
    fails(&rig, "has no metadata.uid").await;
    let mut another_nodes = answer(&rig.sim);
    let spec = &mut another_nodes.pods.last_mut().unwrap().spec;
    spec.as_mut().unwrap().node_name = "node-2".to_owned();
    kubelet.set_answer(another_nodes);
    fails(&rig, "is on \"node-2\"").await;
    for (status, words) in [
        (
            Status::unimplemented("no such service"),
            "use another pods.source",
        ),
        (
            Status::permission_denied("not you"),
            "PermissionDenied: not you",
        ),
    ] {
        kubelet.refuse(status);
        fails(&rig, words).await;
    }
    kubelet.set_answer(answer(&rig.sim));
    drop(kubelet);
    fails(&rig, "cannot connect to").await;
    let kubelet = PodsSocket::start(&path);
    kubelet.set_answer(answer(&rig.sim));
    cleans(&rig, "kubelet-socket").await;
}

#[tokio::test]
async fn out_of_sync_settling_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let kubelet = PodsSocket::start(&path);
    let changes = json!({
        "pods": {
            "source": "kubelet-socket",
            "file": null,
            "kubelet_socket": path,
            "settle": "1h",
        },
        "gc": { "deadline": "4s" },
    });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    kubelet.set_answer(answer(&rig.sim));
    keeps_all(&rig, "pods.settle").await;
    rig.metrics().await.is(
        r#"crisweep_pod_source_info{source="kubelet-socket",state="settling"}"#,
        1.0,
    );
    kubelet.refuse(Status::failed_precondition("starting"));
    fails(&rig, "FAILED_PRECONDITION").await;
    kubelet.set_answer(answer(&rig.sim));
    keeps_all(&rig, "pods.settle").await;
}

/// A finished pod and a living one, and a cap of zero.
fn finished() -> (NodeBuilder, Value) {
    let job = crisweep_sim::PodSpec::new("job");
    let node = nodes::healthy().pod(job.succeeded().exited("app", 0, hours(3)));
    let changes = json!({
        "policy": { "containers": { "max_dead": 0 }, "sandboxes": { "max_dead": 0 } },
    });
    (node, changes)
}

#[tokio::test]
async fn a_pod_is_finished_only_if_the_api_server_confirms_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let kubelet = PodsSocket::start(&path);
    let api_server = ApiServer::start().await;
    let (node, mut changes) = finished();
    changes["pods"] = api_server.config("auto")["pods"].clone();
    changes["pods"]["kubelet_socket"] = json!(path);
    let rig = Rig::start(node, changes).await;
    kubelet.set_answer(answer(&rig.sim));
    let mut running = api_server::answer(&rig.sim);
    for pod in running["items"].as_array_mut().unwrap() {
        pod["status"]["phase"] = json!("Running");
    }
    // The kubelet knows an end that it may forget.
    api_server.set_answer(&running);
    rig.gc("").await;
    assert_eq!(status(&rig).await["source"], "kubelet-socket");
    rig.nothing_was_touched();
    api_server.set_answer(&api_server::answer(&rig.sim));
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 1, "{pass:#}");
}

#[tokio::test]
async fn without_an_api_server_no_pod_of_the_socket_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let kubelet = PodsSocket::start(&path);
    let (node, mut changes) = finished();
    changes["pods"] = json!({ "source": "kubelet-socket", "file": null, "kubelet_socket": path });
    let rig = Rig::start(node, changes).await;
    kubelet.set_answer(answer(&rig.sim));
    rig.gc("").await;
    assert_eq!(status(&rig).await["known"], true);
    rig.nothing_was_touched();
}
