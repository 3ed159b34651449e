//! The kubelet's `/pods`.

use std::path::PathBuf;

use crisweep_sim::{NodeBuilder, Phase, PodSpec, hours};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LITTER, cleans, fails, keeps_all, never_logged, status};
use crate::support::ca::Ca;
use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, nodes, until};

/// A kubelet with a certificate of its name, and the configuration to ask it.
struct Kubelet {
    server: PodServer,
    files: TempDir,
}

impl Kubelet {
    async fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let ca = Ca::new();
        ca.write(&files.path().join("ca.crt"));
        let server = PodServer::secure(&ca, "localhost").await;
        std::fs::write(files.path().join("token"), "first-secret\n").unwrap();
        server.expect_token("first-secret");
        Self { server, files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn config(&self) -> Value {
        json!({
            "runtime": { "timeout": "2s" },
            "pods": {
                "source": "kubelet",
                "file": null,
                "kubelet_url": format!("https://{}", self.server.address),
                "kubelet_token_file": self.file("token"),
                "kubelet_ca_file": self.file("ca.crt"),
            },
        })
    }

    fn set_answer(&self, pods: &str) {
        self.server.reply(Reply::json(pods));
    }
}

#[tokio::test]
async fn deleted_pods_go_and_it_is_asked_for_nothing_but_its_pods() {
    let kubelet = Kubelet::start().await;
    let rig = Rig::start(nodes::litter(LITTER), kubelet.config()).await;
    kubelet.set_answer(&rig.sim.pods_json());
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    let why = rig.get(&format!("/api/v1/explain/{id}")).await.json();
    let why = why["pod_explanation"].as_str().unwrap();
    let words = "its pod is deleted: the kubelet does not list it, ";
    assert!(why.starts_with(words), "{why}");
    cleans(&rig, "kubelet").await;
    for asked in kubelet.server.asked() {
        assert_eq!(asked.line, "GET /pods");
        assert_eq!(asked.authorization.as_deref(), Some("Bearer first-secret"));
    }
}

#[tokio::test]
async fn an_answer_that_is_no_pod_list_removes_nothing_until_a_good_one_comes() {
    let kubelet = Kubelet::start().await;
    let rig = Rig::start(nodes::litter(LITTER), kubelet.config()).await;
    let pods = rig.sim.pods_json();
    let elsewhere = PodServer::plain().await;
    elsewhere.reply(Reply::json(&pods));
    let to = format!("http://{}/pods", elsewhere.address);
    let page = pods.replacen(r#""metadata":{}"#, r#""metadata":{"continue":"x"}"#, 1);
    assert_ne!(page, pods);
    for (reply, words) in [
        (Reply::json("\u{1}\u{2}garbage"), "not a pod list"),
        (Reply::json(&pods[..pods.len() - 1]), "not a pod list"),
        (Reply::json("{}"), "not a pod list"),
        (Reply::json(r#"{"items":[]}"#), "its kind is \"\""),
        (
            Reply::json(r#"{"kind":"NodeList","items":[]}"#),
            "its kind is \"NodeList\"",
        ),
        (
            Reply::json(r#"{"kind":"Status","code":403}"#),
            "not a pod list",
        ),
        (Reply::json(&page), "a partial pod list"),
        (
            Reply::of("200 OK", "text/html", "<html>login</html>"),
            "not a pod list",
        ),
        (Reply::of("204 No Content", "application/json", ""), "204"),
        (Reply::status("401 Unauthorized"), "pods.kubelet_token_file"),
        (
            Reply::status("403 Forbidden"),
            "grant its account get on nodes/pods, never nodes/proxy",
        ),
        (Reply::status("404 Not Found"), "that is no kubelet"),
        (
            Reply::status("500 Internal Server Error"),
            "the kubelet cannot answer",
        ),
        (Reply::redirect(&to), "redirects are not followed"),
        (Reply::cut(&pods), "GET https://"),
        (Reply::flood(true), "is larger than 67108864 bytes"),
    ] {
        kubelet.server.reply(reply);
        fails(&rig, words).await;
    }
    assert_eq!(elsewhere.asked().len(), 0, "a redirect was followed");
    kubelet.set_answer(&pods);
    cleans(&rig, "kubelet").await;
    never_logged(&rig, "first-secret");
}

#[tokio::test]
async fn a_slow_kubelet_is_waited_for_no_longer_than_the_timeout() {
    let kubelet = Kubelet::start().await;
    let mut changes = kubelet.config();
    changes["runtime"]["timeout"] = json!("500ms");
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    let pods = rig.sim.pods_json();
    for reply in [Reply::silence(), Reply::stall(&pods)] {
        kubelet.server.reply(reply);
        fails(
            &rig,
            "the kubelet gave no answer in 500ms (runtime.timeout)",
        )
        .await;
    }
    kubelet.set_answer(&pods);
    cleans(&rig, "kubelet").await;
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_left_at_the_bound() {
    let kubelet = PodServer::plain().await;
    let url = format!("http://{}", kubelet.address);
    let changes = json!({ "pods": { "source": "kubelet", "file": null, "kubelet_url": url } });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    kubelet.reply(Reply::flood(false));
    fails(&rig, "is larger than 67108864 bytes").await;
    kubelet.reply(Reply::json(&rig.sim.pods_json()));
    cleans(&rig, "kubelet").await;
}

#[tokio::test]
async fn an_empty_list_is_no_proof_of_deletion() {
    let kubelet = Kubelet::start().await;
    let only_litter = NodeBuilder::new().pods(LITTER, |n| nodes::deleted(n, LITTER));
    let rig = Rig::start(only_litter, kubelet.config()).await;
    kubelet.set_answer(r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":null}"#);
    assert_eq!(rig.gc("").await["outcome"], "partial");
    rig.nothing_was_touched();
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    let why = rig.get(&format!("/api/v1/explain/{id}")).await.json();
    let why = why["pod_explanation"].as_str().unwrap().to_owned();
    assert!(
        why.contains("holds no other pod of the same source"),
        "{why}"
    );
}

#[tokio::test]
async fn a_kubelet_that_shows_only_its_static_pods_proves_nothing_of_the_others() {
    let kubelet = Kubelet::start().await;
    let node = NodeBuilder::new()
        .pod(PodSpec::new("proxy").static_pod().running("app", 0))
        .pods(LITTER, |number| nodes::deleted(number, LITTER));
    let rig = Rig::start(node, kubelet.config()).await;
    kubelet.set_answer(&rig.sim.pods_json());
    assert_eq!(rig.gc("").await["outcome"], "partial");
    rig.nothing_was_touched();
    assert_eq!(status(&rig).await["known"], true);
}

#[tokio::test]
async fn a_list_that_lacks_a_pod_which_lives_here_removes_nothing() {
    let kubelet = Kubelet::start().await;
    let node = nodes::litter(LITTER).pod(PodSpec::new("api").running("app", 0));
    let rig = Rig::start(node, kubelet.config()).await;
    let whole: Value = serde_json::from_str(&rig.sim.pods_json()).unwrap();
    let mut partial = whole.clone();
    let items = partial["items"].as_array_mut().unwrap();
    items.retain(|pod| pod["metadata"]["name"] != "api");
    assert_eq!(items.len(), 1);
    kubelet.set_answer(&partial.to_string());
    keeps_all(&rig, "the list is incomplete").await;
    let page = rig.metrics().await;
    page.is(r#"crisweep_collector_success{collector="pods"}"#, 0.0);
    page.is(
        r#"crisweep_pod_source_info{source="kubelet",state="incomplete"}"#,
        1.0,
    );
    kubelet.set_answer(&whole.to_string());
    cleans(&rig, "kubelet").await;
}

#[tokio::test]
async fn after_a_restart_of_the_kubelet_settling_begins_anew() {
    let kubelet = Kubelet::start().await;
    let mut changes = kubelet.config();
    changes["pods"]["settle"] = json!("1s");
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    let pods = rig.sim.pods_json();
    let known = || async { (status(&rig).await["known"] == true).then_some(()) };
    kubelet.set_answer(&pods);
    until("the kubelet is believed", known).await;
    kubelet
        .server
        .reply(Reply::status("503 Service Unavailable"));
    fails(&rig, "the kubelet cannot answer").await;
    // As a kubelet does: first nothing, then everything.
    kubelet.set_answer(r#"{"kind":"PodList","metadata":{},"items":[]}"#);
    assert_eq!(rig.gc("").await["outcome"], "partial");
    rig.nothing_was_touched();
    kubelet.set_answer(&pods);
    // The empty list is believed sooner than a list that names API pods again.
    until("the kubelet is believed again", || async {
        let plan = rig.get("/api/v1/plan").await.json();
        (!plan["removals"].as_array()?.is_empty()).then_some(())
    })
    .await;
    cleans(&rig, "kubelet").await;
    // Once before it was ready, once in between: not at every look.
    for message in [
        "the pod source failed: no pod is known",
        "the pod source answers again",
    ] {
        assert_eq!(rig.logs(2, message).await.len(), 2, "{message}");
    }
}

#[tokio::test]
async fn a_rotated_token_is_taken_from_its_file() {
    let kubelet = Kubelet::start().await;
    let mut changes = kubelet.config();
    // A full trace log must show everything except the token.
    changes["log"]["level"] =
        json!("trace,h2=trace,hyper=trace,hyper_util=trace,reqwest=trace,rustls=trace");
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    kubelet.set_answer(&rig.sim.pods_json());
    kubelet.server.expect_token("second-secret");
    fails(&rig, "the kubelet refuses the token in").await;
    for (text, words) in [("", "holds no token"), ("a\nb", "holds no token")] {
        std::fs::write(kubelet.file("token"), text).unwrap();
        fails(&rig, words).await;
    }
    std::fs::remove_file(kubelet.file("token")).unwrap();
    fails(&rig, "cannot read").await;
    std::fs::write(kubelet.file("token"), "second-secret").unwrap();
    cleans(&rig, "kubelet").await;
    never_logged(&rig, "first-secret");
    never_logged(&rig, "second-secret");
}

#[tokio::test]
async fn only_a_certificate_of_that_name_from_the_configured_ca_is_accepted() {
    let kubelet = Kubelet::start().await;
    let rig = Rig::start(nodes::litter(LITTER), kubelet.config()).await;
    kubelet.set_answer(&rig.sim.pods_json());
    let next = Ca::new();
    kubelet.server.show(&next, "localhost");
    let asked = kubelet.server.asked().len();
    fails(&rig, "certificate").await;
    assert_eq!(
        kubelet.server.asked().len(),
        asked,
        "a token was shown to a stranger"
    );
    std::fs::write(kubelet.file("ca.crt"), "rotating").unwrap();
    fails(&rig, "holds no CA certificate in PEM").await;
    next.write(&kubelet.file("ca.crt"));
    kubelet.server.show_itself(&next);
    fails(&rig, "basicConstraints=critical,CA:FALSE").await;
    kubelet.server.show(&next, "another.example");
    fails(&rig, "certificate").await;
    kubelet.server.show(&next, "localhost");
    cleans(&rig, "kubelet").await;
}

#[tokio::test]
async fn finished_api_pods_go_down_to_the_cap_and_finished_static_pods_stay() {
    let kubelet = Kubelet::start().await;
    let mut changes = kubelet.config();
    changes["policy"] = json!({ "containers": { "max_dead": 0 }, "sandboxes": { "max_dead": 0 } });
    let node = nodes::healthy()
        .pod(PodSpec::new("job").succeeded().exited("app", 0, hours(3)))
        .pod(
            PodSpec::new("static")
                .static_pod()
                .phase(Phase::Failed)
                .exited("app", 0, hours(3)),
        );
    let rig = Rig::start(node, changes).await;
    kubelet.set_answer(&rig.sim.pods_json());
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert!(rig.sim.container_id("default/job/app#0").is_none());
    assert!(rig.sim.container_id("default/static/app#0").is_some());
}
