//! `GET /api/v1/events`.

use crisweep_sim::{Fault, Rpc};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Follow, Rig, nodes, until};

/// Returns the next event with its data; `None` at the end.
async fn event(stream: &mut Follow) -> Option<(String, Value)> {
    let mut name = String::new();
    loop {
        let line = stream.line().await?;
        if let Some(text) = line.strip_prefix("event: ") {
            text.clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            return Some((name, serde_json::from_str(data).unwrap()));
        }
    }
}

async fn listen(rig: &Rig) -> Follow {
    let stream = Follow::begin(rig.request("GET", "/api/v1/events")).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream"));
    assert_eq!(stream.header("x-accel-buffering"), Some("no"));
    stream
}

#[tokio::test]
async fn a_listener_sees_a_pass_begin_move_and_end_without_asking_the_runtime() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let looks = rig.sim.calls_of(Rpc::ListContainers).len();
    let mut stream = listen(&rig).await;
    let (name, state) = event(&mut stream).await.unwrap();
    assert_eq!(name, "state");
    assert_eq!(
        (&state["running"], &state["last_pass"]),
        (&Value::Null, &Value::Null)
    );
    assert!(state["look"].is_string(), "{state}");
    assert_eq!(rig.sim.calls_of(Rpc::ListContainers).len(), looks);

    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    let (mut has_run, mut told) = (false, false);
    while !(has_run && told) {
        let (name, data) = event(&mut stream).await.unwrap();
        has_run |= name == "pass" && data["id"] == *id && data["state"] == "running";
        told |= name == "state" && data["running"] == *id;
    }
    rig.sim.clear_faults();
    let end = loop {
        let (name, data) = event(&mut stream).await.unwrap();
        if name == "pass" && data["state"] == "done" {
            break data;
        }
    };
    assert_eq!(end, rig.finished(&id).await);
    let after = loop {
        let (name, data) = event(&mut stream).await.unwrap();
        if name == "state" && data["running"].is_null() {
            break data;
        }
    };
    assert_eq!(after["last_pass"], *id);
}

#[tokio::test]
async fn listeners_are_bounded_and_block_nobody() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let mut streams = Vec::new();
    for _ in 0..16 {
        let mut stream = listen(&rig).await;
        event(&mut stream).await.unwrap();
        streams.push(stream);
    }
    let answer = rig.get("/api/v1/events").await;
    answer.refused(503, "16 listeners to events are already being answered");
    assert_eq!(rig.get("/").await.status, 200);
    drop(streams);
    until("there is room again", || async {
        let request = rig.request("GET", "/api/v1/events");
        (request.send().await.unwrap().status() == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn listening_ends_with_the_service() {
    let mut rig = Rig::start(nodes::healthy(), json!({})).await;
    let mut stream = listen(&rig).await;
    event(&mut stream).await.unwrap();
    rig.signal(Signal::TERM);
    while event(&mut stream).await.is_some() {}
    assert!(rig.service.exited().await.success());
    assert!(!rig.log_text().contains("open connections were closed"));
}
