//! What is known of the pods, and what goes without knowing.

use std::fs;

use crisweep::sim::{NodeBuilder, PodSpec, Rpc, hours, minutes};
use serde_json::{Value, json};

use crate::support::{Rig, nodes, until};

fn without_source(max_dead: i64) -> Value {
    json!({
        "pods": { "source": "none", "file": null },
        "policy": { "containers": { "max_dead": max_dead }, "sandboxes": { "max_dead": max_dead } },
    })
}

/// Pods that nobody answers for: one long over, one over since a moment ago, one that lives and
/// one static.
fn unknown_pods() -> NodeBuilder {
    let ended = |name, ago| PodSpec::new(name).exited("app", 0, ago).deleted();
    let of_static = PodSpec::new("static")
        .static_pod()
        .exited("app", 0, hours(3))
        .deleted();
    nodes::healthy()
        .pod(ended("over", hours(3)))
        .pod(ended("recent", minutes(5)))
        .pod(of_static)
        .pod(
            PodSpec::new("lives")
                .exited("app", 0, hours(3))
                .running("side", 0),
        )
}

#[tokio::test]
async fn without_a_source_only_surplus_goes() {
    let rig = Rig::start(unknown_pods(), without_source(0)).await;
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn assume_finished_after_lets_container_and_sandbox_go_in_one_pass() {
    let rig = Rig::start(unknown_pods(), without_source(0)).await;
    let pass = rig.gc("assume_finished_after=1h").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.subjects(Rpc::RemoveContainer), ["default/over/app#0"]);
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), ["default/over#0"]);
    // It held for that one pass.
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
}

#[tokio::test]
async fn assume_finished_after_still_holds_for_the_sandbox_in_a_later_pass() {
    let rig = Rig::start(unknown_pods(), without_source(0)).await;
    rig.gc("assume_finished_after=1h&target=containers").await;
    assert_eq!(rig.subjects(Rpc::RemoveContainer), ["default/over/app#0"]);
    rig.gc("assume_finished_after=1h&target=sandboxes").await;
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), ["default/over#0"]);
}

#[tokio::test]
async fn assume_finished_after_in_the_configuration_holds_for_every_pass() {
    let mut changes = without_source(0);
    changes["pods"]["assume_finished_after"] = json!("1h");
    let rig = Rig::start(unknown_pods(), changes).await;
    assert_eq!(
        rig.gc("assume_finished_after=0&dry_run=true").await["outcome"],
        "nothing-to-do"
    );
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.removals().len(), 2);
}

#[tokio::test]
async fn a_source_is_believed_only_once_it_has_settled() {
    let rig = Rig::start(nodes::litter(2), json!({ "pods": { "settle": "5s" } })).await;
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["pods"]["known"], false);
    assert!(status["pods"]["why"].to_string().contains("pods.settle"));
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    rig.nothing_was_touched();
    until("the source has settled", || async {
        let status = rig.get("/api/v1/status").await.json();
        (status["pods"]["known"] == true).then_some(())
    })
    .await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.removals().len(), 4);
}

#[tokio::test]
async fn a_source_that_fails_or_tells_half_makes_nothing_deleted() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let whole = fs::read_to_string(rig.pods_file()).unwrap();
    let mut paged: Value = serde_json::from_str(&whole).unwrap();
    paged["metadata"] = json!({ "continue": "more" });
    let static_only = json!({ "kind": "PodList", "items": [{ "metadata": {
        "name": "etcd", "uid": "0123456789abcdef0123456789abcdef",
        "annotations": { "kubernetes.io/config.source": "file" } } }] });
    let other = json!({ "kind": "PodList", "items": [{ "metadata": {
        "name": "other", "uid": "99999999-0000-4000-8000-000000000000" } }] });
    let answers = [
        ("garbage", "{".to_owned()),
        ("cut off", whole[..whole.len() / 2].to_owned()),
        ("nothing", String::new()),
        (
            "no pods at all",
            r#"{"kind":"PodList","items":[]}"#.to_owned(),
        ),
        ("one page of several", paged.to_string()),
        ("static pods only", static_only.to_string()),
        ("without the pod that runs", other.to_string()),
        ("an error", r#"{"kind":"Status","items":[]}"#.to_owned()),
    ];
    for (what, answer) in answers {
        fs::write(rig.pods_file(), answer).unwrap();
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "nothing-to-do", "{what}: {pass:#}");
    }
    fs::remove_file(rig.pods_file()).unwrap();
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    rig.metrics()
        .await
        .is("crisweep_collector_success{collector=\"pods\"}", 0.0);
    rig.nothing_was_touched();
    fs::write(rig.pods_file(), whole).unwrap();
    assert_eq!(rig.gc("").await["outcome"], "completed");
}

#[tokio::test]
async fn finished_pods_go_only_as_far_as_the_cap_asks() {
    let done = |n: usize| {
        let ago = hours(2) + minutes(u64::try_from(60 - n).unwrap());
        PodSpec::new(&format!("job-{n}"))
            .exited("app", 0, ago)
            .succeeded()
    };
    let changes =
        json!({ "policy": { "containers": { "max_dead": 4 }, "sandboxes": { "max_dead": 4 } } });
    let rig = Rig::start(nodes::healthy().pods(10, done), changes).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(
        pass["targets"]["containers"]["reasons"],
        json!({ "over-cap": 6 })
    );
    assert_eq!(rig.exited_containers(), 4);
    assert!(rig.sim.container_id("default/job-9/app#0").is_some());
    assert!(rig.sim.container_id("default/job-5/app#0").is_none());
}

/// A kubelet that was restarted adds its pods one by one; a look may fall in between.
#[tokio::test]
async fn a_pod_that_one_answer_lacks_stays_and_one_that_is_lacking_for_long_goes() {
    let node = nodes::healthy().pod(PodSpec::new("cron").exited("app", 0, hours(3)).succeeded());
    let rig = Rig::start(node, json!({ "pods": { "settle": "2s" } })).await;
    let known = async || {
        let status = rig.get("/api/v1/status").await.json();
        (status["pods"]["known"] == true).then_some(())
    };
    until("the source has settled", known).await;
    let whole = fs::read_to_string(rig.pods_file()).unwrap();
    let mut short: Value = serde_json::from_str(&whole).unwrap();
    let pods = short["items"].as_array_mut().unwrap();
    pods.retain(|pod| pod["metadata"]["name"] != "cron");
    fs::write(rig.pods_file(), short.to_string()).unwrap();
    rig.gc("").await;
    // Seen again: what was absent is forgotten.
    fs::write(rig.pods_file(), &whole).unwrap();
    rig.gc("").await;
    fs::write(rig.pods_file(), short.to_string()).unwrap();
    rig.gc("").await;
    rig.nothing_was_touched();
    // Scrapes look at the node, and their looks count.
    until("the pod counts as deleted", || async {
        let page = rig.metrics().await;
        let sample = r#"crisweep_removable{target="containers",reason="pod-deleted"}"#;
        page.get(sample)
            .is_some_and(|count| count > 0.0)
            .then_some(())
    })
    .await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert!(rig.sim.container_id("default/cron/app#0").is_none());
}

#[tokio::test]
async fn a_file_of_another_node_removes_nothing() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let whole = fs::read_to_string(rig.pods_file()).unwrap();
    let mut other: Value = serde_json::from_str(&whole).unwrap();
    other["items"][0]["spec"]["nodeName"] = json!("node-1.example.com");
    fs::write(rig.pods_file(), other.to_string()).unwrap();
    rig.gc("").await;
    rig.nothing_was_touched();
    let status = rig.get("/api/v1/status").await.json();
    let why = status["pods"]["why"].as_str().unwrap();
    assert!(why.contains("set node.name"), "{why}");
}

#[tokio::test]
async fn after_a_reboot_nothing_goes_until_the_node_has_come_up() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("proc")).unwrap();
    let uptime = root.path().join("proc/uptime");
    fs::write(&uptime, "61.50 100.00\n").unwrap();
    // The machine's start ended all that ran; the kubelet has not begun anew yet.
    let web = PodSpec::new("web").exited("app", 0, hours(1)).not_ready();
    let node = NodeBuilder::new().pod(web).pod(nodes::deleted(0, 1));
    let changes = json!({ "runtime": { "host_root": root.path() } });
    let rig = Rig::start(node, changes).await;
    rig.gc("").await;
    rig.nothing_was_touched();
    fs::write(&uptime, "900.00 1500.00\n").unwrap();
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
    assert_eq!(rig.subjects(Rpc::RemoveContainer), ["default/old-0/app#0"]);
}
