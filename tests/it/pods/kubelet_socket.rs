//! The kubelet's pods socket.

use std::collections::BTreeMap;

use crisweep::pods::proto::{ListPodsResponse, ObjectMeta, Pod, PodStatus};
use crisweep::sim::Sim;
use serde_json::json;
use tonic::Status;

use super::{LITTER, cleans, fails, keeps_all};
use crate::support::kubelet::{PodsSocket, silent_socket};
use crate::support::{Rig, nodes};

/// What the kubelet of a simulated node says.
pub(super) fn answer(sim: &Sim) -> ListPodsResponse {
    let pods = sim.pods().into_iter().map(|pod| {
        let source = if pod.is_static { "file" } else { "api" };
        let annotation = ("kubernetes.io/config.source".to_owned(), source.to_owned());
        Pod {
            metadata: Some(ObjectMeta {
                name: pod.name,
                namespace: pod.namespace,
                uid: pod.uid,
                annotations: BTreeMap::from([annotation]),
            }),
            status: Some(PodStatus {
                phase: pod.phase.label().to_owned(),
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
    // The file is still there, but nobody listens.
    fails(&rig, "cannot connect to").await;
    let kubelet = PodsSocket::start(&path);
    fails(&rig, "FAILED_PRECONDITION").await;
    let mut nameless = answer(&rig.sim);
    nameless.pods.push(Pod::default());
    kubelet.tell(nameless);
    fails(&rig, "has no metadata.uid").await;
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
    kubelet.tell(answer(&rig.sim));
    drop(kubelet);
    fails(&rig, "cannot connect to").await;
    let kubelet = PodsSocket::start(&path);
    kubelet.tell(answer(&rig.sim));
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
    });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    kubelet.tell(answer(&rig.sim));
    keeps_all(&rig, "pods.settle").await;
    rig.metrics().await.is(
        r#"crisweep_pod_source_info{source="kubelet-socket",state="settling"}"#,
        1.0,
    );
    kubelet.refuse(Status::failed_precondition("starting"));
    fails(&rig, "FAILED_PRECONDITION").await;
    kubelet.tell(answer(&rig.sim));
    keeps_all(&rig, "pods.settle").await;
}
