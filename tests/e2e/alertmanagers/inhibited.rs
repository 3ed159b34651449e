//! The inhibition rules that `alerts/alertmanager.sample.yaml` ships.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{X, Y, fire, forky, trixie};
use crate::support::alertmanager::Alertmanager;
use crate::support::release::Release;
use crate::support::wait::{PATIENCE, wait_for};

/// Returns a part of the sample.
fn shipped(key: &str) -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/alerts/alertmanager.sample.yaml"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let sample: Value = serde_saphyr::from_str(&text).unwrap();
    sample[key].clone()
}

/// Returns whether each alert is inhibited.
async fn inhibited(alertmanager: &Alertmanager) -> Result<BTreeMap<String, bool>, String> {
    let alerts = alertmanager.alerts().await?;
    let one = |alert: &Value| {
        let labels = &alert["labels"];
        let name = format!("{} {}", labels["alertname"], labels["node"]).replace('"', "");
        let by = alert["status"]["inhibitedBy"].as_array();
        (name, by.is_some_and(|by| !by.is_empty()))
    };
    Ok(alerts.iter().map(one).collect())
}

/// The receivers of the sample would send to this machine's own crisweep, so only its inhibition rules are taken.
async fn inhibits(release: Release) {
    let dir = tempfile::tempdir().unwrap();
    let config = json!({
        "route": { "receiver": "people" },
        "inhibit_rules": shipped("inhibit_rules"),
        "receivers": [{ "name": "people" }],
    });
    let alertmanager =
        Alertmanager::start_release(dir.path(), &release.program, &config, &[]).await;
    let on = |node| json!({ "job": "crisweep", "instance": node, "crisweep": "" });
    for (name, node) in [
        ("CrisweepSweepDidNotHelp", X),
        ("CrisweepPassesFailing", X),
        ("CrisweepPassesFreeNothing", X),
        ("CrisweepPassesFailing", Y),
    ] {
        fire(&alertmanager, name, node, &on(node)).await;
    }
    let asks = json!({ "job": "crisweep", "instance": X, "crisweep": "all" });
    fire(&alertmanager, "CrisweepListNearLimit", X, &asks).await;
    let expected = BTreeMap::from(
        [
            ("CrisweepSweepDidNotHelp node-x", false),
            ("CrisweepPassesFailing node-x", true),
            ("CrisweepPassesFreeNothing node-x", true),
            // Another node is another matter, and what asks crisweep for a pass must reach it.
            ("CrisweepPassesFailing node-y", false),
            ("CrisweepListNearLimit node-x", false),
        ]
        .map(|(name, is)| (name.to_owned(), is)),
    );
    wait_for("the page to inhibit what says less", PATIENCE, || async {
        let found = inhibited(&alertmanager).await?;
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn the_page_inhibits_what_says_less_at_the_installed_alertmanager() {
    inhibits(Release::installed()).await;
}

#[tokio::test]
async fn the_page_inhibits_what_says_less_at_the_alertmanager_of_trixie() {
    if let Some(release) = trixie() {
        inhibits(release).await;
    }
}

#[tokio::test]
async fn the_page_inhibits_what_says_less_at_the_alertmanager_of_forky() {
    if let Some(release) = forky() {
        inhibits(release).await;
    }
}
