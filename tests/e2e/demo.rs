//! The shipped alerts on the demo's node, with 1,400 dead containers and five sandboxes that cannot be
//! removed: a pass resolves them.

use serde_json::json;

use crate::support::alertmanager::Alertmanager;
use crate::support::crisweep::Crisweep;
use crate::support::prometheus::{Alert, Prometheus, shipped_rules};
use crate::support::wait::{PATIENCE, wait_for};

const LITTER: [&str; 2] = [
    "CrisweepTooManyExitedContainers",
    "CrisweepTooManyNotReadySandboxes",
];

/// Returns the alerts that ask for a pass, also pending ones. Without the disk alert, whose figures are this
/// machine's.
fn asking(alerts: &[Alert]) -> Vec<&Alert> {
    let asks = |alert: &&Alert| {
        alert.labels.contains_key("crisweep")
            && alert.labels["alertname"] != "CrisweepImageFilesystemFull"
    };
    alerts.iter().filter(asks).collect()
}

#[tokio::test]
async fn after_a_good_pass_no_litter_alert_stands() {
    let dir = tempfile::tempdir().unwrap();
    // No receiver: the pass is started below.
    let alertmanager = Alertmanager::start(dir.path(), "http://127.0.0.1:9/").await;
    let demo = Crisweep::demo(dir.path(), json!({})).await;
    let targets = [demo.address.clone()];
    let rules = shipped_rules("1s");
    let prometheus = Prometheus::start(dir.path(), &targets, &rules, &alertmanager).await;
    wait_for("the litter alerts to fire", PATIENCE, || async {
        let alerts = prometheus.alerts().await?;
        let fires = |name: &&str| {
            let mut alerts = alerts.iter();
            alerts.any(|alert| alert.state == "firing" && alert.labels["alertname"] == **name)
        };
        if LITTER.iter().all(fires) {
            Ok(())
        } else {
            Err(format!("{alerts:?}"))
        }
    })
    .await;
    // The first pass is partial, because the five fail, and takes minutes on a busy machine.
    wait_for("a good pass", 4 * PATIENCE, || async {
        let (_, pass) = demo.post("/gc?wait=20s").await;
        let outcome = pass["outcome"].as_str().unwrap_or_default();
        if ["completed", "nothing-to-do"].contains(&outcome) {
            Ok(())
        } else {
            Err(pass.to_string())
        }
    })
    .await;
    wait_for("no litter alert to stand", PATIENCE, || async {
        let alerts = prometheus.alerts().await?;
        let dead = prometheus
            .query_one(r#"cri_pod_sandboxes{state="notready"}"#)
            .await?;
        match asking(&alerts).as_slice() {
            // Objects that must stay are still there, and no alert fires for them.
            [] if dead > 0.0 => Ok(()),
            left => Err(format!("{dead} dead sandboxes, {left:?}")),
        }
    })
    .await;
}
