//! `crisweep snapshot` and `crisweep simulate`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crisweep::snapshot_file::decode;
use serde_json::{Value, json};

use crate::support::bare::Bare;
use crate::support::service::{run, text};
use crate::support::{Rig, nodes};

/// Runs `simulate` and returns its exit code and what it says.
async fn simulate(file: &Path, args: &[&str]) -> (i32, String, String) {
    let file = file.to_str().unwrap();
    let output = run(&[&["simulate", file], args].concat()).await;
    let code = output.status.code().unwrap();
    (code, text(&output.stdout), text(&output.stderr))
}

fn policy(dir: &Path, name: &str, changes: &Value) -> String {
    let path = dir.join(name);
    fs::write(&path, changes.to_string()).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn a_simulation_on_the_services_snapshot_is_its_plan() {
    let changes = json!({
        // One look for both.
        "collect": { "max_age": "1h" },
        "pods": { "quiet": "90s" },
        "policy": { "containers": { "max_dead": 1 }, "logs": { "enabled": true } },
    });
    let (rig, dir) = Rig::with_socket(nodes::litter(3), changes).await;
    let file = dir.path().join("node.json.zst");
    let output = rig.command(&["snapshot", file.to_str().unwrap()]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("by the service at unix:"), "{said}");
    assert!(
        said.contains("node-1 at 2") && said.contains("4 containers"),
        "{said}"
    );
    let plan = rig.get("/api/v1/plan").await.json();
    assert_eq!(plan["removals"].as_array().unwrap().len(), 6);
    let (code, simulated, said) = simulate(&file, &["--output", "json"]).await;
    assert_eq!((code, said.as_str()), (0, ""));
    assert_eq!(serde_json::from_str::<Value>(&simulated).unwrap(), plan);
    let of_one = rig.get("/api/v1/plan?target=containers").await.json();
    let args = ["--output", "json", "--target", "containers"];
    let (_, simulated, _) = simulate(&file, &args).await;
    assert_eq!(serde_json::from_str::<Value>(&simulated).unwrap(), of_one);
    let bytes = fs::read(&file).unwrap();
    let about = decode(&*bytes).unwrap().about;
    assert_eq!((&*about.node, &*about.mode), ("node-1", "enforce"));
    assert!(about.runtime.starts_with("containerd "), "{about:?}");
    assert_eq!(about.pod_source, "file");
    assert!(about.lists["containers"].bytes > Some(0));
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_service_that_refuses_is_named_and_done_without() {
    let dir = tempfile::tempdir().unwrap();
    let read = dir.path().join("read");
    fs::write(&read, "token-that-nobody-shows").unwrap();
    let changes = json!({ "web": { "bearer_token_files": { "read": [read] } } });
    let mut rig = Rig::unready(
        nodes::litter(1).build(),
        crisweep_sim::Options::default(),
        changes,
    )
    .await;
    // For the command: the port that the service has taken.
    rig.configure(&json!({ "web": { "listen": [rig.address] } }));
    let output = rig.command(&["snapshot", "-"]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for words in [
        "answers 401 Unauthorized: reading needs a credential",
        "--service.token-file: looking without it",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert!(said.contains("by a look of its own"), "{said}");
    assert_eq!(
        decode(&*output.stdout).unwrap().snapshot.containers.len(),
        2
    );
}

#[tokio::test]
async fn a_snapshot_without_a_service_is_private_and_replaces_nothing_unasked() {
    let node = Bare::start(nodes::litter(2), &json!({}));
    let dir = node.config.parent().unwrap();
    let (file, link) = (dir.join("node.json.zst"), dir.join("link"));
    let path = file.to_str().unwrap();
    let output = node.run(&["snapshot", path]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("by a look of its own"), "{said}");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let first = fs::read(&file).unwrap();
    let output = node.run(&["snapshot", path]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    let hint = format!("cannot write {path}: it exists; --force replaces it");
    assert!(said.contains(&hint), "{said}");
    assert_eq!(fs::read(&file).unwrap(), first);
    let output = node.run(&["snapshot", "/nonexistent/x"]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("crisweep: cannot write /nonexistent/x: "),
        "{said}"
    );
    let output = node.run(&["snapshot", path, "--force"]).await;
    assert_eq!(output.status.code(), Some(0));
    symlink(dir.join("elsewhere"), &link).unwrap();
    for force in [&[][..], &["--force"]] {
        let args = [&["snapshot", link.to_str().unwrap()], force].concat();
        let output = node.run(&args).await;
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("not a regular file"));
    }
    assert!(!dir.join("elsewhere").exists());
    let plan = node.run(&["plan"]).await;
    let (code, simulated, _) = simulate(&file, &[]).await;
    assert_eq!(code, 0);
    let counts = text(&plan.stdout);
    let counts = counts.lines().next().unwrap();
    assert!(simulated.contains(counts), "{counts}: {simulated}");
    assert!(simulated.starts_with("node-1 at 2"), "{simulated}");
    assert_eq!(node.sim.calls(), []);
}

#[tokio::test]
async fn two_policies_are_compared_by_counts_and_objects() {
    let node = Bare::start(nodes::litter(30), &json!({}));
    let dir = node.config.parent().unwrap();
    let file = dir.join("node.json.zst");
    let output = node.run(&["snapshot", file.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let off = policy(
        dir,
        "off.yaml",
        &json!({
            "policy": { "sandboxes": { "enabled": false } },
            "pods": { "settle": "0s", "quiet": "0s" },
        }),
    );
    let targets = ["--target", "containers", "--target", "sandboxes"];
    let args = [&targets[..], &["--config", "snapshot", "--config", &off]].concat();
    let (code, shown, said) = simulate(&file, &args).await;
    assert_eq!(code, 0, "{said}");
    let line = |words: &[&str]| {
        let is_it = |line: &str| line.split_whitespace().eq(words.iter().copied());
        assert!(shown.lines().any(is_it), "{words:?}: {shown}");
    };
    line(&["containers", "pod-deleted", "30", "30", "+0"]);
    line(&["sandboxes", "pod-deleted", "30", "0", "-30"]);
    line(&["B:", &off]);
    for words in [
        "only A removes 30, only B removes 0, both for another reason 0",
        "- pod-deleted        within-limits",
        "... and 10 more: --all shows each",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    for line in shown.lines() {
        // The id is whole where a program may read it.
        let ids = line.split(' ').filter(|word| word.len() == 64).count();
        assert!(line.chars().count() - 52 * ids <= 80, "{line}");
    }
    let args = ["--config", &off, "--config", "snapshot", "--output", "json"];
    let (_, shown, _) = simulate(&file, &args).await;
    let compared: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(compared["a"]["policy"], off);
    assert_eq!(
        compared["b"]["summary"]["sandboxes"]["remove"],
        json!({ "pod-deleted": 30 })
    );
    let differences = compared["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 30);
    assert_eq!(differences[0]["target"], "sandboxes");
    assert_eq!(differences[0]["a"], json!({ "keep": "within-limits" }));
    assert_eq!(differences[0]["b"], json!({ "remove": "pod-deleted" }));
}

#[tokio::test]
async fn a_later_time_makes_everything_older() {
    let young = json!({ "policy": {
        "containers": { "min_age": "5h" },
        "sandboxes": { "min_age": "5h" },
    } });
    let node = Bare::start(nodes::litter(2), &young);
    let dir = node.config.parent().unwrap();
    let file = dir.join("node.json.zst");
    node.run(&["snapshot", file.to_str().unwrap()]).await;
    let (_, now, _) = simulate(&file, &["--target", "containers"]).await;
    assert!(now.contains("containers: remove 0\n"), "{now}");
    let (_, head) = now.split_once(" at ").unwrap();
    let (taken_at, _) = head.split_once(' ').unwrap();
    assert_eq!(taken_at.len(), "2026-01-02T15:00:00Z".len(), "{now}");
    let later = ["--target", "containers", "--at", "+3h"];
    let (_, later, _) = simulate(&file, &later).await;
    assert!(
        later.contains("containers: remove 2 (pod-deleted 2)"),
        "{later}"
    );
    let (code, _, said) = simulate(&file, &["--at", "2020-01-01T00:00:00Z"]).await;
    assert_eq!(code, 1);
    assert!(said.contains("is before the snapshot"), "{said}");
    let (code, _, said) = simulate(&file, &["--at", "soon"]).await;
    assert_eq!(code, 2);
    assert!(said.contains("or +1h"), "{said}");
}

#[tokio::test]
async fn files_and_policies_that_cannot_be_used_are_named() {
    let node = Bare::start(nodes::litter(1), &json!({}));
    let dir = node.config.parent().unwrap();
    let file = dir.join("node.json.zst");
    node.run(&["snapshot", file.to_str().unwrap()]).await;
    let (code, _, said) = simulate(&node.config, &[]).await;
    assert_eq!(code, 1);
    assert!(
        said.contains("crisweep.yaml") && said.contains("no whole snapshot file"),
        "{said}"
    );
    let later = zstd::decode_all(fs::File::open(&file).unwrap()).unwrap();
    let later = text(&later).replacen("\"version\":1", "\"version\":7", 1);
    let path = dir.join("later.json.zst");
    fs::write(&path, zstd::encode_all(later.as_bytes(), 3).unwrap()).unwrap();
    let (code, _, said) = simulate(&path, &[]).await;
    assert_eq!(code, 1);
    assert!(said.contains("later.json.zst: version: is 7"), "{said}");
    let wrong = policy(
        dir,
        "wrong.yaml",
        &json!({ "policy": { "containers": { "max": 1 } } }),
    );
    let (code, _, said) = simulate(&file, &["--config", &wrong]).await;
    assert_eq!(code, 2);
    assert!(
        said.contains("wrong.yaml") && said.contains("policy.containers.max"),
        "{said}"
    );
    let three = [
        "--config", "snapshot", "--config", "snapshot", "--config", "snapshot",
    ];
    assert_eq!(simulate(&file, &three).await.0, 2);
    // --config.file names a policy too; beside --config its place is not clear.
    let (code, _, said) = simulate(&file, &["--config.file", &wrong]).await;
    assert_eq!(code, 2);
    assert!(said.contains("policy.containers.max"), "{said}");
    let both = ["--config.file", &wrong, "--config", "snapshot"];
    let (code, _, said) = simulate(&file, &both).await;
    assert_eq!(code, 2);
    assert!(said.contains("give --config twice"), "{said}");
    // A DaemonSet's configuration, far from any cluster.
    let of_a_pod = policy(
        dir,
        "pod.yaml",
        &json!({ "pods": { "source": "api-server" } }),
    );
    let (code, _, said) = simulate(&file, &["--config", &of_a_pod]).await;
    assert_eq!(code, 0, "{said}");
}
