//! `crisweep status`.

use serde_json::{Value, json};

use crate::support::bare::Bare;
use crate::support::service::{run, text};
use crate::support::{Rig, nodes};

/// The file system of the tests is real, and may be full.
fn disk_does_not_matter() -> Value {
    json!({ "thresholds": { "image_fs_used_percent": 0 } })
}

#[tokio::test]
async fn one_screen_says_how_the_node_is_and_what_passes_did() {
    let rig = Rig::start(nodes::litter(3), disk_does_not_matter()).await;
    let url = format!("--url=http://{}", rig.address);
    let output = rig.command(&["status", &url]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        shown.starts_with("OK: 3 exited, 3 dead sandboxes, "),
        "{shown}"
    );
    for words in [
        "node        node-1, mode enforce, crisweep ",
        "runtime     containerd ",
        "containers  4: 3 exited, 1 running\n",
        "sandboxes   4: 3 not ready, 1 ready\n",
        "pods        file, known\n",
        "would go    3 containers, 3 sandboxes, in a pass now (crisweep plan)\n",
        "last pass   none yet\n",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    rig.gc("").await;
    let shown = text(&rig.command(&["status", &url]).await.stdout);
    for words in [
        "last pass   completed ",
        "; exited containers 3 → 0; dead sandboxes 3 → 0",
        "would go    nothing, in a pass now\n",
    ] {
        let unwrapped = shown.replace("\n            ", " ");
        assert!(unwrapped.contains(words), "{words}: {shown}");
    }
    assert!(shown.lines().count() <= 24, "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let output = run(&["status", &url, "--output", "json"]).await;
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["states"]["containers"]["running"], 1);
    assert_eq!(status["marks"]["image_high_percent"], 85);
    assert_eq!(status["node"], "node-1");
}

#[tokio::test]
async fn a_problem_comes_first_and_brakes_are_named() {
    let changes = json!({
        "brakes": { "pause": true },
        "thresholds": { "exited_containers": 5, "image_fs_used_percent": 0 },
    });
    let rig = Rig::start(nodes::litter(6), changes).await;
    let url = format!("--url=http://{}", rig.address);
    let shown = text(&rig.command(&["status", &url]).await.stdout);
    assert!(
        shown.starts_with("PROBLEM: 6 exited containers [service]\n"),
        "{shown}"
    );
    assert!(shown.contains("paused (brakes.pause)"), "{shown}");
    let words = "hold all passes without --force: pause";
    assert!(shown.contains(words), "{shown}");
    let output = rig.command(&["gc", &url]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("crisweep gc --force"), "{said}");
}

#[tokio::test]
async fn without_a_service_the_command_looks_and_says_so() {
    let node = Bare::start(nodes::litter(2), &disk_does_not_matter());
    let output = node.run(&["status"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(
        said.contains("looks for itself") && said.contains("nothing of passes"),
        "{said}"
    );
    let shown = text(&output.stdout);
    assert!(shown.starts_with("OK: 2 exited, "), "{shown}");
    assert!(
        shown.contains("would go    2 containers, 2 sandboxes"),
        "{shown}"
    );
    assert!(!shown.contains("last pass"), "{shown}");
    assert_eq!(node.sim.calls(), []);
}

#[tokio::test]
async fn a_runtime_that_is_down_is_shown_and_a_failure_only_of_a_look_of_ones_own() {
    let node = Bare::start(nodes::healthy(), &json!({}));
    node.sim.stop().await;
    for output in [&["status"][..], &["status", "--output=json"]] {
        let output = node.run(output).await;
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(!output.stdout.is_empty());
    }
    let rig = Rig::without_runtime(nodes::healthy(), json!({})).await;
    let url = format!("--url=http://{}", rig.address);
    let output = run(&["status", &url]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
