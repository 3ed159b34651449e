//! A CNI plugin that is slow for some sandboxes and fails for others, under a real containerd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::crisweep::Crisweep;
use crate::support::node::{Node, real_plugins};
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};

/// Sandboxes of deleted pods.
const LEAKED: u32 = 20;
/// The broken plugin's error.
const WORDS: &str = "the network's daemon is down";

/// Says whether the broken plugin is slow for the sandbox of this number.
pub(crate) fn is_slow(number: usize) -> bool {
    number.is_multiple_of(3)
}

/// Says whether the broken plugin fails for it.
pub(crate) fn is_failing(number: usize) -> bool {
    number % 10 == 1 && !is_slow(number)
}

/// Replaces the plugins by a program that sleeps 5 s on DEL for a third of the sandboxes, fails for a tenth,
/// and calls the real plugin for the others.
pub(crate) fn wrap_plugins(dir: &Path, population: &Population) {
    let real = real_plugins();
    let of = |nth: fn(usize) -> bool| -> String {
        let ids = population.sandboxes().enumerate().filter(|(n, _)| nth(*n));
        let ids: Vec<String> = ids.map(|(_, (_, sandbox))| sandbox.id.clone()).collect();
        ids.join("|")
    };
    let (slow, failing) = (of(is_slow), of(is_failing));
    let real_bridge = real.join("bridge");
    let bridge = real_bridge.display();
    let script = format!(
        r#"#!/bin/sh
if [ "$CNI_COMMAND" = DEL ]; then
  case "$CNI_CONTAINERID" in
  {slow}) sleep 5 ;;
  {failing})
    echo '{{"cniVersion":"0.4.0","code":100,"msg":"{WORDS}"}}'
    exit 1 ;;
  esac
fi
exec {bridge}
"#,
        WORDS = WORDS.replace('\'', r"'\''"),
    );
    let wrapped = dir.join("wrapped");
    fs::create_dir(&wrapped).unwrap();
    fs::write(wrapped.join("bridge"), script).unwrap();
    fs::set_permissions(wrapped.join("bridge"), fs::Permissions::from_mode(0o755)).unwrap();
    for plugin in ["host-local", "loopback"] {
        std::os::unix::fs::symlink(real.join(plugin), wrapped.join(plugin)).unwrap();
    }
    point(dir, &wrapped);
}

/// Makes the runtime use the plugins of another directory.
fn point(dir: &Path, plugins: &Path) {
    let new = dir.join("plugins.new");
    std::os::unix::fs::symlink(plugins, &new).unwrap();
    fs::rename(&new, dir.join("plugins")).unwrap();
}

#[tokio::test]
async fn healthy_sandboxes_go_and_failing_ones_wait_until_the_plugin_is_well_again() {
    let node = Node::start().await;
    let leaked = (0..LEAKED).map(|n| {
        let pod = PodPlan::new(n, format!("leaked-{n}"), Known::Absent);
        pod.on_bridge().sandbox(Fate::Stopped, &[])
    });
    let live = PodPlan::new(100, "live".to_owned(), Known::Active);
    let live = live.sandbox(Fate::Ready, &[("app", 0, End::Runs)]);
    let population = Population::make(&node, leaked.chain([live]).collect()).await;
    let pods_file = node.dir().join("pods.json");
    population.write_pods_file(&pods_file);
    wrap_plugins(node.dir(), &population);

    let crisweep = Crisweep::start(&node, &pods_file).await;
    wait_for("all to be due", PATIENCE, || async {
        let plan = crisweep.get("/api/v1/plan?target=sandboxes").await?;
        match plan["removals"].as_array().map(Vec::len) {
            Some(20) => Ok(()),
            _ => Err(plan["summary"].to_string()),
        }
    })
    .await;
    let (_, pass) = crisweep.post("/gc?wait=60s&target=sandboxes").await;
    let report = &pass["targets"]["sandboxes"];
    let tail = crisweep.log_tail();
    assert_eq!(pass["outcome"], "partial", "{pass}\n{tail}");
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(18), &json!(2)),
        "{pass}\n{tail}"
    );
    let status = crisweep.get("/api/v1/status").await.unwrap();
    assert_eq!(
        status["quarantined_sandboxes"],
        json!({ "network-teardown": 2 })
    );
    let said = status["quarantine"][0]["error"].as_str().unwrap();
    assert!(said.contains(WORDS), "{said}");

    point(node.dir(), real_plugins());
    wait_for("the rest to go", PATIENCE, || async {
        let (_, pass) = crisweep.post("/gc?wait=60s&target=sandboxes").await;
        let status: Value = crisweep.get("/api/v1/status").await?;
        match &status["quarantined_sandboxes"] {
            left if *left == json!({}) => Ok(()),
            left => Err(format!("{left}\n{pass}")),
        }
    })
    .await;
    let cri = node.cri().await;
    assert_eq!(cri.sandboxes().await.len(), 1, "the one that lives");
}
