//! Kubernetes Events of passes, and an API server that takes them or does not.

use crisweep_sim::{Cni, ContainerSpec, Fault, NodeBuilder, PodSpec, Rpc, hours};
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::kubelet::{Asked, PodServer, Reply};
use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// An API server that takes Events.
async fn api_server() -> PodServer {
    let server = PodServer::plain().await;
    server.reply(Reply::of("201 Created", "application/json", "{}"));
    server
}

/// A node that writes Events to it.
async fn node(node: NodeBuilder, server: &PodServer) -> Rig {
    let changes = json!({
        "pods": { "api_url": format!("http://{}", server.address) },
        "events": { "enabled": true, "pods": true },
        "evidence": { "enabled": true },
    });
    Rig::start(node, changes).await
}

fn series(result: &str) -> String {
    format!("crisweep_events_total{{result=\"{result}\"}}")
}

/// Waits until the metric of a result is this, and returns the requests.
async fn counted(rig: &Rig, server: &PodServer, result: &str, count: f64) -> Vec<Asked> {
    until(&series(result), || async {
        let page = rig.metrics().await;
        (page.get(&series(result)) == Some(count)).then_some(())
    })
    .await;
    server.asked()
}

fn body(asked: &Asked) -> Value {
    serde_json::from_str(&asked.body).unwrap()
}

/// Removes something more.
async fn another_pass(rig: &Rig, number: usize) -> Value {
    rig.sim.add_pod(&nodes::deleted(number, number + 1));
    rig.gc("target=containers").await
}

#[tokio::test]
async fn without_the_setting_nothing_is_asked() {
    let server = api_server().await;
    // The fleet's switch asks the same server.
    server.reply_to("GET ", Reply::status("404 Not Found"));
    let changes = json!({
        "pods": { "api_url": format!("http://{}", server.address) },
        "fleet": { "namespace": "gc", "hold_config_map": "brakes" },
    });
    let rig = Rig::start(nodes::litter(2), changes).await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    let asked = server.asked();
    assert!(asked.iter().all(|it| it.line.starts_with("GET ")));
    let page = rig.metrics().await;
    assert_eq!(page.get(&series("created")), None);
}

#[tokio::test]
async fn a_pass_is_told_on_the_node_and_the_next_one_is_added_to_it() {
    let server = api_server().await;
    let rig = node(nodes::litter(2), &server).await;
    let pass = rig.gc("").await;
    let asked = counted(&rig, &server, "created", 1.0).await;
    assert_eq!(asked[0].line, format!("POST {EVENTS}"));
    let event = body(&asked[0]);
    assert_eq!(
        event["involvedObject"],
        json!({ "kind": "Node", "name": "node-1", "uid": "node-1" })
    );
    assert_eq!(
        (&event["type"], &event["reason"], &event["count"]),
        (&json!("Normal"), &json!("GarbageCollected"), &json!(1))
    );
    assert_eq!(
        event["source"],
        json!({ "component": "crisweep", "host": "node-1" })
    );
    let message = event["message"].as_str().unwrap();
    for words in [
        "containers 2 removed; sandboxes 2 removed",
        "exited containers 2 -> 0",
        "asked by manual (uid",
        pass["id"].as_str().unwrap(),
    ] {
        assert!(message.contains(words), "{message}");
    }

    // A pass that removes nothing is not told.
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
    another_pass(&rig, 7).await;
    let asked = counted(&rig, &server, "repeated", 1.0).await;
    assert_eq!(asked.len(), 2);
    let name = event["metadata"]["name"].as_str().unwrap();
    assert_eq!(asked[1].line, format!("PATCH {EVENTS}/{name}"));
    let kind = asked[1].content_type.as_deref();
    assert_eq!(kind, Some("application/merge-patch+json"));
    let again = body(&asked[1]);
    assert_eq!(again["count"], 2);
    assert!(
        again["message"]
            .as_str()
            .unwrap()
            .contains("containers 1 removed")
    );
    assert!(again["lastTimestamp"].as_str() >= event["lastTimestamp"].as_str());

    // The API server has forgotten it.
    server.reply_to("PATCH ", Reply::status("404 Not Found"));
    another_pass(&rig, 8).await;
    let asked = counted(&rig, &server, "created", 2.0).await;
    let lines: Vec<&str> = asked.iter().map(|it| &it.line[..4]).collect();
    assert_eq!(lines, ["POST", "PATC", "PATC", "POST"]);
}

#[tokio::test]
async fn a_pass_that_failed_is_a_warning_without_secrets() {
    let server = api_server().await;
    let rig = node(nodes::leaks(2), &server).await;
    let long = "word ".repeat(400);
    let error = format!("password=hunter2 {long}");
    rig.sim
        .set_fault(Rpc::RemovePodSandbox, Fault::fail(Code::Unknown, error));
    assert_ne!(rig.gc("").await["outcome"], "completed");
    let asked = counted(&rig, &server, "created", 1.0).await;
    let event = body(&asked[0]);
    assert_eq!(
        (&event["type"], &event["reason"]),
        (&json!("Warning"), &json!("GarbageCollectionFailed"))
    );
    let message = event["message"].as_str().unwrap();
    assert!(
        message.len() <= 1024 && !message.contains("hunter2"),
        "{message}"
    );
    assert!(message.contains("sandboxes 2 failed"), "{message}");
}

#[tokio::test]
async fn a_finished_pod_hears_that_its_last_container_went() {
    let server = api_server().await;
    let killed = ContainerSpec::exited("app", 1, hours(2)).exit_code(137);
    let done = PodSpec::new("done")
        .exited("app", 0, hours(3))
        .container(killed)
        .succeeded();
    let rig = node(nodes::healthy().pod(done), &server).await;
    let id = rig.sim.container_id("default/done/app#1").unwrap();
    let pass = rig.gc("target=containers&max_dead=0").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 2, "{pass:#}");
    let asked = counted(&rig, &server, "created", 2.0).await;
    let events: Vec<Value> = asked.iter().map(body).collect();
    let of_pod = |it: &&Value| it["involvedObject"]["kind"] == "Pod";
    let [event] = &events.iter().filter(of_pod).collect::<Vec<_>>()[..] else {
        panic!("{events:#?}");
    };
    assert_eq!(event["involvedObject"]["name"], "done");
    assert_eq!(
        event["involvedObject"]["uid"],
        rig.sim.pod_uid("default/done").unwrap()
    );
    assert_eq!(event["reason"], "ContainerRecordsRemoved");
    let message = event["message"].as_str().unwrap();
    assert!(
        message.contains("app killed by SIGKILL (signal 9, exit code 137)"),
        "{message}"
    );
    let evidence = format!("on node node-1: crisweep evidence show {}", &id[..12]);
    assert!(message.contains(&evidence), "{message}");
}

#[tokio::test]
async fn a_deleted_pod_gets_none() {
    let server = api_server().await;
    let rig = node(nodes::litter(2), &server).await;
    rig.gc("").await;
    // The pass tells of its pods before it tells of itself.
    let asked = counted(&rig, &server, "created", 1.0).await;
    assert_eq!(asked.len(), 1);
    assert_eq!(body(&asked[0])["involvedObject"]["kind"], "Node");
}

#[tokio::test]
async fn a_storm_of_passes_is_no_storm_of_events() {
    let server = api_server().await;
    let rig = node(nodes::healthy(), &server).await;
    for number in 0..13 {
        another_pass(&rig, number).await;
    }
    until("each is counted", || async {
        let page = rig.metrics().await;
        let of = |result: &str| page.get(&series(result)).unwrap_or_default();
        (of("created") + of("repeated") + of("left-out") >= 13.0).then_some(())
    })
    .await;
    // Ten at once, and one more each 30 s on a machine that is slow.
    let requests = server.asked().len();
    assert!((10..13).contains(&requests), "{requests}");
}

#[tokio::test]
async fn what_the_api_server_refuses_is_counted_and_told_with_the_next_one() {
    let server = api_server().await;
    server.reply_to("POST ", Reply::status("403 Forbidden"));
    let rig = node(nodes::litter(2), &server).await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    counted(&rig, &server, "failed", 1.0).await;
    another_pass(&rig, 7).await;
    counted(&rig, &server, "failed", 2.0).await;
    let told = "an Event could not be written; later failures are counted only";
    let told = rig.logs(1, told).await;
    assert_eq!(told.len(), 1);
    assert!(told[0]["why"].as_str().unwrap().contains("403"), "{told:?}");
    server.reply_to("POST ", Reply::of("201 Created", "application/json", "{}"));
    another_pass(&rig, 8).await;
    let asked = counted(&rig, &server, "created", 1.0).await;
    let message = body(asked.last().unwrap())["message"].to_string();
    assert!(
        message.contains("(2 earlier Events of this node could not be written)"),
        "{message}"
    );
}

#[tokio::test]
async fn an_api_server_that_hangs_or_is_away_holds_no_pass() {
    let server = api_server().await;
    server.reply(Reply::silence());
    let rig = node(nodes::litter(2), &server).await;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    rig.gc("").await;
    // The first Event still waits for its answer: a pass that waited with it would have ended after its time.
    assert!(matches!(
        rig.metrics().await.get(&series("failed")),
        None | Some(0.0)
    ));
    rig.sim.heal_cni();
    assert_eq!(another_pass(&rig, 7).await["outcome"], "completed");
    counted(&rig, &server, "failed", 2.0).await;
    drop(server);
    assert_eq!(another_pass(&rig, 8).await["outcome"], "completed");
    until("the third fails", || async {
        let page = rig.metrics().await;
        (page.get(&series("failed")) == Some(3.0)).then_some(())
    })
    .await;
}

/// A burst of pods must not take the place of what the node itself has to say.
#[tokio::test]
async fn many_finished_pods_leave_the_node_its_event() {
    let server = api_server().await;
    let done = |number| {
        PodSpec::new(&format!("done-{number}"))
            .exited("app", 0, hours(3))
            .succeeded()
    };
    let node_with = (0..20).fold(nodes::healthy(), |node, number| node.pod(done(number)));
    let rig = node(node_with, &server).await;
    let pass = rig.gc("target=containers&max_dead=0").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 20, "{pass:#}");
    let asked = counted(&rig, &server, "created", 11.0).await;
    let kind = |kind: &str| {
        let of_kind = |it: &&Asked| body(it)["involvedObject"]["kind"] == kind;
        asked.iter().filter(of_kind).count()
    };
    assert_eq!((kind("Pod"), kind("Node")), (10, 1));
    assert_eq!(rig.metrics().await.get(&series("left-out")), Some(10.0));
}

#[tokio::test]
async fn a_pass_that_ends_with_the_service_is_told() {
    let server = api_server().await;
    let mut rig = node(nodes::litter(4), &server).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    rig.removing().await;
    rig.service.signal(Signal::TERM);
    let going = "shutting down: no new pass begins; removals in flight may finish";
    until_true(going, || rig.logged(going).len() == 1).await;
    rig.sim.clear_faults();
    rig.service.exited().await;
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{}", rig.log_text());
    let message = body(&asked[0])["message"].to_string();
    assert!(message.contains(&id), "{message}");
}

#[tokio::test]
async fn events_that_cannot_be_written_before_the_service_ends_are_named() {
    let server = api_server().await;
    server.reply(Reply::silence());
    let mut rig = node(nodes::litter(2), &server).await;
    rig.gc("target=containers").await;
    rig.service.signal(Signal::TERM);
    rig.service.exited().await;
    let lost = rig.logged("Events were not written in time");
    assert_eq!(lost.len(), 1, "{}", rig.log_text());
}
