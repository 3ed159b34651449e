//! Dead links.

use std::fs;

use crisweep_sim::{Fault, PodSpec, Rpc, hours};
use serde_json::json;
use tonic::Code;

use super::tree::{Tree, verdict};
use crate::support::Rig;
use crate::support::wait::until;

#[tokio::test]
async fn a_dead_link_is_removed_only_when_the_runtime_reports_its_container_exited_or_missing() {
    for tree in Tree::both() {
        let node =
            tree.node().pod(
                PodSpec::new("web")
                    .running("app", 1)
                    .exited("app", 0, hours(3)),
            );
        let mut changes = tree.config(&json!({}));
        // Links need no pod source.
        changes["pods"] = json!({ "source": "none", "file": null });
        let rig = Rig::start(node, changes).await;
        tree.fill(&rig.sim);
        let [running, exited] = ["default/web/app#1", "default/web/app#0"].map(|subject| {
            let id = rig.sim.container_id(subject).unwrap();
            rig.sim.container(&id).unwrap()
        });
        // A moment of rotation, and a log that was deleted.
        fs::remove_file(tree.real(&running.log_path)).unwrap();
        fs::remove_file(tree.real(&exited.log_path)).unwrap();
        let gone = tree.dead_link(&format!("x_default_app-{}.log", "a".repeat(64)));
        let short = tree.dead_link("x_default_app-0123456789.log");
        let plan = rig.get("/api/v1/plan?target=logs").await.json();
        for (path, wanted) in [
            (&tree.link(&running), ("keep", "has-containers")),
            (&tree.link(&exited), ("remove", "dead-link")),
            (&gone, ("remove", "dead-link")),
            (&short, ("keep", "foreign-name")),
        ] {
            assert_eq!(
                verdict(&plan, path),
                (wanted.0, wanted.1.to_owned()),
                "{path}"
            );
        }
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "completed", "{pass:#}");
        assert_eq!(pass["targets"]["logs"]["removed"], 2);
        assert!(tree.has(&tree.link(&running)) && tree.has(&short));
        assert!(!tree.has(&tree.link(&exited)) && !tree.has(&gone));
        assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    }
}

#[tokio::test]
async fn a_failed_status_call_keeps_the_link() {
    let tree = Tree::plain();
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let rig = Rig::start(node, tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    let gone = tree.dead_link(&format!("x_default_app-{}.log", "a".repeat(64)));
    let busy = || Fault::fail(Code::Unknown, "the store is locked");
    rig.sim.set_fault(Rpc::ContainerStatus, busy());
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(pass["targets"]["logs"]["kept"]["not-asked"], 1);
    // Nor does it count right before the removal.
    rig.sim.clear_faults();
    until("the runtime is asked again", || async {
        let plan = rig.get("/api/v1/plan?target=logs").await.json();
        let planned = !plan["removals"].as_array().unwrap().is_empty();
        planned.then_some(())
    })
    .await;
    rig.sim.set_fault(Rpc::ContainerStatus, busy());
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["logs"]["failed"], 1, "{pass:#}");
    assert!(tree.has(&gone));
    rig.sim.clear_faults();
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert!(!tree.has(&gone));
}

#[tokio::test]
async fn a_container_that_is_not_found_is_asked_about_once() {
    let tree = Tree::plain();
    let node = tree.node().pod(PodSpec::new("web").running("app", 0));
    let rig = Rig::start(node, tree.config(&json!({}))).await;
    tree.fill(&rig.sim);
    for number in 0..3 {
        tree.dead_link(&format!(
            "x_default_app-{}.log",
            number.to_string().repeat(64)
        ));
    }
    for _ in 0..3 {
        rig.metrics().await.is(
            "crisweep_removable{target=\"logs\",reason=\"dead-link\"}",
            3.0,
        );
    }
    // And the running one.
    assert_eq!(rig.sim.call_count(Rpc::ContainerStatus), 4);
}
