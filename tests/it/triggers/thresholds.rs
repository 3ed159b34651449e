//! `thresholds`: a node that Prometheus and Alertmanager cannot reach cleans itself.

use crisweep_sim::{NodeBuilder, Options, PodSpec, seconds};
use serde_json::{Value, json};

use super::pass_by;
use crate::pods::api_server::{ApiServer, answer};
use crate::support::{Rig, nodes, until};

/// Thresholds of which only one can be crossed.
fn thresholds(key: &str, value: impl Into<Value>) -> Value {
    let mut thresholds = json!({
        "enabled": true,
        "interval": "100ms",
        "exited_containers": 0,
        "not_ready_sandboxes": 0,
        "list_limit_ratio": 0,
        "image_fs_used_percent": 0,
    });
    thresholds[key] = value.into();
    json!({ "thresholds": thresholds })
}

fn targets(pass: &Value) -> Vec<&String> {
    pass["targets"].as_object().unwrap().keys().collect()
}

#[tokio::test]
async fn a_crossed_threshold_starts_a_pass_over_the_targets_that_help() {
    for (key, value) in [
        ("exited_containers", json!(3)),
        ("not_ready_sandboxes", json!(3)),
        ("list_limit_ratio", json!(1e-6)),
    ] {
        let rig = Rig::start(nodes::litter(3), thresholds(key, value)).await;
        let pass = pass_by(&rig, "threshold").await;
        assert_eq!(pass["outcome"], "completed", "{key}: {pass:#}");
        assert_eq!(targets(&pass), ["containers", "sandboxes"], "{key}");
        assert_eq!(
            (rig.exited_containers(), rig.dead_sandboxes()),
            (0, 0),
            "{key}"
        );
    }
}

/// Starts beside a kubelet that is blind for 40 pods which ended 5 s ago.
async fn blind(changes: Value) -> Rig {
    let ended = |n| {
        PodSpec::new(&format!("gone-{n}"))
            .exited("app", 0, seconds(5))
            .deleted()
    };
    let node = NodeBuilder::new().pod(PodSpec::new("web").running("app", 0));
    let options = Options {
        send_limit_bytes: 30_000,
        ..Options::default()
    };
    Rig::with(node.pods(40, ended).build(), options, changes).await
}

/// Nothing on the node ended long enough before the kubelet went blind, so that only a risk makes the list fit.
#[tokio::test]
async fn a_list_over_its_limit_asks_for_a_pass_also_where_only_a_risk_makes_it_fit() {
    let api_server = ApiServer::start().await;
    let mut changes = thresholds("list_limit_ratio", 0.75);
    changes["pods"] = api_server.config("api-server")["pods"].clone();
    changes["pods"]["quiet"] = json!("1h");
    changes["policy"] =
        json!({ "containers": { "min_age": "0s" }, "sandboxes": { "min_age": "0s" } });
    let rig = blind(changes).await;
    api_server.set_answer(&answer(&rig.sim));
    until("the lists fit", || async {
        rig.logged("the lists fit; the kubelet may sync").pop()
    })
    .await;
    let pass = pass_by(&rig, "threshold").await;
    assert!(pass["errors"].to_string().contains("risked"), "{pass:#}");
}

/// A rescue takes a risk only with pods that the API server confirms.
#[tokio::test]
async fn a_list_over_its_limit_asks_for_no_pass_where_pods_are_only_assumed_to_be_over() {
    let api_server = ApiServer::start().await;
    let mut changes = thresholds("list_limit_ratio", 0.75);
    changes["pods"] = api_server.config("api-server")["pods"].clone();
    changes["pods"]["quiet"] = json!("1h");
    changes["pods"]["assume_finished_after"] = json!("1s");
    let policy = json!({ "min_age": "0s", "max_dead": 0 });
    changes["policy"] = json!({ "containers": policy, "sandboxes": policy });
    let rig = blind(changes).await;
    // A list that lacks what lives proves nothing.
    let mut pods = answer(&rig.sim);
    pods["items"] = json!([]);
    api_server.set_answer(&pods);
    let state = "crisweep_pod_source_info{source=\"api-server\",state=\"incomplete\"}";
    until("the list is not believed", || async {
        rig.metrics().await.get(state)
    })
    .await;
    let before = rig.passes().await.len();
    looked(&rig, 6).await;
    assert_eq!(
        rig.passes().await.len(),
        before,
        "{:#?}",
        rig.passes().await[0]
    );
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_threshold_that_is_not_reached_is_shown_and_asks_for_nothing() {
    let rig = Rig::start(nodes::litter(3), thresholds("exited_containers", 4)).await;
    looked(&rig, 3).await;
    rig.nothing_was_touched();
    assert_eq!(rig.passes().await, Vec::<Value>::new());
    let page = rig.metrics().await;
    page.is(
        "crisweep_threshold_crossed{threshold=\"exited_containers\"}",
        0.0,
    );
    let off = "crisweep_threshold_crossed{threshold=\"list_limit_ratio\"}";
    assert_eq!(page.get(off), None, "switched off");
}

#[tokio::test]
async fn thresholds_are_shown_even_if_they_start_no_passes() {
    let mut changes = thresholds("exited_containers", 3);
    changes["thresholds"]["enabled"] = json!(false);
    let rig = Rig::start(nodes::litter(3), changes).await;
    let page = rig.metrics().await;
    page.is(
        "crisweep_threshold_crossed{threshold=\"exited_containers\"}",
        1.0,
    );
    assert_eq!(rig.passes().await, Vec::<Value>::new());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_threshold_crossed_by_kept_objects_only_starts_no_pass() {
    let mut changes = thresholds("exited_containers", 3);
    changes["policy"] =
        json!({ "containers": { "min_age": "10h" }, "sandboxes": { "min_age": "10h" } });
    let rig = Rig::start(nodes::litter(3), changes).await;
    looked(&rig, 3).await;
    assert_eq!(rig.passes().await, Vec::<Value>::new());
    let page = rig.metrics().await;
    page.is(
        "crisweep_threshold_crossed{threshold=\"exited_containers\"}",
        1.0,
    );
    rig.nothing_was_touched();
}

#[tokio::test]
async fn in_mode_observe_each_crossing_shows_once_what_a_pass_would_remove() {
    let mut changes = thresholds("exited_containers", 3);
    changes["mode"] = json!("observe");
    let mut rig = Rig::start(nodes::litter(3), changes).await;
    assert_eq!(pass_by(&rig, "threshold").await["outcome"], "planned");
    looked(&rig, 3).await;
    assert_eq!(rig.passes().await.len(), 1);
    // It ends, and comes again.
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    rig.sim.change(|node| node.vanish_container(&id));
    looked(&rig, 3).await;
    rig.sim.add_pod(&nodes::deleted(3, 4));
    until("another pass", || async {
        (rig.passes().await.len() == 2).then_some(())
    })
    .await;
    rig.nothing_was_touched();
    rig.configure(&json!({ "mode": "enforce" }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    until("a pass that removes", || async {
        (rig.exited_containers() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn brakes_bind_thresholds() {
    let mut changes = thresholds("exited_containers", 1);
    changes["brakes"] = json!({ "pause": true });
    let mut rig = Rig::start(nodes::litter(2), changes).await;
    looked(&rig, 3).await;
    assert_eq!(rig.passes().await, Vec::<Value>::new());
    rig.nothing_was_touched();
    rig.configure(&json!({ "brakes": { "pause": false } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    assert_eq!(pass_by(&rig, "threshold").await["outcome"], "completed");
}

/// Waits until the service has taken this many more looks.
async fn looked(rig: &Rig, times: u64) {
    let lists = || rig.sim.call_count(crisweep_sim::Rpc::ListPodSandbox);
    let before = lists();
    until("some looks at the node", || {
        let enough = (lists() >= before + times).then_some(());
        async move { enough }
    })
    .await;
}
