//! `crisweep doctor`.

use crisweep_sim::{NodeBuilder, PodSpec, minutes};
use serde_json::{Value, json};

use crate::support::bare::Bare;
use crate::support::service::text;
use crate::support::{Rig, nodes};

fn node() -> NodeBuilder {
    let crash = PodSpec::new("crash")
        .namespace("shop")
        .failed("app", 6, minutes(8))
        .failed("app", 7, minutes(4));
    nodes::litter(30).pod(crash)
}

#[tokio::test]
async fn the_causes_are_told_on_one_screen_without_a_service() {
    let node = Bare::start(node(), &json!({}));
    let output = node.run(&["doctor"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.lines().count() <= 40, "{shown}");
    for line in shown.lines() {
        assert!(
            line.chars().count() <= 100 && line == line.trim_end(),
            "{line:?}"
        );
    }
    let first = shown.lines().next().unwrap();
    assert!(
        first.contains("problem") && first.contains("dead containers"),
        "{first}"
    );
    assert!(
        shown.contains("problem  Container app of pod shop/crash was restarted"),
        "{shown}"
    );
    assert!(shown.contains("WHO LEAVES IT"), "{shown}");
    let said = text(&output.stderr);
    assert!(
        said.contains("no service answers") && said.contains("looks for itself"),
        "{said}"
    );
    assert_eq!(node.sim.calls(), []);
}

#[tokio::test]
async fn a_runtime_that_is_down_is_no_node_without_litter() {
    let changes = json!({ "runtime": { "endpoint": "/nonexistent/cri.sock" } });
    let node = Bare::start(node(), &changes);
    let output = node.run(&["doctor"]).await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let first = shown.lines().next().unwrap();
    assert!(
        first.ends_with("containers and sandboxes could not be listed."),
        "{first}"
    );
    assert!(!shown.contains("WHO LEAVES IT"), "{shown}");
}

#[tokio::test]
async fn the_running_service_answers_with_its_report() {
    let (rig, _dir) = Rig::with_socket(node(), json!({})).await;
    let output = rig.command(&["doctor", "--output", "json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("the running service answers"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of_api = rig.get("/api/v1/doctor").await.json();
    let ids = |report: &Value| -> Vec<String> {
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|it| it["id"].to_string()).collect()
    };
    assert_eq!(ids(&report), ids(&of_api));
    rig.nothing_was_touched();
}
