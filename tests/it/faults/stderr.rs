//! A standard error that is no longer read: each log line would block its writer.

use rustix::process::Signal;
use serde_json::json;

use super::answers;
use crate::support::pipe::Pipe;
use crate::support::service::Service;
use crate::support::{Rig, nodes, until};

const DROPPED: &str = "crisweep_log_lines_dropped_total";

/// Starts a rig whose service logs each frame of its connections into a full pipe.
async fn rig() -> (Rig, Pipe) {
    let mut rig = Rig::start(nodes::litter(30), json!({})).await;
    rig.configure(&json!({ "log": { "level": "trace,h2=trace" } }));
    rig.kill().await;
    let (service, pipe) = Service::start_piped(&rig.config_file()).await;
    rig.service = service;
    rig.ready().await;
    pipe.fill();
    (rig, pipe)
}

#[tokio::test]
async fn a_full_standard_error_blocks_nothing_and_dropped_lines_are_reported() {
    let (mut rig, pipe) = rig().await;
    until("lines are dropped", || async {
        answers(&rig).await;
        let metrics = rig.metrics().await;
        (metrics.get(DROPPED) > Some(0.0)).then_some(())
    })
    .await;
    let pass = rig.gc("target=containers&target=sandboxes").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    // Read on: the log continues, reports the dropped lines, and ends with its last line.
    let log = pipe.read_on();
    let lacks = "lines of the log were dropped";
    until("the log says what it lacks", || async {
        rig.get("/-/healthy").await;
        log.text().contains(lacks).then_some(())
    })
    .await;
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0));
    let text = log.all();
    let last = text
        .lines()
        .rfind(|line| line.contains("crisweep") || line.contains("down"));
    assert!(last.unwrap().contains(r#""message":"down""#), "{last:?}");
}

#[tokio::test]
async fn a_full_standard_error_does_not_keep_the_process() {
    let (mut rig, pipe) = rig().await;
    answers(&rig).await;
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0));
    drop(pipe);
}
