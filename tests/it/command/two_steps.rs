//! `crisweep plan --save`, then `crisweep gc --plan`.

use crisweep_sim::{PodSpec, hours};
use serde_json::{Value, json};

use crate::support::bare::Bare;
use crate::support::service::{run, text};
use crate::support::{Rig, nodes};

#[tokio::test]
async fn a_plan_is_saved_read_and_carried_out() {
    let (rig, _dir) = Rig::with_socket(nodes::litter(3), json!({})).await;
    let output = rig
        .command(&["plan", "--save", "--target", "containers"])
        .await;
    let shown = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{shown}{}",
        text(&output.stderr)
    );
    assert!(
        shown.contains("containers: remove 3 (pod-deleted 3)"),
        "{shown}"
    );
    let id = shown
        .lines()
        .last()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .to_owned();
    assert!(
        shown.contains(&format!("  crisweep gc --plan {id}")),
        "{shown}"
    );
    assert_eq!(rig.get(&format!("/api/v1/plans/{id}")).await.status, 200);
    rig.sim
        .add_pod(&PodSpec::new("appears").exited("app", 0, hours(3)).deleted());
    let output = rig.command(&["gc", "--plan", &id, "--dry-run"]).await;
    assert!(
        text(&output.stdout).contains("planned (dry run"),
        "{output:?}"
    );
    rig.nothing_was_touched();
    let output = rig.command(&["gc", "--plan", &id]).await;
    let shown = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{shown}{}",
        text(&output.stderr)
    );
    assert!(shown.contains("not-in-plan 1"), "{shown}");
    let pass = rig.passes().await.remove(0);
    assert_eq!(pass["plan"], id.as_str());
    assert_eq!(pass["targets"]["containers"]["removed"], 3);
    assert!(pass["targets"].get("sandboxes").is_none());
    let output = rig.command(&["gc", "--plan", "none"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no plan"), "{output:?}");
}

#[tokio::test]
async fn a_saved_plan_as_json_is_the_services_answer() {
    let (rig, _dir) = Rig::with_socket(nodes::litter(3), json!({})).await;
    let output = rig.command(&["plan", "--save", "--output", "json"]).await;
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["removals"].as_array().unwrap().len(), 6);
    let id = plan["id"].as_str().unwrap();
    assert!(text(&output.stderr).contains(&format!("crisweep gc --plan {id}")));
}

#[tokio::test]
async fn the_command_to_carry_a_plan_out_names_it() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let url = format!("http://{}", rig.address);
    let output = run(&["plan", "--save", "--url", &url]).await;
    let shown = text(&output.stdout);
    assert!(shown.contains("with the same --service options"), "{shown}");
    let last = shown.lines().last().unwrap_or_default();
    assert!(last.starts_with("  crisweep gc --plan plan-"), "{output:?}");
    let id = last.split(' ').nth(5).unwrap();
    let output = run(&["gc", "--dry-run", "--plan", id, "--url", &url]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[tokio::test]
async fn without_a_service_there_is_no_saved_plan() {
    let node = Bare::start(nodes::litter(1), &json!({}));
    for args in [&["plan", "--save"][..], &["gc", "--plan", "x"]] {
        let output = node.run(args).await;
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("no service answers"), "{said}");
    }
    assert_eq!(node.sim.calls(), []);
}
