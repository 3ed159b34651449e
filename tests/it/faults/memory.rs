//! Limited memory, with a control group of its own, which needs root.

use std::time::{Duration, Instant};

use crisweep_sim::{NodeBuilder, Options, PodSpec, hours, seconds};
use serde_json::{Value, json};

use crate::support::control_group::ControlGroup;
use crate::support::service::Service;
use crate::support::{Rig, nodes, until};

/// The limit. `CRISWEEP_TEST_CAP_MIB` sets another one.
const CAP_MIB: u64 = 64;
/// If set, the pass removes everything, which takes one to three minutes.
const WHOLE_PASS: &str = "CRISWEEP_TEST_WHOLE_PASS";
const SCRAPES: usize = 3;
/// How long a pass may take on a busy machine.
const PASS_MAX: Duration = Duration::from_secs(600);
const CONTAINERS: usize = 20_000;
const CONTAINERS_EACH: u32 = 20;

/// A crash loop that the kubelet could not collect.
fn crash_loop(number: usize) -> PodSpec {
    let pod = PodSpec::new(&format!("crash-{number}"));
    (0..CONTAINERS_EACH).fold(pod, |pod, attempt| {
        let ago = hours(3) + seconds(u64::from(CONTAINERS_EACH - attempt) * 300);
        pod.exited("app", attempt, ago)
    })
}

/// Makes a control group with so much memory; `None` without the permission.
fn capped(mib: u64) -> Option<ControlGroup> {
    let group = ControlGroup::new("memory")?;
    let limit = if group.is_v2 {
        "memory.max"
    } else {
        "memory.limit_in_bytes"
    };
    group
        .write(limit, &(mib << 20).to_string())
        .then_some(group)
}

/// Prints the largest usage so far.
fn print_peak(group: &ControlGroup, after: &str) {
    let file = if group.is_v2 {
        "memory.peak"
    } else {
        "memory.max_usage_in_bytes"
    };
    println!("{after}: at most {} MiB", group.read(file) >> 20);
}

#[tokio::test]
async fn twenty_thousand_containers_fit_into_a_capped_memory() {
    let pods = CONTAINERS / usize::try_from(CONTAINERS_EACH).unwrap();
    fits(nodes::healthy().pods(pods, crash_loop)).await;
}

#[tokio::test]
async fn twenty_thousand_sandboxes_fit_into_a_capped_memory() {
    fits(nodes::litter(CONTAINERS)).await;
}

/// Takes the service on this node through start, scrapes, status, plan and a pass.
async fn fits(node: NodeBuilder) {
    let asked = std::env::var("CRISWEEP_TEST_CAP_MIB").ok();
    let mib = asked.and_then(|text| text.parse().ok()).unwrap_or(CAP_MIB);
    let Some(capped) = capped(mib) else {
        return;
    };
    let mut rig = start(&capped, node).await;
    rig.ready().await;
    print_peak(&capped, "ready");
    for _ in 0..SCRAPES {
        let page = rig.metrics().await;
        page.is("cri_up", 1.0);
        for list in ["containers", "sandboxes"] {
            let bytes = page.get(&format!("cri_list_response_bytes{{list=\"{list}\"}}"));
            println!("the list of {list}: {bytes:?} bytes");
        }
    }
    print_peak(&capped, "scraped");
    assert_eq!(rig.get("/api/v1/status").await.status, 200);
    print_peak(&capped, "status");
    let plan = rig.get("/api/v1/plan").await;
    assert_eq!(plan.status, 200, "{}", plan.text);
    print_peak(&capped, "plan as JSON");
    println!("the plan: {} bytes", plan.text.len());
    let (query, outcome) = match std::env::var_os(WHOLE_PASS) {
        Some(_) => ("", "completed"),
        None => ("max_removals=500", "partial"),
    };
    let id = rig.begin_gc(query).await;
    let pass = ended(&rig, &id).await;
    assert_eq!(pass["outcome"], outcome, "{:#}", pass["errors"]);
    print_peak(&capped, "pass");
    rig.kill().await;
}

/// Waits for the end of a pass.
async fn ended(rig: &Rig, id: &str) -> Value {
    let deadline = Instant::now() + PASS_MAX;
    loop {
        let pass = rig.pass(id).await;
        if pass["state"] == "done" {
            return pass;
        }
        assert!(Instant::now() < deadline, "the pass does not end: {pass:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Starts the service within the cap.
async fn start(capped: &ControlGroup, node: NodeBuilder) -> Rig {
    let changes = json!({
        "runtime": { "timeout": "60s", "max_message_bytes": "512MiB" },
        "collect": { "max_age": "15s" },
        // Looks take the time of this test; a later one needs no more memory than the second.
        "gc": { "batch_size": 250 },
    });
    let options = Options {
        send_limit_bytes: 512 << 20,
        ..Options::default()
    };
    let mut rig = Rig::unready(node.build(), options, changes).await;
    rig.kill().await;
    rig.service = Service::start_as(capped.program(), &rig.config_file()).await;
    rig
}

#[tokio::test]
async fn code_of_the_start_is_let_go_of_and_what_is_in_use_comes_back() {
    // No request, whose code would be in use.
    let rig = Rig::unready(nodes::litter(3).build(), Options::default(), json!({})).await;
    until("the start is over", || async {
        let (now, most) = (rig.memory_kib("VmRSS:"), rig.memory_kib("VmHWM:"));
        // Code that nothing lets go of stays. What is used at rest comes back 64 KiB or more at a time.
        (now < most - most / 4).then_some(())
    })
    .await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
}
