//! Pod sources: each against a peer that works, fails or lies. An unreliable answer removes nothing, and
//! status and metrics say why.

pub(crate) mod api_server;
mod auto;
mod certificates;
mod kubeconfig;
mod kubelet;
mod kubelet_socket;

use serde_json::Value;

use crate::support::Rig;

/// The removals of `nodes::litter(LITTER)`, once the pods are known to be deleted.
const LITTER: usize = 3;

async fn status(rig: &Rig) -> Value {
    rig.get("/api/v1/status").await.json()["pods"].clone()
}

/// Asserts that nothing is removed, and that every output says why.
async fn keeps_all(rig: &Rig, words: &str) {
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{words}: {pass:#}");
    let mut errors = pass["errors"].as_array().unwrap().iter();
    let told = errors.any(|error| error.as_str().unwrap().contains(words));
    assert!(told, "{words}: {pass:#}");
    rig.nothing_was_touched();
    let status = status(rig).await;
    assert_eq!(status["known"], false, "{words}: {status:#}");
    let why = status["why"].as_str().unwrap();
    assert!(why.contains(words), "{words:?} is not in {why:?}");
}

/// The same for a failed source.
async fn fails(rig: &Rig, words: &str) {
    keeps_all(rig, words).await;
    let page = rig.metrics().await;
    page.is(r#"crisweep_collector_success{collector="pods"}"#, 0.0);
    let source = status(rig).await["source"].as_str().unwrap().to_owned();
    let sample = format!(r#"crisweep_pod_source_info{{source="{source}",state="failed"}}"#);
    page.is(&sample, 1.0);
}

/// Asserts that the litter is removed, and nothing else.
async fn cleans(rig: &Rig, source: &str) {
    let status = status(rig).await;
    assert_eq!(status["source"], source, "{status:#}");
    assert_eq!(status["known"], true, "{status:#}");
    let page = rig.metrics().await;
    page.is(r#"crisweep_collector_success{collector="pods"}"#, 1.0);
    let sample = format!(r#"crisweep_pod_source_info{{source="{source}",state="known"}}"#);
    page.is(&sample, 1.0);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], LITTER);
    assert_eq!(pass["targets"]["sandboxes"]["removed"], LITTER);
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
}

/// Asserts that no line of the log has this text.
fn never_logged(rig: &Rig, secret: &str) {
    for line in rig.log() {
        assert!(!line.to_string().contains(secret), "{line}");
    }
}
