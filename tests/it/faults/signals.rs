//! SIGTERM and SIGKILL at each point of a pass.

use crisweep_sim::{Fault, Rpc};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::cleans;
use crate::state::rows;
use crate::support::wait::until_true;
use crate::support::{Rig, nodes, until};

const LITTER: usize = 6;

/// The point of a pass at which the signal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// In its first look.
    FirstLook,
    /// After this many containers, while the next is in flight.
    Container(usize),
    /// Between two batches.
    Rest,
    /// The same with sandboxes.
    Sandbox(usize),
    /// Everything is removed; in the last look.
    LastLook,
}

const POINTS: [Point; 8] = [
    Point::FirstLook,
    Point::Container(0),
    Point::Container(3),
    Point::Rest,
    Point::Container(LITTER - 1),
    Point::Sandbox(0),
    Point::Sandbox(LITTER - 1),
    Point::LastLook,
];

async fn removed(rig: &Rig, count: usize) {
    until_true("so many removals were asked for", || {
        rig.removals().len() > count && rig.sim.removals_in_flight() > 0
    })
    .await;
}

/// Brings a pass to this point and returns its id.
async fn stands_at(rig: &Rig, point: Point) -> String {
    let container = |number| rig.sim.container_id(&format!("default/old-{number}/app#0"));
    let sandbox = |number| rig.sim.sandbox_id(&format!("default/old-{number}#0"));
    let looks = rig.sim.call_count(Rpc::ListContainers);
    let stuck = match point {
        Point::FirstLook => {
            rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
            None
        }
        Point::Container(number) => container(number),
        Point::Rest => None,
        Point::Sandbox(number) => sandbox(number),
        Point::LastLook => sandbox(LITTER - 1),
    };
    if let Some(id) = &stuck {
        rig.sim.set_removal_fault(id, Fault::hang());
    }
    let pass = rig.begin_gc("").await;
    let state = rig.state_dir();
    until_true("the pass is written down", || rows(&state, "passes") > 0).await;
    match point {
        Point::FirstLook => {
            until_true("it looks", || {
                rig.sim.call_count(Rpc::ListContainers) > looks
            })
            .await;
        }
        Point::Container(number) => removed(rig, number).await,
        Point::Rest => {
            until_true("it rests", || {
                rig.removals().len() == 2 && rig.sim.removals_in_flight() == 0
            })
            .await;
        }
        Point::Sandbox(number) => removed(rig, LITTER + number).await,
        Point::LastLook => {
            removed(rig, 2 * LITTER - 1).await;
            let looks = rig.sim.call_count(Rpc::ListContainers);
            rig.sim.set_fault(Rpc::ListContainers, Fault::hang());
            rig.sim.clear_removal_fault(&stuck.unwrap());
            until_true("it looks", || {
                rig.sim.call_count(Rpc::ListContainers) > looks
            })
            .await;
        }
    }
    pass
}

/// A hung removal is given up after `patience`.
async fn rig(point: Point, patience: &str) -> Rig {
    let gc = if point == Point::Rest {
        json!({ "max_concurrency": 1, "batch_size": 2, "batch_pause": "1h" })
    } else {
        json!({ "max_concurrency": 1 })
    };
    let changes = json!({ "runtime": { "removal_timeout": patience, "timeout": "3s" }, "gc": gc,
        "quarantine": { "base": "1s", "max": "1s" } });
    Rig::start(nodes::litter(LITTER), changes).await
}

/// Restarts on a healthy runtime; asserts how the pass is reported, that this does not change, and that the
/// work can be finished.
async fn reports_and_finishes(rig: &mut Rig, pass: &str, outcomes: &[&str]) {
    rig.sim.clear_faults();
    rig.begin().await;
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 1, "{passes:#?}");
    assert_eq!(
        (&passes[0]["id"], &passes[0]["state"]),
        (&json!(pass), &json!("done"))
    );
    let outcome = passes[0]["outcome"].as_str().unwrap();
    assert!(outcomes.contains(&outcome), "{outcome}");
    let told = interrupted(rig).await;
    assert_eq!(told > 0.0, outcome == "interrupted");
    rig.configure(&json!({ "gc": { "batch_pause": "0s" } }));
    rig.post("/-/reload").await;
    until("what failed may be tried again", || async {
        rig.gc("").await;
        (rig.exited_containers() + rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
    cleans(rig).await;
    let before: Vec<Value> = rig.passes().await;
    rig.crash().await;
    assert_eq!(rig.passes().await, before);
    assert!(interrupted(rig).await < 1.0, "it is counted once");
}

async fn interrupted(rig: &Rig) -> f64 {
    let page = rig.metrics().await;
    page.sum("crisweep_passes_total", "outcome=\"interrupted\"")
}

async fn killed(point: Point) {
    let mut rig = rig(point, "60s").await;
    let pass = stands_at(&rig, point).await;
    rig.kill().await;
    reports_and_finishes(&mut rig, &pass, &["interrupted"]).await;
}

async fn terminated(point: Point) {
    let mut rig = rig(point, "3s").await;
    let pass = stands_at(&rig, point).await;
    rig.service.signal(Signal::TERM);
    until_true("it goes down", || {
        rig.log().iter().any(|line| line["signal"] == "SIGTERM")
    })
    .await;
    let tried = rig.removals().len();
    assert_eq!(rig.service.exited().await.code(), Some(0), "{point:?}");
    // A removal in its last question may still happen.
    let later = rig.removals().len() - tried;
    assert!(later <= 1, "{point:?}: {later} removals were begun");
    // In its last look everything planned is gone already.
    let outcomes: &[&str] = match point {
        Point::LastLook => &["aborted", "completed", "partial"],
        Point::FirstLook | Point::Container(_) | Point::Rest | Point::Sandbox(_) => &["aborted"],
    };
    reports_and_finishes(&mut rig, &pass, outcomes).await;
}

#[tokio::test]
async fn after_a_kill_at_any_point_the_pass_is_reported_once_and_can_be_finished() {
    futures_util::future::join_all(POINTS.map(killed)).await;
}

#[tokio::test]
async fn after_sigterm_at_any_point_the_process_exits_cleanly_and_the_pass_can_be_finished() {
    futures_util::future::join_all(POINTS.map(terminated)).await;
}

#[tokio::test]
async fn sigterm_before_the_runtimes_first_answer_ends_the_process() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut rig = Rig::without_runtime(nodes::litter(1), json!({})).await;
        rig.service.signal(signal);
        assert_eq!(rig.service.exited().await.code(), Some(0));
    }
}
