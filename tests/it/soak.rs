//! Days of churn for the real service in minutes: pods are created, crash, finish and are deleted, sandboxes
//! leak, networks fail, the runtime restarts, while alerts, thresholds and people ask for passes.
//!
//! `CRISWEEP_SOAK=5m` sets the duration; `make soak` is the long form. A season is a number of events, then
//! quiet: only what the policy keeps may then be left. No bound here depends on the speed of the machine.

mod churn;
mod memory;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crisweep_sim::{NodeBuilder, Options};
use serde_json::json;

use crate::support::{Rig, until};
use churn::{Churn, LITTER_OF_AN_EVENT, LIVING_MAX};
use memory::Memory;

const SHORT: Duration = Duration::from_secs(3);
/// Events between two quiet times.
const SEASON: usize = 250;
/// `max_dead` of containers and of sandboxes.
const MAX_DEAD: usize = 20;
/// The most containers that the policy keeps. One of each living container may be young, dead and the newest.
const KEPT_CONTAINERS: usize = MAX_DEAD + LIVING_MAX;
/// Those of kept containers, and `max_dead` more.
const KEPT_SANDBOXES: usize = KEPT_CONTAINERS + MAX_DEAD;

fn duration() -> Duration {
    std::env::var("CRISWEEP_SOAK").map_or(SHORT, |text| {
        crisweep::model::setting::parse_duration(&text).expect("CRISWEEP_SOAK is a duration")
    })
}

/// A node's minutes and hours are seconds here.
fn changes() -> serde_json::Value {
    json!({
        "policy": {
            "containers": { "min_age": "300ms", "max_dead": MAX_DEAD },
            "sandboxes": { "min_age": "300ms", "max_dead": MAX_DEAD },
            "images": { "min_age": "200ms", "max_age": "500ms" },
            "logs": { "enabled": true, "grace": "300ms" },
        },
        "quarantine": { "base": "500ms", "max": "1s" },
        "thresholds": {
            "enabled": true, "interval": "300ms", "exited_containers": 40, "not_ready_sandboxes": 25,
        },
        "collect": { "max_age": "200ms" },
        "brakes": { "cooldown": "100ms" },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_run_of_churn_leaves_only_what_the_policy_keeps() {
    let node = NodeBuilder::seeded(7).build();
    let rig = Rig::with(node, Options::containerd_2_4(), changes()).await;
    let roots = rig.config_file().with_file_name("log");
    let (pods_root, links) = (roots.join("pods"), roots.join("containers"));
    for root in [&pods_root, &links] {
        std::fs::create_dir_all(root).unwrap();
    }
    let mut churn = Churn::new(7, pods_root.clone());
    let mut memory = Memory::new();
    let (began, duration) = (Instant::now(), duration());
    let (mut rounds, mut peak) = (0_u32, (0, 0));
    while rounds == 0 || began.elapsed() < duration {
        let before = (rig.exited_containers(), rig.dead_sandboxes());
        for event in 0..SEASON {
            churn.step(&rig.sim).await;
            let now = (rig.exited_containers(), rig.dead_sandboxes());
            peak = (peak.0.max(now.0), peak.1.max(now.1));
            let born = (event + 1) * LITTER_OF_AN_EVENT;
            assert!(now.0 <= before.0 + born && now.1 <= before.1 + born);
            ask(&rig, event, rounds).await;
            assert_eq!(rig.sim.harm_count(), 0, "{:#?}", rig.sim.harmful_calls());
        }
        rest(&rig, &pods_root).await;
        memory.sample(rig.pid());
        rounds += 1;
    }
    let took = began.elapsed();
    println!("{rounds} rounds in {took:.1?}; {:?}", churn.counts);
    println!(
        "at most {} exited containers and {} dead sandboxes",
        peak.0, peak.1
    );
    println!("passes: {}", pass_counts(&rig).await);
    memory.report();
}

/// Requests to the service meanwhile. It answers, whatever the state of its runtime.
async fn ask(rig: &Rig, event: usize, season: u32) {
    if event.is_multiple_of(20) {
        let page = rig.metrics().await;
        assert!(page.get("cri_up").is_some());
    }
    if event % 25 == 10 {
        let targets = ["containers", "sandboxes", "images", "logs", "all"][event / 25 % 5];
        let alert = json!({
            "status": if event % 75 == 10 { "resolved" } else { "firing" },
            "labels": { "alertname": "Soak", "node": "node-1", "crisweep": targets },
            "startsAt": format!("2026-01-02T03:04:{}Z", event % 60),
            "fingerprint": format!("{season}-{event}"),
        });
        let call = json!({ "version": "4", "alerts": [alert] });
        let answer = rig.post_json("/webhook/alertmanager", &call).await;
        assert!([200, 202].contains(&answer.status), "{}", answer.text);
    }
    if event % 125 == 100 {
        // 503: the runtime is away.
        let answer = rig.post("/gc?wait=10s").await;
        assert!([200, 202, 503].contains(&answer.status), "{}", answer.text);
    }
    if event % 50 == 40 {
        for path in ["/api/v1/status", "/api/v1/passes", "/-/healthy", "/"] {
            let answer = rig.get(path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        }
    }
}

/// Quiet: the network works, passes run until only what the policy keeps is left, and all passes have ended.
async fn rest(rig: &Rig, pods_root: &std::path::Path) {
    rig.sim.heal_cni();
    rig.ready().await;
    until("only what the policy keeps is left", || async {
        rig.post("/gc?wait=30s").await;
        let (exited, dead) = (rig.exited_containers(), rig.dead_sandboxes());
        let containers = rig.sim.containers().into_iter();
        let used: BTreeSet<String> = containers.map(|c| c.row.image_ref).collect();
        let mut images = rig.sim.images().into_iter();
        let dirs = std::fs::read_dir(pods_root).unwrap().count();
        let is_clean = exited <= KEPT_CONTAINERS
            && dead <= KEPT_SANDBOXES
            && images.all(|image| image.pinned || used.contains(&image.id))
            && dirs <= rig.sim.sandboxes().len() + rig.sim.pods().len();
        is_clean.then_some(())
    })
    .await;
    until("every pass ended", || async {
        let passes = rig.passes().await;
        passes
            .iter()
            .all(|pass| pass["state"] == "done")
            .then_some(())
    })
    .await;
}

async fn pass_counts(rig: &Rig) -> String {
    let text = rig.get("/metrics").await.text;
    let logged = text.lines().filter(|line| {
        let is_told = [
            "crisweep_passes_total",
            "crisweep_alerts_total",
            "crisweep_removals_total",
            "crisweep_removal_failures_total",
        ];
        is_told.iter().any(|name| line.starts_with(name)) && !line.ends_with(" 0")
    });
    logged.collect::<Vec<_>>().join("\n")
}
