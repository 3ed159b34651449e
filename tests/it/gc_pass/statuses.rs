//! Containers whose status the runtime does not return.

use std::time::{Duration, Instant};

use crisweep_sim::{Fault, PodSpec, Rpc, hours};
use serde_json::json;
use tonic::Code;

use crate::support::{Rig, nodes};

const BAD: usize = 30;
const GOOD: usize = 10;

fn old(name: &str, age: Duration) -> PodSpec {
    PodSpec::new(name).exited("app", 0, age).deleted()
}

/// A node with containers of deleted pods. The status of the oldest ones fails.
async fn rig(fault: Fault) -> Rig {
    let rig = Rig::start(nodes::healthy(), json!({ "collect": { "max_age": "1h" } })).await;
    for number in 0..BAD {
        let ids = rig.sim.add_pod(&old(&format!("bad-{number}"), hours(5)));
        rig.sim.set_status_fault(&ids.containers[0], fault.clone());
    }
    for number in 0..GOOD {
        rig.sim.add_pod(&old(&format!("good-{number}"), hours(4)));
    }
    rig
}

#[tokio::test]
async fn containers_whose_status_hangs_stay_and_hold_back_no_others() {
    let rig = rig(Fault::hang()).await;
    let began = Instant::now();
    let pass = rig.gc("target=containers").await;
    assert_eq!(rig.exited_containers(), BAD, "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], GOOD, "{pass:#}");
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    let error = "containers: 30 stay because it is not known when they exited";
    assert!(errors.contains(error), "{errors}");
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    rig.metrics().await.is("crisweep_exit_times_unknown", 30.0);
    rig.sim.clear_faults();
}

#[tokio::test]
async fn containers_whose_status_fails_are_asked_again_after_a_while_only() {
    let rig = rig(Fault::fail(Code::Internal, "no such task")).await;
    let changes = "target=containers&dry_run=true";
    rig.gc(changes).await;
    let asked = rig.sim.call_count(Rpc::ContainerStatus);
    for _ in 0..20 {
        rig.gc(changes).await;
    }
    let again = rig.sim.call_count(Rpc::ContainerStatus) - asked;
    // Twenty looks would have asked 600 times; each container rests for 2 s, then 4 s, 8 s.
    assert!(again <= 5 * 30, "{again}");
    assert_eq!(rig.exited_containers(), BAD + GOOD);
    rig.metrics().await.is("crisweep_exit_times_unknown", 30.0);
    rig.sim.clear_faults();
}
