//! SIGTERM during a pass.

use std::time::Duration;

use crisweep_sim::{Disk, Fault, Rpc};
use rustix::process::Signal;
use serde_json::json;

use crate::support::wait::until_true;
use crate::support::{Answer, Rig, nodes};

#[tokio::test]
async fn nothing_more_is_started_and_it_exits_with_0_in_bounded_time() {
    let changes = json!({
        "runtime": { "removal_timeout": "2s" },
        "gc": { "max_concurrency": 1 },
    });
    let mut rig = Rig::start(nodes::litter(30), changes).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    rig.begin_gc("").await;
    rig.removing().await;
    rig.service.signal(Signal::TERM);
    until_true("it goes down", || {
        rig.log().iter().any(|line| line["signal"] == "SIGTERM")
    })
    .await;
    let tried = rig.removals().len();
    for path in ["/gc", "/webhook/alertmanager"] {
        // Clients that still connect get an error; then the port closes.
        if let Ok(answer) = Answer::try_of(rig.request("POST", path)).await {
            assert!([400, 503].contains(&answer.status), "{}", answer.text);
        }
    }
    assert_eq!(rig.service.exited().await.code(), Some(0));
    assert_eq!(rig.removals().len(), tried);
    assert_eq!(rig.exited_containers(), 30);
    assert_eq!(rig.logged("down").len(), 1);
}

#[tokio::test]
async fn a_caller_waiting_for_a_pass_gets_its_result_during_shutdown() {
    let mut rig = Rig::start(nodes::litter(10), json!({ "gc": { "max_concurrency": 1 } })).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: Duration::from_secs(5),
            crowding: Duration::ZERO,
        }
    });
    let request = rig.request("POST", "/gc?wait=60s");
    let waiting = tokio::spawn(Answer::try_of(request));
    rig.removing().await;
    rig.service.signal(Signal::TERM);
    let answer = waiting.await.unwrap().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    let pass = answer.json();
    assert_eq!(pass["outcome"], "aborted");
    assert!(pass["errors"].to_string().contains("going down"), "{pass}");
    assert_eq!(rig.service.exited().await.code(), Some(0));
    // Removals in flight had time to end.
    let removed = pass["targets"]["containers"]["removed"].as_u64().unwrap();
    assert_eq!(removed, u64::try_from(rig.removals().len()).unwrap());
    assert!(removed > 0);
}

#[tokio::test]
async fn an_idle_service_exits_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut rig = Rig::start(nodes::healthy(), json!({})).await;
        rig.service.signal(signal);
        assert_eq!(rig.service.exited().await.code(), Some(0));
    }
}
