//! Removal time of healthy sandboxes beside others whose network teardown takes 5 s or fails, and alone.
//! Asserts no time, prints it. Run by `benches/pacing.sh`; `docs/dev/performance.md` has the figures.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::quarantine::{is_failing, is_slow, wrap_plugins};
use crate::support::crisweep::Crisweep;
use crate::support::node::Node;
use crate::support::plan::{End, Fate, Known, PodPlan};
use crate::support::population::Population;
use crate::support::wait::{PATIENCE, wait_for};

/// Sandboxes of deleted pods, of all kinds.
const LEAKED: usize = 90;

#[tokio::test]
async fn healthy_sandboxes_beside_a_broken_network() {
    for round in 1..=3 {
        let healthy = (0..LEAKED).filter(|n| !is_slow(*n) && !is_failing(*n));
        let count = healthy.count();
        let alone = sweep(count, |_, _| {}).await;
        let beside = sweep(LEAKED, wrap_plugins).await;
        println!(
            "round {round}: {count} healthy ones gone after {:.2} s alone, {:.2} s ({:.2} times) beside {} others",
            alone.as_secs_f64(),
            beside.as_secs_f64(),
            beside.as_secs_f64() / alone.as_secs_f64(),
            LEAKED - count,
        );
    }
}

/// Makes dead sandboxes on their own node, changes the network and runs a pass; returns after what time the
/// last healthy one was gone.
async fn sweep(count: usize, change: impl Fn(&Path, &Population)) -> Duration {
    let node = Node::start().await;
    let leaked = (0..count).map(|n| {
        let pod = PodPlan::new(
            u32::try_from(n).unwrap(),
            format!("leaked-{n}"),
            Known::Absent,
        );
        pod.on_bridge().sandbox(Fate::Stopped, &[])
    });
    let live = PodPlan::new(1_000, "live".to_owned(), Known::Active);
    let live = live.sandbox(Fate::Ready, &[("app", 0, End::Runs)]);
    let population = Population::make(&node, leaked.chain([live]).collect()).await;
    let all_healthy = count < LEAKED;
    let healthy: BTreeSet<String> = population
        .sandboxes()
        .take(count)
        .enumerate()
        .filter(|(n, _)| all_healthy || (!is_slow(*n) && !is_failing(*n)))
        .map(|(_, (_, sandbox))| sandbox.id.clone())
        .collect();
    let pods_file = node.dir().join("pods.json");
    population.write_pods_file(&pods_file);
    change(node.dir(), &population);
    let sections = json!({ "collect": {}, "gc": {} });
    let crisweep = Crisweep::start_with(&node, &pods_file, sections).await;
    wait_for("all to be due", PATIENCE, || async {
        let plan = crisweep.get("/api/v1/plan?target=sandboxes").await?;
        match plan["removals"].as_array().map(Vec::len) {
            Some(due) if due == count => Ok(()),
            _ => Err(plan["summary"].to_string()),
        }
    })
    .await;
    let cri = node.cri().await;
    let began = Instant::now();
    crisweep.post("/gc?target=sandboxes").await;
    wait_for("the healthy ones to go", PATIENCE, || async {
        let left = cri.sandboxes().await;
        let left = left.iter().filter(|row| healthy.contains(&row.id)).count();
        if left == 0 {
            Ok(())
        } else {
            Err(left.to_string())
        }
    })
    .await;
    began.elapsed()
}
