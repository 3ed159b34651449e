//! Pods' log directories.

use std::fs;

use crisweep::snapshot_file::decode;
use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, hours};
use serde_json::json;

use super::tree::{Tree, verdict};
use crate::pods::api_server::{ApiServer, answer};
use crate::support::Rig;
use crate::support::wait::until_true;

const GONE: &str = "default_gone_0d5f6a2c-1111-4222-8333-0123456789ab";
const UID: &str = "0d5f6a2c-1111-4222-8333-0123456789ab";

fn living(tree: &Tree) -> NodeBuilder {
    tree.node().pod(PodSpec::new("web").running("app", 0))
}

#[tokio::test]
async fn an_orphan_is_removed_after_its_grace() {
    for tree in Tree::both() {
        let mut rig = Rig::start(living(&tree), tree.config(&json!({ "grace": "1h" }))).await;
        tree.fill(&rig.sim);
        let (gone, foreign) = (tree.dir(GONE), tree.dir("lost+found"));
        // However old it is: crisweep sees it for the first time.
        let plan = rig.get("/api/v1/plan?target=logs").await.json();
        assert_eq!(verdict(&plan, &gone), ("keep", "too-young".into()));
        rig.configure(&json!({ "policy": { "logs": { "grace": "0s" } } }));
        assert_eq!(rig.post("/-/reload").await.status, 200);
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "completed", "{pass:#}");
        let report = &pass["targets"]["logs"];
        assert_eq!(report["reasons"], json!({ "pod-deleted": 1 }));
        let kept = json!({ "foreign-name": 1, "has-containers": 1, "target-exists": 1 });
        assert_eq!(report["kept"], kept);
        assert!(report["freed_bytes"].as_u64().unwrap() >= 512);
        assert!(!tree.has(&gone) && tree.has(&foreign));
        assert_eq!(tree.files().len(), 4 + 1);
        assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    }
}

/// Files are removed at once, which says nothing about how many containers the runtime can remove at a time.
#[tokio::test]
async fn removed_logs_do_not_raise_the_number_of_removals_in_flight() {
    let tree = Tree::plain();
    let mut config = tree.config(&json!({}));
    config["gc"] = json!({ "io_pressure_pause_percent": 0 });
    let rig = Rig::start(living(&tree), config).await;
    tree.fill(&rig.sim);
    for number in 0..600 {
        tree.dir(&format!("default_gone-{number}_{UID}"));
    }
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["logs"]["removed"], 600, "{pass:#}");
    let batches = rig.service.logs(12, "batch begins").await;
    let in_flight = batches.iter().map(|batch| batch["in_flight"].as_u64());
    assert_eq!((batches.len(), in_flight.max()), (12, Some(Some(2))));
}

/// Roots of another host would be compared with this one's pods.
#[tokio::test]
async fn a_reload_does_not_change_the_host() {
    let (tree, other) = (Tree::plain(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(living(&tree), tree.config(&json!({ "grace": "1h" }))).await;
    let gone = tree.dir(GONE);
    rig.configure(&json!({ "runtime": { "host_root": other.path() } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let plan = rig.get("/api/v1/plan?target=logs").await.json();
    assert_eq!(verdict(&plan, &gone), ("keep", "too-young".into()));
}

#[tokio::test]
async fn a_pod_that_comes_back_is_no_orphan() {
    let tree = Tree::plain();
    let rig = Rig::start(living(&tree), tree.config(&json!({ "grace": "1h" }))).await;
    let gone = tree.dir(GONE);
    let reason = async || {
        let plan = rig.get("/api/v1/plan?target=logs").await.json();
        verdict(&plan, &gone).1
    };
    assert_eq!(reason().await, "too-young");
    let back = PodSpec::new("gone").uid(UID).exited("app", 0, hours(1));
    rig.sim.add_pod(&back);
    assert_eq!(reason().await, "has-containers");
}

/// Begins a pass whose question before a removal hangs, on a runtime whose looks stream and whose questions do not.
async fn hangs_before_a_removal(rig: &Rig) -> String {
    rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
    let id = rig.begin_gc("target=logs").await;
    until_true("the pass asks before it removes", || {
        rig.sim.call_count(Rpc::ListContainers) > 0
    })
    .await;
    id
}

#[tokio::test]
async fn a_pod_that_comes_back_after_the_plan_keeps_its_logs() {
    let tree = Tree::plain();
    let options = Options::containerd_2_4();
    let rig = Rig::with(living(&tree).build(), options, tree.config(&json!({}))).await;
    let gone = tree.dir(GONE);
    let id = hangs_before_a_removal(&rig).await;
    let back = PodSpec::new("gone").uid(UID).exited("app", 0, hours(1));
    rig.sim.add_pod(&back);
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["skipped"], 1);
    assert!(tree.has(&format!("{gone}/app/0.log")));
}

#[tokio::test]
async fn a_cancel_during_the_question_before_a_removal_keeps_the_directory() {
    let tree = Tree::plain();
    let options = Options::containerd_2_4();
    let rig = Rig::with(living(&tree).build(), options, tree.config(&json!({}))).await;
    let gone = tree.dir(GONE);
    let id = hangs_before_a_removal(&rig).await;
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");
    assert!(tree.has(&format!("{gone}/app/0.log")));
}

#[tokio::test]
async fn the_directory_of_a_static_pod_without_a_mirror_stays() {
    let tree = Tree::plain();
    let api_server = ApiServer::start().await;
    let etcd = PodSpec::new("etcd").static_pod().running("app", 0);
    let mut changes = api_server.config("api-server");
    for (key, value) in tree.config(&json!({})).as_object().unwrap() {
        changes[key] = value.clone();
    }
    let rig = Rig::start(living(&tree).pod(etcd), changes).await;
    api_server.set_answer(&answer(&rig.sim));
    let hash = tree.dir("kube-system_old_0123456789abcdef0123456789abcdef");
    let gone = tree.dir(GONE);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(
        pass["targets"]["logs"]["kept"]["pods-unknown"], 1,
        "{pass:#}"
    );
    assert!(tree.has(&hash) && !tree.has(&gone));
}

#[tokio::test]
async fn while_nothing_is_known_of_the_pods_every_directory_stays() {
    let tree = Tree::plain();
    let rig = Rig::start(living(&tree), tree.config(&json!({}))).await;
    let gone = tree.dir(GONE);
    fs::remove_file(rig.pods_file()).unwrap();
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(
        pass["targets"]["logs"]["kept"]["pods-unknown"], 1,
        "{pass:#}"
    );
    assert!(tree.has(&gone));
}

/// A kubelet that has just started lists no pods, or some. The grace begins with a list that is believed.
#[tokio::test]
async fn a_list_that_is_not_believed_makes_no_orphan() {
    let tree = Tree::plain();
    let rig = Rig::start(living(&tree), tree.config(&json!({}))).await;
    let whole = fs::read_to_string(rig.pods_file()).unwrap();
    let gone = tree.dir(GONE);
    let is_orphan = async || {
        let answer = rig.service.request("GET", "/api/v1/snapshot").send().await;
        let file = answer.unwrap().bytes().await.unwrap();
        let logs = decode(&*file).unwrap().snapshot.logs;
        let dir = logs.dirs.iter().find(|dir| *dir.path == *gone).unwrap();
        dir.orphan_since.is_some()
    };
    let other = r#"{"kind":"PodList","items":[{"metadata":{"uid":"99999999-0000-4000-8000-000000000000"}}]}"#;
    for list in [r#"{"kind":"PodList","items":[]}"#, other] {
        fs::write(rig.pods_file(), list).unwrap();
        assert!(!is_orphan().await, "{list}");
    }
    fs::write(rig.pods_file(), whole).unwrap();
    assert!(is_orphan().await);
}

#[tokio::test]
async fn a_root_that_cannot_be_read_is_reported_and_does_not_hinder_others() {
    let tree = Tree::plain();
    let gone = PodSpec::new("gone").exited("app", 0, hours(3)).deleted();
    let node = living(&tree).pod(gone);
    let rig = Rig::start(node, tree.config(&json!({}))).await;
    fs::remove_dir(tree.real(&tree.pods_root())).unwrap();
    fs::write(tree.real(&tree.pods_root()), "").unwrap();
    let page = rig.metrics().await;
    page.is("crisweep_collector_success{collector=\"logs\"}", 0.0);
    let status = rig.get("/api/v1/status").await.json();
    let error = status["look"]["errors"]["logs"].as_str().unwrap();
    assert!(error.contains("Not a directory"), "{error}");
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    assert!(
        errors.contains("logs: ") && errors.contains("Not a directory"),
        "{errors}"
    );
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
}

#[tokio::test]
async fn a_directory_that_a_later_look_cannot_read_does_not_count_as_gone() {
    let tree = Tree::plain();
    let mut changes = tree.config(&json!({}));
    changes["gc"] = json!({ "batch_size": 1, "batch_pause": "3s" });
    let rig = Rig::start(living(&tree), changes).await;
    let (first, second) = (tree.dir(GONE), tree.dir(&GONE.replace("9ab", "9ac")));
    let id = rig.begin_gc("target=logs").await;
    until_true("the first one is gone", || !tree.has(&first)).await;
    let (root, aside) = (tree.pods_root(), format!("{}-aside", tree.pods_root()));
    fs::rename(tree.real(&root), tree.real(&aside)).unwrap();
    fs::write(tree.real(&root), "").unwrap();
    let pass = rig.finished(&id).await;
    assert!(tree.has(&second.replace(&root, &aside)));
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let report = &pass["targets"]["logs"];
    let counts = ["removed", "already_gone", "skipped"].map(|key| &report[key]);
    assert_eq!(counts, [1, 0, 1], "{pass:#}");
    let errors = pass["errors"].to_string();
    let why = ["Not a directory", "a later look keeps them (not read 1)"];
    assert!(why.iter().all(|why| errors.contains(why)), "{errors}");
}

#[tokio::test]
async fn what_stays_because_logs_were_switched_off_does_not_count_as_gone() {
    let tree = Tree::plain();
    let mut changes = tree.config(&json!({}));
    changes["gc"] = json!({ "batch_size": 1, "batch_pause": "3s" });
    let mut rig = Rig::start(living(&tree), changes).await;
    let (first, second) = (tree.dir(GONE), tree.dir(&GONE.replace("9ab", "9ac")));
    let id = rig.begin_gc("target=logs").await;
    until_true("the first one is gone", || !tree.has(&first)).await;
    rig.configure(&json!({ "policy": { "logs": { "enabled": false } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.finished(&id).await;
    assert!(tree.has(&second));
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let report = &pass["targets"]["logs"];
    let counts = ["removed", "already_gone", "skipped"].map(|key| &report[key]);
    assert_eq!(counts, [1, 0, 1], "{pass:#}");
}

#[tokio::test]
async fn logs_are_explained_by_path_and_by_name() {
    let tree = Tree::plain();
    let rig = Rig::start(living(&tree), tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let gone = tree.dir(GONE);
    let encoded = gone.replace('/', "%2F");
    for id in [encoded.as_str(), &gone, GONE] {
        let answer = rig.get(&format!("/api/v1/explain/{id}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let value = answer.json();
        assert_eq!(
            (&value["kind"], &value["reason"]),
            (&json!("log"), &json!("pod-deleted"))
        );
        assert_eq!(value["object"]["id"], gone);
        assert_eq!(value["object"]["pod"]["uid"], UID);
    }
    let pod = rig.get(&format!("/api/v1/explain/{UID}")).await.json();
    assert_eq!(
        (&pod["kind"], &pod["pod_state"]),
        (&json!("pod"), &json!("deleted"))
    );
    let link = tree.link(&rig.sim.containers()[0]);
    let name = link.rsplit('/').next().unwrap();
    let value = rig.get(&format!("/api/v1/explain/{name}")).await.json();
    assert_eq!(value["reason"], "target-exists");
}
