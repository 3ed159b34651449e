//! `auto`: the available source.

use serde_json::json;

use super::api_server::{self, ApiServer};
use super::{LITTER, cleans, keeps_all, kubelet_socket, status};
use crate::support::kubelet::PodsSocket;
use crate::support::{Rig, nodes};

#[tokio::test]
async fn the_socket_is_preferred_to_the_api_server_and_noticed_when_it_appears_or_vanishes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let api_server = ApiServer::start().await;
    let mut changes = api_server.config("auto");
    changes["pods"]["kubelet_socket"] = json!(path);
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    api_server.set_answer(&api_server::answer(&rig.sim));
    let before = status(&rig).await;
    assert_eq!(
        (&before["configured"], &before["source"]),
        (&json!("auto"), &json!("api-server"))
    );
    assert_eq!(before["known"], true, "{before:#}");
    let kubelet = PodsSocket::start(&path);
    // It exists, so it is asked, even though the other one knows the pods.
    keeps_all(&rig, "FAILED_PRECONDITION").await;
    assert_eq!(status(&rig).await["source"], "kubelet-socket");
    kubelet.set_answer(kubelet_socket::answer(&rig.sim));
    assert_eq!(status(&rig).await["known"], true);
    std::fs::remove_file(&path).unwrap();
    cleans(&rig, "api-server").await;
    let chosen: Vec<_> = rig
        .logged("pod source")
        .iter()
        .map(|line| line["source"].clone())
        .collect();
    assert_eq!(chosen, ["api-server", "kubelet-socket", "api-server"]);
}

#[tokio::test]
async fn another_source_has_to_settle_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let kubelet = PodsSocket::start(&path);
    let api_server = ApiServer::start().await;
    let mut changes = api_server.config("auto");
    changes["pods"]["kubelet_socket"] = json!(path);
    changes["pods"]["settle"] = json!("1h");
    changes["gc"] = json!({ "deadline": "4s" });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    kubelet.set_answer(kubelet_socket::answer(&rig.sim));
    api_server.set_answer(&api_server::answer(&rig.sim));
    keeps_all(&rig, "pods.settle").await;
    std::fs::remove_file(&path).unwrap();
    keeps_all(&rig, "pods.settle").await;
    assert_eq!(status(&rig).await["source"], "api-server");
}

#[tokio::test]
async fn without_socket_and_api_server_pods_are_unknown_and_the_status_lists_the_places_tried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubelet.sock");
    let changes = json!({ "pods": { "source": "auto", "file": null, "kubelet_socket": path } });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    keeps_all(&rig, "no pod source is configured or found").await;
    let status = status(&rig).await;
    assert_eq!(status["source"], "none");
    let chosen = status["chosen"].as_str().unwrap();
    assert!(
        chosen.contains("kubelet.sock") && chosen.contains("KUBERNETES_SERVICE_HOST"),
        "{chosen}"
    );
    let page = rig.metrics().await;
    assert_eq!(
        page.get(r#"crisweep_collector_success{collector="pods"}"#),
        None
    );
    page.is(
        r#"crisweep_pod_source_info{source="none",state="none"}"#,
        1.0,
    );
}
