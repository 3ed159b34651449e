//! The API server's list of the node's pods.

use std::time::Duration;

use crisweep_sim::{PodSpec, Sim, hours};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LITTER, cleans, fails, never_logged, status};
use crate::support::ca::Ca;
use crate::support::kubelet::{PodServer, Reply};
use crate::support::rig::NODE_NAME;
use crate::support::{Rig, nodes, until};

/// An API server, and the configuration to ask it.
pub(crate) struct ApiServer {
    pub(crate) server: PodServer,
    files: TempDir,
}

impl ApiServer {
    pub(crate) async fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let ca = Ca::new();
        ca.write(&files.path().join("ca.crt"));
        let server = PodServer::secure(&ca, "localhost").await;
        std::fs::write(files.path().join("token"), "account-secret").unwrap();
        server.expect_token("account-secret");
        Self { server, files }
    }

    pub(crate) fn config(&self, source: &str) -> Value {
        json!({
            "pods": {
                "source": source,
                "file": null,
                "api_url": format!("https://{}", self.server.address),
                "api_token_file": self.files.path().join("token"),
                "api_ca_file": self.files.path().join("ca.crt"),
            },
        })
    }

    pub(crate) fn set_answer(&self, pods: &Value) {
        self.server.reply(Reply::json(&pods.to_string()));
    }
}

/// The API server's answer for a simulated node: mirror pods in place of static ones.
pub(crate) fn answer(sim: &Sim) -> Value {
    let mut list: Value = serde_json::from_str(&sim.pods_json()).unwrap();
    list["metadata"]["resourceVersion"] = json!("4711");
    for (number, pod) in list["items"].as_array_mut().unwrap().iter_mut().enumerate() {
        pod["spec"]["nodeName"] = json!(NODE_NAME);
        let metadata = &mut pod["metadata"];
        if metadata["annotations"]["kubernetes.io/config.source"] == "file" {
            let own = metadata["uid"].clone();
            metadata["annotations"]["kubernetes.io/config.mirror"] = own;
            metadata["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
            metadata["ownerReferences"] =
                json!([{ "apiVersion": "v1", "kind": "Node", "name": NODE_NAME }]);
        }
    }
    list
}

/// It is so on every node with this source.
#[tokio::test]
async fn the_page_of_a_node_without_a_problem_shows_none() {
    let api_server = ApiServer::start().await;
    let rig = Rig::start(nodes::litter(2), api_server.config("api-server")).await;
    api_server.set_answer(&answer(&rig.sim));
    let page = until("the pods are known", || async {
        let page = rig.get("/").await.text;
        page.contains("a pass asks the API server itself")
            .then_some(page)
    })
    .await;
    assert!(!page.contains("<p class=\"problem\">"), "{page}");
}

#[tokio::test]
async fn deleted_pods_go_and_static_ones_are_known_by_their_mirrors() {
    let api_server = ApiServer::start().await;
    let node = nodes::litter(LITTER)
        .pod(PodSpec::new("proxy").static_pod().running("app", 0))
        .pod(
            PodSpec::new("unmirrored")
                .static_pod()
                .exited("app", 0, hours(3))
                .deleted(),
        )
        // Its manifest sets its UID, as in some distributions.
        .pod(
            PodSpec::new("named")
                .static_pod()
                .uid("5a17fb5e-0000-4000-8000-000000000001")
                .exited("app", 0, hours(3))
                .deleted(),
        )
        .pod(
            PodSpec::new("manifest")
                .static_pod()
                .exited("app", 0, hours(3)),
        );
    let rig = Rig::start(node, api_server.config("api-server")).await;
    api_server.set_answer(&answer(&rig.sim));
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], LITTER, "{pass:#}");
    let id = rig.sim.container_id("default/manifest/app#0").unwrap();
    let why = rig.get(&format!("/api/v1/explain/{id}")).await.json();
    assert_eq!(why["object"]["pod_state"], "active", "{why:#}");
    let words = why["pod_explanation"].as_str().unwrap();
    assert_eq!(
        words,
        "its pod is active: the API server's watch cache lists it, and the kubelet runs a static pod again"
    );
    // The API server cannot know whether the manifest still exists.
    assert!(rig.sim.container_id("default/unmirrored/app#0").is_some());
    assert!(rig.sim.container_id("default/named/app#0").is_some());
    // A list without a resource version is read from a quorum; one without a limit is one page.
    let line = format!("GET /api/v1/pods?fieldSelector=spec.nodeName%3D{NODE_NAME}");
    for asked in api_server.server.asked() {
        let cached = asked.line.strip_suffix("&resourceVersion=0");
        assert_eq!(cached.unwrap_or(&asked.line), line);
        assert_eq!(
            asked.authorization.as_deref(),
            Some("Bearer account-secret")
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_not_the_nodes_pods_removes_nothing_until_a_good_one_comes() {
    let api_server = ApiServer::start().await;
    let rig = Rig::start(nodes::litter(LITTER), api_server.config("api-server")).await;
    let pods = answer(&rig.sim);
    let with = |pointer: &str, value: Value| {
        let mut pods = pods.clone();
        *pods.pointer_mut(pointer).unwrap() = value;
        Reply::json(&pods.to_string())
    };
    let page = json!({ "continue": "x", "remainingItemCount": 3 });
    for (reply, words) in [
        (Reply::status("401 Unauthorized"), "pods.api_token_file"),
        (
            Reply::status("403 Forbidden"),
            "grant its account list on pods",
        ),
        (Reply::status("404 Not Found"), "that is no API server"),
        (
            Reply::status("429 Too Many Requests"),
            "429 Too Many Requests",
        ),
        (
            Reply::redirect("https://localhost:1/"),
            "redirects are not followed",
        ),
        (with("/metadata", page), "a partial pod list"),
        (with("/kind", json!("Table")), "its kind is \"Table\""),
        (
            with("/items/0/spec/nodeName", json!("node-2")),
            "is on \"node-2\"",
        ),
        (
            with("/items/0/metadata/uid", json!("")),
            "has no metadata.uid",
        ),
    ] {
        api_server.server.reply(reply);
        fails(&rig, words).await;
    }
    api_server.set_answer(&pods);
    cleans(&rig, "api-server").await;
    never_logged(&rig, "account-secret");
}

#[tokio::test]
async fn only_passes_ask_a_quorum_and_one_after_another_not_within_ten_seconds() {
    let api_server = ApiServer::start().await;
    let rig = Rig::start(nodes::litter(LITTER), api_server.config("api-server")).await;
    api_server.set_answer(&answer(&rig.sim));
    let quorum_reads = || {
        let mut asked = api_server.server.asked();
        asked.retain(|asked| !asked.takes_cached());
        asked
    };
    rig.metrics().await;
    assert_eq!(status(&rig).await["from_cache"], true);
    assert_eq!(
        rig.get("/api/v1/plan").await.json()["pods_from_cache"],
        true
    );
    assert_eq!(quorum_reads().len(), 0);
    // Containers, sandboxes and the looks in between: one request, if the pass is short enough.
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert!(!quorum_reads().is_empty());
    let before = quorum_reads().len();
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    let asked = quorum_reads();
    assert!(
        asked.len() > before,
        "a pass never rests on an earlier one's answer"
    );
    for pair in asked.windows(2) {
        let between = pair[1].at - pair[0].at;
        assert!(between >= Duration::from_secs(9), "{between:?}");
    }
}

#[tokio::test]
async fn a_cache_that_lags_behind_is_shown_and_removes_nothing() {
    let api_server = ApiServer::start().await;
    let node = nodes::healthy().pod(PodSpec::new("new").exited("app", 0, hours(3)).not_ready());
    let rig = Rig::start(node, api_server.config("api-server")).await;
    let pods = answer(&rig.sim);
    api_server.set_answer(&pods);
    let mut stale = pods.clone();
    let items = stale["items"].as_array_mut().unwrap();
    items.retain(|pod| pod["metadata"]["name"] != "new");
    assert!(items.len() < pods["items"].as_array().unwrap().len());
    let stale = Reply::json(&stale.to_string());
    api_server.server.reply_from_cache(stale);
    let plan = rig.get("/api/v1/plan?target=containers").await.json();
    assert_eq!(plan["pods_from_cache"], true, "{plan:#}");
    assert_eq!(plan["removals"][0]["reason"], "pod-deleted", "{plan:#}");
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    rig.nothing_was_touched();
}
