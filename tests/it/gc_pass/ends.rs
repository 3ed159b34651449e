//! Passes that must end (deadline, cancel, SIGTERM) while something hangs. A pass starts nothing more, waits
//! no longer than its bounds, and names the removals that it gave up.

use std::time::{Duration, Instant};

use crisweep_sim::{Disk, Fault, Rpc};
use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::wait::until_true;
use crate::support::{Rig, nodes};

/// How long a pass may go on after its deadline, on a busy machine.
const LATE_MAX: SignedDuration = SignedDuration::from_millis(2_500);

fn time(pass: &Value, field: &str) -> Timestamp {
    pass[field].as_str().unwrap().parse().unwrap()
}

/// Asserts that the pass ended by its deadline, and not much after it.
#[track_caller]
fn ended_at_its_deadline(pass: &Value, deadline: SignedDuration) {
    let took = time(pass, "finished_at").duration_since(time(pass, "started_at"));
    assert!(
        took >= deadline && took < deadline + LATE_MAX,
        "{took} {pass:#}"
    );
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(
        pass["errors"].to_string().contains("gc.deadline"),
        "{pass:#}"
    );
}

fn patient(deadline: &str) -> Value {
    json!({
        "runtime": { "timeout": "20s", "removal_timeout": "25s" },
        "gc": { "deadline": deadline, "max_concurrency": 1 },
    })
}

#[tokio::test]
async fn no_removal_starts_after_the_deadline() {
    let deadline = SignedDuration::from_secs(2);
    let rig = Rig::start(nodes::litter(60), patient("2s")).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: Duration::from_millis(150),
            crowding: Duration::ZERO,
        }
    });
    let pass = rig.gc("target=containers").await;
    ended_at_its_deadline(&pass, deadline);
    let last = rig.removals().last().unwrap().at;
    let began = last.duration_since(time(&pass, "started_at"));
    // A call is in flight for a moment before the runtime records it.
    assert!(
        began < deadline + SignedDuration::from_millis(200),
        "{began}"
    );
}

#[tokio::test]
async fn a_removal_that_hangs_is_given_up_after_the_deadline_and_named() {
    let rig = Rig::start(nodes::litter(3), patient("2s")).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let pass = rig.gc("target=containers").await;
    ended_at_its_deadline(&pass, SignedDuration::from_secs(2));
    let id = &rig.subjects(Rpc::RemoveContainer)[0];
    let id = rig.sim.container_id(id).unwrap_or(id.clone());
    let errors = pass["errors"].to_string();
    assert!(errors.contains("still under way"), "{errors}");
    assert!(
        errors.contains(&format!("containers {id}")),
        "{errors} {id}"
    );
}

#[tokio::test]
async fn whatever_call_hangs_the_deadline_ends_the_pass() {
    let hangs = [
        Rpc::Version,
        Rpc::ListContainers,
        Rpc::ImageFsInfo,
        Rpc::ContainerStatus,
    ];
    let hangs = hangs.map(|rpc| async move {
        let rig = Rig::start(nodes::litter(3), patient("2s")).await;
        rig.sim.set_fault(rpc, Fault::hang());
        ended_at_its_deadline(&rig.gc("").await, SignedDuration::from_secs(2));
    });
    futures_util::future::join_all(hangs).await;
}

#[tokio::test]
async fn the_deadline_ends_the_wait_for_a_stopped_or_hanging_runtime() {
    let rig = Rig::start(nodes::litter(3), patient("3s")).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("").await;
    rig.removing().await;
    rig.sim.stop().await;
    rig.sim.set_fault(Rpc::Version, Fault::hang());
    rig.sim.start().unwrap();
    let pass = rig.finished(&id).await;
    ended_at_its_deadline(&pass, SignedDuration::from_secs(3));
    rig.sim.clear_faults();
}

/// Brings a pass to the point where all remaining removals are in flight and hang; returns the pass's id and
/// the hung object.
async fn last_one_hangs(rig: &Rig) -> (String, String) {
    let hanging = rig.sim.sandbox_id("default/old-2#0").unwrap();
    rig.sim.set_removal_fault(&hanging, Fault::hang());
    let pass = rig.begin_gc("").await;
    until_true("one is left", || {
        rig.dead_sandboxes() == 1 && rig.sim.removals_in_flight() == 1
    })
    .await;
    (pass, hanging)
}

fn slow_to_give_up() -> Value {
    json!({ "runtime": { "timeout": "40s", "removal_timeout": "40s" } })
}

#[tokio::test]
async fn sigterm_while_the_last_removal_hangs_ends_the_process_in_time() {
    let mut rig = Rig::start(nodes::litter(3), slow_to_give_up()).await;
    let (id, hanging) = last_one_hangs(&rig).await;
    let began = Instant::now();
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    let named = format!("sandboxes {hanging}");
    let warned = rig
        .log()
        .iter()
        .any(|line| line["message"].to_string().contains(&named));
    assert!(warned, "the log does not name what was given up");
    rig.sim.clear_faults();
    rig.begin().await;
    let pass = rig.pass(&id).await;
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");
    assert!(pass["errors"].to_string().contains(&named), "{pass:#}");
}

#[tokio::test]
async fn a_cancel_while_the_last_removal_hangs_ends_the_pass_in_time() {
    let rig = Rig::start(nodes::litter(3), slow_to_give_up()).await;
    let (id, hanging) = last_one_hangs(&rig).await;
    let began = Instant::now();
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    let pass = rig.finished(&id).await;
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");
    assert!(
        pass["errors"]
            .to_string()
            .contains(&format!("sandboxes {hanging}")),
        "{pass:#}"
    );
    rig.sim.clear_faults();
}

#[tokio::test]
async fn sigterm_while_every_call_hangs_ends_the_process_in_time() {
    let mut rig = Rig::start(nodes::litter(3), slow_to_give_up()).await;
    for rpc in Rpc::ALL {
        rig.sim.set_fault(*rpc, Fault::hang());
    }
    rig.begin_gc("").await;
    let began = Instant::now();
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn a_removal_that_did_not_happen_makes_the_pass_partial() {
    let rig = Rig::start(nodes::litter(4), json!({})).await;
    let lied = [0, 1, 2].map(|number| format!("default/old-{number}/app#0"));
    for subject in &lied {
        let id = rig.sim.container_id(subject).unwrap();
        rig.sim.set_removal_fault(&id, Fault::pretend());
    }
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let report = &pass["targets"]["containers"];
    assert_eq!(report["removed"], 4);
    assert_eq!(report["still_listed"], 3);
    assert_eq!(report["remaining"], 3);
    assert_eq!(pass["before"]["exited_containers"], 4);
    assert_eq!(pass["after"]["exited_containers"], 3);
    let errors = pass["errors"].to_string();
    let error = "containers: 3 of 4 removed or gone are still listed";
    assert!(errors.contains(error), "{errors}");
    let asked = rig.subjects(Rpc::RemoveContainer);
    assert_eq!(
        asked.len(),
        4,
        "what did not go is the next pass's: {asked:?}"
    );
    let page = rig.metrics().await;
    page.is("crisweep_last_pass_remaining{target=\"containers\"}", 3.0);
    for moment in ["before", "after"] {
        let figure = |name: &str| pass[moment][name].as_f64().unwrap();
        page.is(
            &format!("crisweep_last_pass_dead{{target=\"containers\",moment=\"{moment}\"}}"),
            figure("exited_containers"),
        );
        page.is(
            &format!("crisweep_last_pass_list_bytes{{list=\"containers\",moment=\"{moment}\"}}"),
            figure("containers_list_bytes"),
        );
    }
}

#[tokio::test]
async fn what_is_said_to_be_gone_and_is_listed_makes_the_pass_partial() {
    let rig = Rig::start(nodes::litter(4), json!({})).await;
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    let gone = Fault::fail(Code::NotFound, "no such container");
    rig.sim.set_status_fault(&id, gone);
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["removed"], &report["already_gone"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(
        (&report["still_listed"], &report["remaining"]),
        (&json!(1), &json!(1))
    );
    let errors = pass["errors"].to_string();
    let error = "containers: 1 of 4 removed or gone are still listed";
    assert!(errors.contains(error), "{errors}");
}

#[tokio::test]
async fn what_goes_after_its_removal_timed_out_does_not_remain() {
    let changes = json!({ "runtime": { "timeout": "10s", "removal_timeout": "2s" } });
    let rig = Rig::start(nodes::litter(4), changes).await;
    let [first, second] = [0, 1].map(|number| {
        rig.sim
            .container_id(&format!("default/old-{number}/app#0"))
            .unwrap()
    });
    for id in [&first, &second] {
        rig.sim.set_removal_fault(id, Fault::hang());
    }
    let pass = rig.begin_gc("target=containers").await;
    until_true("both hang", || rig.sim.removals_in_flight() == 2).await;
    assert!(rig.sim.change(|node| node.vanish_container(&first)));
    let pass = rig.finished(&pass).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(report["remaining"], 1, "{pass:#}");
    assert_eq!(pass["after"]["exited_containers"], 1);
}
