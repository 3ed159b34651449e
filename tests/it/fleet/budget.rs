//! The budget: slots are Leases.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crisweep_sim::{Fault, Rpc};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{absent, config, state};
use crate::alerts::hook::{alert, pass_of, sent};
use crate::support::kubelet::PodServer;
use crate::support::{Rig, nodes, until};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/gc/leases/crisweep-budget-0";

/// An API server with one slot, which nobody has held yet.
async fn api_server() -> PodServer {
    let server = PodServer::plain().await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "crisweep-budget-0", "labels": { "of": "the chart" } },
    });
    server.keep(LEASE, lease);
    server
}

async fn node(name: &str, server: &PodServer) -> Rig {
    node_with(name, server, "3s").await
}

async fn node_with(name: &str, server: &PodServer, lease_duration: &str) -> Rig {
    let changes = json!({
        "node": { "name": name },
        "pods": { "api_url": format!("http://{}", server.address) },
        "runtime": { "removal_timeout": "60s" },
        "fleet": { "namespace": "gc", "budget": { "max_nodes": 1, "lease_duration": lease_duration } },
    });
    Rig::start(nodes::litter(6), changes).await
}

/// Asks for a pass by alert; returns its id.
async fn asked(rig: &Rig) -> String {
    let alert = alert(&json!({ "alertname": "TooMany", "crisweep": "containers" }));
    pass_of(&sent(rig, alert, 202, "accepted").await)
}

/// Another node holds the slot, and does not renew it.
fn hold_by_another(server: &PodServer) {
    let mut lease = server.kept(LEASE);
    lease["spec"] = json!({ "holderIdentity": "n0", "leaseDurationSeconds": 3 });
    server.keep(LEASE, lease);
}

fn holder(server: &PodServer) -> Value {
    server.kept(LEASE)["spec"]["holderIdentity"].clone()
}

/// Waits until the server was asked for the Lease so many times more.
async fn looked(server: &PodServer, times: usize) {
    let before = server.asked().len();
    until("the Lease is looked at", || async {
        (server.asked().len() >= before + times).then_some(())
    })
    .await;
}

fn time(pass: &Value, key: &str) -> Timestamp {
    pass[key].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn two_nodes_never_pass_at_the_same_time_with_one_slot() {
    let server = api_server().await;
    // A loaded machine may renew a shorter Lease too late.
    let one = node_with("n1", &server, "9s").await;
    let other = node_with("n2", &server, "9s").await;
    one.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let first = asked(&one).await;
    one.removing().await;
    assert_eq!(holder(&server), "n1");
    let second = asked(&other).await;
    // Longer than the Lease: it is renewed, and `n2` looks again and again.
    looked(&server, 7).await;
    assert_eq!(other.pass(&second).await["state"], "queued");
    let status = other.get("/api/v1/status").await.json();
    assert_eq!(status["brakes"]["holding"], json!(["fleet-budget"]));
    assert_eq!(status["fleet"]["budget"]["wanted"], true, "{status:#}");
    // A person needs no slot.
    assert_eq!(
        other.gc("max_removals=1&target=sandboxes").await["outcome"],
        "nothing-to-do"
    );
    one.sim.clear_faults();
    let (first, second) = (one.finished(&first).await, other.finished(&second).await);
    assert_eq!(
        (&first["outcome"], &second["outcome"]),
        (&json!("completed"), &json!("completed"))
    );
    assert!(
        time(&first, "finished_at") <= time(&second, "started_at"),
        "{first:#} {second:#}"
    );
    until("the slot is given back", || async {
        (holder(&server) == "").then_some(())
    })
    .await;
    let lease = server.kept(LEASE);
    assert_eq!(lease["metadata"]["labels"]["of"], "the chart");
    assert_eq!(lease["spec"]["leaseTransitions"], 2);
    let written = lease["metadata"]["resourceVersion"].as_str().unwrap();
    let mut replaced = BTreeSet::new();
    for asked in server.asked() {
        let (method, path) = asked.line.split_once(' ').unwrap();
        assert!(
            path == LEASE && ["GET", "PUT"].contains(&method),
            "{}",
            asked.line
        );
        if method == "PUT" {
            let lease: Value = serde_json::from_str(&asked.body).unwrap();
            let version = lease["metadata"]["resourceVersion"].as_str().unwrap();
            replaced.insert(version.parse::<u64>().unwrap());
        }
    }
    // Each write names the version that it replaces.
    assert_eq!(replaced, (1..written.parse().unwrap()).collect());
}

#[tokio::test]
async fn a_budget_that_comes_by_reload_leaves_the_running_pass() {
    let server = api_server().await;
    server.reply(absent());
    let mut rig = Rig::start(nodes::litter(6), config(&server)).await;
    state(&rig, "free").await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = asked(&rig).await;
    rig.removing().await;
    rig.configure(&json!({ "fleet": { "budget": { "max_nodes": 1 } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    until("the budget is in force", || async {
        let status = rig.get("/api/v1/status").await.json();
        status["fleet"]["budget"].is_object().then_some(())
    })
    .await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
}

#[tokio::test]
async fn the_slot_of_a_node_that_was_killed_is_free_after_its_duration() {
    let server = api_server().await;
    let (mut one, other) = (node("n1", &server).await, node("n2", &server).await);
    one.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    asked(&one).await;
    one.removing().await;
    let second = asked(&other).await;
    looked(&server, 3).await;
    one.kill().await;
    let renewed = server.kept(LEASE)["spec"]["renewTime"].clone();
    let renewed: Timestamp = renewed.as_str().unwrap().parse().unwrap();
    let pass = other.finished(&second).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let waited = time(&pass, "started_at").duration_since(renewed);
    assert!(waited.as_secs() >= 3, "{waited}");
    one.sim.clear_faults();
    one.begin().await;
}

#[tokio::test]
async fn without_the_api_server_alerts_wait_and_people_go_on() {
    let server = api_server().await;
    server.set_away(true);
    let rig = node("n1", &server).await;
    let waiting = asked(&rig).await;
    looked(&server, 3).await;
    assert_eq!(rig.pass(&waiting).await["state"], "queued");
    let status = rig.get("/api/v1/status").await.json();
    assert!(
        status["fleet"]["budget"]["error"]
            .to_string()
            .contains("503"),
        "{status:#}"
    );
    assert_eq!(
        rig.logged("no slot for automatic passes can be taken")
            .len(),
        1
    );
    assert_eq!(
        rig.gc("max_removals=1&target=sandboxes").await["trigger"]["cause"],
        "manual"
    );
    rig.nothing_was_touched();
    server.set_away(false);
    assert_eq!(rig.finished(&waiting).await["outcome"], "completed");
}

#[tokio::test]
async fn another_nodes_name_in_the_lease_ends_the_pass() {
    let server = api_server().await;
    let rig = node("n1", &server).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = asked(&rig).await;
    rig.removing().await;
    let mut lease = server.kept(LEASE);
    lease["spec"]["holderIdentity"] = json!("n2");
    server.keep(LEASE, lease);
    until("the pass is told", || async {
        let told = rig.logged("a brake of the fleet ends the pass");
        (!told.is_empty()).then_some(())
    })
    .await;
    rig.sim.clear_faults();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(
        pass["errors"].to_string().contains("fleet.budget"),
        "{pass:#}"
    );
    assert_eq!(holder(&server), "n2");
}

#[tokio::test]
async fn a_slot_that_cannot_be_renewed_is_lost_and_ends_the_pass() {
    let server = api_server().await;
    let rig = node("n1", &server).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = asked(&rig).await;
    rig.removing().await;
    server.set_away(true);
    until("the pass is told", || async {
        let told = rig.logged("a brake of the fleet ends the pass");
        (!told.is_empty()).then_some(())
    })
    .await;
    rig.sim.clear_faults();
    assert_eq!(rig.finished(&id).await["outcome"], "partial");
}

#[tokio::test]
async fn a_node_with_more_to_do_leaves_the_slot_to_the_next_one() {
    let server = api_server().await;
    let (one, other) = (node("n1", &server).await, node("n2", &server).await);
    one.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let first = asked(&one).await;
    one.removing().await;
    let others = asked(&other).await;
    // Another alert about other targets: no cool-down holds its pass.
    let more = alert(&json!({ "alertname": "More", "crisweep": "sandboxes" }));
    let second = pass_of(&sent(&one, more, 202, "accepted").await);
    looked(&server, 3).await;
    one.sim.clear_faults();
    one.finished(&first).await;
    let others = other.finished(&others).await;
    let second = one.finished(&second).await;
    assert!(
        time(&others, "finished_at") <= time(&second, "started_at"),
        "{others:#} {second:#}"
    );
    let transitions = &server.kept(LEASE)["spec"]["leaseTransitions"];
    assert_eq!(*transitions, 3);
}

#[tokio::test]
async fn a_lease_that_was_seen_for_an_earlier_pass_is_watched_anew() {
    let server = api_server().await;
    hold_by_another(&server);
    let rig = node("n1", &server).await;
    let earlier = asked(&rig).await;
    looked(&server, 1).await;
    let seen = Instant::now();
    rig.delete(&format!("/api/v1/passes/{earlier}")).await;
    until("the time of the Lease to be over", || async {
        (seen.elapsed() > Duration::from_secs(5)).then_some(())
    })
    .await;
    // The version may be that of a restored etcd, and `n0` at work.
    let id = asked(&rig).await;
    let pass = rig.finished(&id).await;
    let waited = time(&pass, "started_at").duration_since(time(&pass, "queued_at"));
    assert!(waited.as_secs() >= 2, "{pass:#}");
}

#[tokio::test]
async fn passes_without_a_slot_do_not_prolong_the_wait_for_one() {
    let server = api_server().await;
    hold_by_another(&server);
    let rig = node("n1", &server).await;
    let waiting = asked(&rig).await;
    let begins = || async { rig.pass(&waiting).await["state"] != "queued" };
    // Each begins less than the time of the Lease after the one before.
    let mut people = 0;
    while !begins().await && people < 100 {
        looked(&server, 1).await;
        rig.gc("dry_run=true").await;
        people += 1;
    }
    assert!(begins().await, "after {people} passes of people");
    assert!(people > 1);
    assert_eq!(rig.finished(&waiting).await["outcome"], "completed");
}

#[tokio::test]
async fn the_status_keeps_no_error_of_slots_that_no_pass_wants() {
    let server = api_server().await;
    server.set_away(true);
    let rig = node("n1", &server).await;
    let error = || async {
        let status = rig.get("/api/v1/status").await.json();
        status["fleet"]["budget"]["error"].clone()
    };
    let waiting = asked(&rig).await;
    until("the error", || async { error().await.as_str().map(drop) }).await;
    rig.delete(&format!("/api/v1/passes/{waiting}")).await;
    until("no error", || async { error().await.as_null() }).await;
}
