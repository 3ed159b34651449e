//! Pod knowledge, and what is removed without it.

use std::fs;

use crisweep_sim::{Fault, NodeBuilder, PodSpec, Rpc, hours, minutes, seconds};
use serde_json::{Value, json};

use crate::alerts::hook::{asks, pass_of, sent};
use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

fn without_source(max_dead: i64) -> Value {
    json!({
        "pods": { "source": "none", "file": null },
        "policy": { "containers": { "max_dead": max_dead }, "sandboxes": { "max_dead": max_dead } },
    })
}

/// Pods that no source knows: one finished long ago, one finished a moment ago, a living one and a static
/// one.
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
async fn without_a_source_only_surplus_is_removed() {
    let rig = Rig::start(unknown_pods(), without_source(0)).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(
        (&pass["pods"]["source"], &pass["pods"]["state"]),
        (&json!("none"), &json!("none"))
    );
    let error = pass["errors"][0].as_str().unwrap();
    assert!(error.starts_with("containers: 3 stay"), "{error}");
    assert!(
        error.contains("pods.source") && error.contains("assume_finished_after"),
        "{error}"
    );
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_pass_without_pod_knowledge_leaves_its_alert_unanswered() {
    let rig = Rig::start(unknown_pods(), without_source(0)).await;
    for passes in 1..=2 {
        let body = sent(&rig, asks("all"), 202, "accepted").await;
        assert_eq!(rig.finished(&pass_of(&body)).await["outcome"], "partial");
        assert_eq!(rig.passes().await.len(), passes);
    }
}

#[tokio::test]
async fn nothing_is_missed_of_pods_that_live_or_are_young() {
    let young = PodSpec::new("young").exited("app", 0, seconds(5)).deleted();
    let lives = PodSpec::new("lives")
        .exited("init", 0, hours(3))
        .running("app", 0);
    let rig = Rig::start(nodes::healthy().pod(young).pod(lives), without_source(0)).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(pass["errors"], json!([]));
}

#[tokio::test]
async fn assume_finished_after_lets_container_and_sandbox_go_in_one_pass() {
    let rig = Rig::start(unknown_pods(), without_source(0)).await;
    let pass = rig.gc("assume_finished_after=1h").await;
    // The static pod never counts as finished, the other one not yet.
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    assert!(errors.contains("containers: 2 stay"), "{pass:#}");
    assert!(
        errors.contains("or pass an assume_finished_after below 1h and max_dead to POST /gc"),
        "{pass:#}"
    );
    assert_eq!(rig.subjects(Rpc::RemoveContainer), ["default/over/app#0"]);
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), ["default/over#0"]);
    // The static pod stays whatever is assumed.
    let errors = rig.gc("assume_finished_after=1m").await["errors"].to_string();
    assert!(errors.contains("containers: 1 stay"), "{errors}");
    assert!(!errors.contains("assume_finished_after"), "{errors}");
    // It was valid for that one pass only.
    assert_eq!(rig.gc("").await["targets"]["containers"]["planned"], 0);
}

#[tokio::test]
async fn nothing_is_to_be_assumed_for_what_it_cannot_help() {
    let of_static = PodSpec::new("static")
        .static_pod()
        .exited("app", 0, hours(3))
        .deleted();
    // Nothing of it goes, whatever is assumed.
    let young = PodSpec::new("young").exited("app", 0, seconds(5)).deleted();
    let node = nodes::healthy().pod(of_static).pod(young);
    let rig = Rig::start(node, without_source(0)).await;
    let errors = rig.gc("").await["errors"].to_string();
    assert!(errors.contains("containers: 1 stay"), "{errors}");
    assert!(!errors.contains("assume_finished_after"), "{errors}");
}

#[tokio::test]
async fn one_pass_may_have_a_max_dead_of_its_own() {
    let dead = (0..9).map(|n| {
        PodSpec::new(&format!("over-{n}"))
            .exited("app", 0, hours(3))
            .deleted()
    });
    let node = dead.fold(nodes::healthy(), NodeBuilder::pod);
    let rig = Rig::start(node, without_source(200)).await;
    let lever = "assume_finished_after=1h";
    assert_eq!(rig.gc(lever).await["outcome"], "nothing-to-do");
    let dry = rig.gc(&format!("{lever}&max_dead=4&dry_run=true")).await;
    assert_eq!(dry["targets"]["containers"]["planned"], 5, "{dry:#}");
    assert_eq!(dry["targets"]["sandboxes"]["planned"], 1, "{dry:#}");
    rig.nothing_was_touched();
    let pass = rig.gc(&format!("{lever}&max_dead=0")).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    rig.post("/gc?max_dead=none")
        .await
        .refused(400, "\"max_dead\" must be a whole number");
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
    let without = rig.gc("assume_finished_after=0&dry_run=true").await;
    assert_eq!(without["outcome"], "partial", "{without:#}");
    assert!(
        without["errors"].to_string().contains("containers: 3 stay"),
        "{without:#}"
    );
    rig.gc("").await;
    assert_eq!(rig.removals().len(), 2);
}

#[tokio::test]
async fn a_pass_waits_for_a_source_that_settles_and_then_cleans() {
    let rig = Rig::start(nodes::litter(2), json!({ "pods": { "settle": "3s" } })).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["pods"]["state"], "known");
    assert_eq!(rig.removals().len(), 4);
}

/// Litter, and a crash loop with one record too many.
fn litter_and_surplus() -> NodeBuilder {
    let crash = PodSpec::new("crash")
        .exited("app", 0, hours(3))
        .exited("app", 1, hours(2))
        .running("app", 2);
    nodes::litter(2).pod(crash)
}

#[tokio::test]
async fn a_source_that_settles_after_the_deadline_holds_back_nothing_that_needs_no_source() {
    let changes = json!({ "pods": { "settle": "1h" }, "gc": { "deadline": "5s" } });
    let rig = Rig::start(litter_and_surplus(), changes).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["pods"]["state"], "settling");
    let errors = pass["errors"].to_string();
    assert!(errors.contains("pods.settle"), "{pass:#}");
    assert_eq!(rig.subjects(Rpc::RemoveContainer), ["default/crash/app#0"]);
    assert_eq!(rig.removals().len(), 1);
}

#[tokio::test]
async fn an_alert_whose_pass_did_not_wait_for_its_source_gets_one_pass_more_once_it_has_settled() {
    let changes = json!({ "pods": { "settle": "10s" }, "gc": { "deadline": "3s" } });
    let rig = Rig::start(litter_and_surplus(), changes).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["outcome"], "partial", "{first:#}");
    assert_eq!(rig.removals().len(), 1);
    until("the pass that follows has cleaned", || async {
        (rig.exited_containers() == 1 && rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 2, "{passes:#?}");
    assert_eq!(passes[0]["trigger"]["follow_up"], true);
}

#[tokio::test]
async fn a_cancel_ends_the_wait_for_a_source() {
    let changes = json!({ "pods": { "settle": "1h" }, "gc": { "deadline": 0 } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    let id = rig.begin_gc("").await;
    until("the pass waits", || async {
        rig.logged("waiting for the pod source to settle").pop()
    })
    .await;
    assert_eq!(
        rig.delete(&format!("/api/v1/passes/{id}")).await.status,
        202
    );
    assert_eq!(rig.finished(&id).await["outcome"], "aborted");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_source_that_fails_or_answers_in_part_makes_nothing_deleted() {
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
        assert_eq!(pass["outcome"], "partial", "{what}: {pass:#}");
        assert!(
            pass["errors"].to_string().contains("containers: 2 stay"),
            "{what}: {pass:#}"
        );
    }
    fs::remove_file(rig.pods_file()).unwrap();
    let pass = rig.gc("").await;
    assert_eq!(
        (&pass["outcome"], &pass["pods"]["state"]),
        (&json!("partial"), &json!("failed"))
    );
    rig.metrics()
        .await
        .is("crisweep_collector_success{collector=\"pods\"}", 0.0);
    rig.nothing_was_touched();
    fs::write(rig.pods_file(), whole).unwrap();
    assert_eq!(rig.gc("").await["outcome"], "completed");
}

#[tokio::test]
async fn a_source_that_fails_between_two_batches_is_named_for_what_stays() {
    let changes = json!({ "gc": { "batch_size": 2 }, "collect": { "max_age": "0s" } });
    let rig = Rig::start(nodes::litter(6), changes).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    until_true("a removal is in flight", || {
        rig.sim.removals_in_flight() > 0
    })
    .await;
    fs::remove_file(rig.pods_file()).unwrap();
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["removed"], &report["skipped"]),
        (&json!(2), &json!(4)),
        "{pass:#}"
    );
    let error = pass["errors"][0].as_str().unwrap_or_default();
    assert!(
        error.starts_with(
            "containers: 4 stay because their pods may not be finished: the pod source failed"
        ),
        "{pass:#}"
    );
    assert_eq!(pass["pods"]["state"], "failed", "{pass:#}");
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

/// A restarted kubelet adds its pods one by one; a look may fall in between.
#[tokio::test]
async fn a_pod_absent_from_one_answer_stays_and_one_absent_for_long_is_removed() {
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
    // Seen again: the absence is forgotten.
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
async fn an_alert_whose_pass_met_a_pod_that_was_absent_only_just_now_gets_one_pass_more() {
    let node = nodes::healthy().pod(PodSpec::new("cron").exited("app", 0, hours(3)).succeeded());
    let rig = Rig::start(node, json!({ "pods": { "settle": "4s" } })).await;
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
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(
        first["targets"]["containers"]["kept"]["too-young"], 1,
        "{first:#}"
    );
    until("the pass that follows has cleaned", || async {
        let gone = rig.sim.container_id("default/cron/app#0").is_none();
        gone.then_some(())
    })
    .await;
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 2);
    assert_eq!(passes[0]["trigger"]["follow_up"], true, "{passes:#?}");
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
async fn after_a_reboot_nothing_is_removed_until_the_node_has_come_up() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("proc")).unwrap();
    let uptime = root.path().join("proc/uptime");
    fs::write(&uptime, "61.50 100.00\n").unwrap();
    // The machine's start ended everything; the kubelet has not started yet.
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
