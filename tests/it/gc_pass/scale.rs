//! A node like the one in the incident, and worse.

use crisweep_sim::{Options, PodSpec, hours, seconds};
use serde_json::json;

use crate::support::{Rig, nodes};

const PODS: usize = 500;
const CONTAINERS_EACH: u32 = 20;

/// Twenty dead containers each: a crash loop that the kubelet could not collect.
fn crash_loop(number: usize) -> PodSpec {
    let pod = PodSpec::new(&format!("crash-{number}"));
    (0..CONTAINERS_EACH).fold(pod, |pod, attempt| {
        let ago = hours(3) + seconds(u64::from(CONTAINERS_EACH - attempt) * 300);
        pod.exited("app", attempt, ago)
    })
}

#[tokio::test]
async fn ten_thousand_dead_containers_are_planned_scraped_and_collected() {
    let node = nodes::healthy().pods(PODS, crash_loop).build();
    let dead = PODS * CONTAINERS_EACH as usize;
    // More than a unary answer can hold.
    let rig = Rig::with(
        node,
        Options::containerd_2_4(),
        json!({ "collect": { "max_age": "10s" } }),
    )
    .await;
    let page = rig.metrics().await;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    page.is("cri_containers{state=\"exited\"}", dead as f64);
    let plan = rig.get("/api/v1/plan").await.json();
    let count = plan["removals"].as_array().unwrap().len() + plan["kept"].as_array().unwrap().len();
    let images = rig.sim.images().len();
    assert_eq!(count, dead + 1 + PODS + 1 + images);
    let pass = rig.gc("max_removals=400").await;
    assert_eq!(pass["outcome"], "partial", "{}", pass["errors"]);
    assert_eq!(pass["targets"]["containers"]["removed"], 400);
    assert_eq!(rig.exited_containers(), dead - 400);
    assert!(rig.sim.peak_removals_in_flight() <= 8);
}
