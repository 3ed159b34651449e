//! Bounds that end or hold a pass before its plan is done.

use std::time::Duration;

use crisweep_sim::{Cni, Disk, Fault, PodSpec, Rpc, hours};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tonic::Code;

use crate::alerts::hook::{asks, pass_of, sent};
use crate::support::wait::until_true;
use crate::support::{Rig, nodes};

#[tokio::test]
async fn max_removals_bounds_a_pass_by_request_and_by_configuration() {
    let rig = Rig::start(nodes::litter(10), json!({ "gc": { "max_removals": 4 } })).await;
    // The smaller of the two counts.
    for (query, removed) in [("max_removals=3", 3), ("max_removals=100", 4)] {
        let before = rig.removals().len();
        let pass = rig.gc(query).await;
        assert_eq!(pass["outcome"], "partial");
        assert!(
            pass["errors"].to_string().contains("max_removals"),
            "{pass}"
        );
        assert_eq!(rig.removals().len() - before, removed);
    }
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (3, 10));
}

#[tokio::test]
async fn a_removal_that_was_lost_with_the_runtime_counts_for_max_removals() {
    let rig = Rig::start(nodes::litter(10), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let id = rig.begin_gc("target=containers&max_removals=2").await;
    until_true("both are under way", || rig.removals().len() == 2).await;
    rig.sim.stop().await;
    rig.sim.clear_faults();
    rig.sim.start().unwrap();
    let pass = rig.finished(&id).await;
    // Their results are unknown: two more could be four.
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(
        pass["errors"].to_string().contains("max_removals"),
        "{pass}"
    );
    assert_eq!(rig.removals().len(), 2);
}

#[tokio::test]
async fn what_others_removed_before_its_turn_does_not_remain() {
    let rig = Rig::start(nodes::litter(10), json!({ "gc": { "max_concurrency": 1 } })).await;
    let plan = rig.get("/api/v1/plan?target=containers").await.json();
    let planned = plan["removals"].as_array().unwrap().iter();
    let ids: Vec<&str> = planned.map(|it| it["id"].as_str().unwrap()).collect();
    let slow = Fault::slow(Duration::from_millis(200));
    rig.sim.set_fault(Rpc::RemoveContainer, slow);
    let id = rig.begin_gc("target=containers&max_removals=4").await;
    rig.removing().await;
    for id in &ids[7..] {
        assert!(rig.sim.change(|node| node.vanish_container(id)));
    }
    let pass = rig.finished(&id).await;
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&pass["outcome"], &report["removed"], &report["remaining"]),
        (&json!("partial"), &json!(4), &json!(3)),
        "{pass:#}"
    );
    rig.metrics()
        .await
        .is("crisweep_last_pass_remaining{target=\"containers\"}", 3.0);
}

#[tokio::test]
async fn the_deadline_ends_a_pass_in_the_middle_of_a_batch_too() {
    let changes = json!({ "gc": { "deadline": "2s", "batch_size": 2, "max_concurrency": 1 } });
    let rig = Rig::start(nodes::litter(60), changes).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: Duration::from_millis(100),
            crowding: Duration::ZERO,
        }
    });
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial");
    assert!(pass["errors"].to_string().contains("gc.deadline"), "{pass}");
    let removed = pass["targets"]["containers"]["removed"].as_u64().unwrap();
    assert!((1..60).contains(&removed), "{removed}");
}

#[tokio::test]
async fn an_alert_whose_pass_ends_at_its_deadline_gets_one_pass_more_after_the_cool_down() {
    let gc = json!({ "deadline": "2s", "batch_size": 2, "max_concurrency": 1 });
    let changes = json!({ "gc": gc, "brakes": { "cooldown": "1s" } });
    let rig = Rig::start(nodes::litter(60), changes).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: Duration::from_millis(50),
            crowding: Duration::ZERO,
        }
    });
    let body = sent(&rig, asks("containers"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["outcome"], "partial", "{first:#}");
    let passes = rig.passes().await;
    let second = rig.finished(passes[0]["id"].as_str().unwrap()).await;
    assert_eq!(second["trigger"]["follow_up"], true, "{passes:#?}");
    let time = |pass: &Value, key: &str| pass[key].as_str().unwrap().parse::<Timestamp>().unwrap();
    let rest = time(&second, "started_at").duration_since(time(&first, "finished_at"));
    assert!(rest >= SignedDuration::from_millis(900), "{rest}");
    let removed = |pass: &Value| pass["targets"]["containers"]["removed"].as_u64().unwrap();
    assert!(removed(&first) > 0 && removed(&second) > 0, "{second:#}");
}

#[tokio::test]
async fn a_pass_rests_between_batches() {
    let gc = json!({ "batch_pause": "300ms", "batch_size": 2, "max_concurrency": 1 });
    let rig = Rig::start(nodes::litter(6), json!({ "gc": gc })).await;
    rig.gc("target=containers").await;
    let calls = rig.removals();
    for pair in calls.chunks(2).collect::<Vec<_>>().windows(2) {
        let ended = pair[0][1].ended.unwrap().at;
        let rest = pair[1][0].at.duration_since(ended);
        assert!(rest >= SignedDuration::from_millis(299), "{rest}");
    }
    assert_eq!(calls.len(), 6);
}

#[tokio::test]
async fn the_circuit_breaker_ends_a_target_that_mostly_fails() {
    let changes = json!({ "gc": { "batch_size": 10 } });
    let rig = Rig::start(nodes::leaks(60), changes).await;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "aborted");
    assert!(
        pass["errors"].to_string().contains("circuit breaker"),
        "{pass}"
    );
    assert_eq!(pass["targets"]["sandboxes"]["failed"], 10);
    assert_eq!(rig.removals().len(), 10);
    rig.metrics().await.is(
        "crisweep_removal_failures_total{target=\"sandboxes\",class=\"network-teardown\"}",
        10.0,
    );
}

#[tokio::test]
async fn a_batch_of_failures_does_not_hide_why_the_target_ended() {
    let rig = Rig::start(nodes::leaks(60), json!({})).await;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["sandboxes"]["failed"], 50, "{pass:#}");
    let errors = pass["errors"].as_array().unwrap();
    let last = errors.last().unwrap().to_string();
    assert!(last.contains("circuit breaker"), "{pass:#}");
    assert_eq!(errors.len(), 12, "{pass:#}");
    assert_eq!(errors[10], "further errors are in the log");
}

#[tokio::test]
async fn containers_that_never_go_hold_the_others_back_for_one_pass_only() {
    let rig = Rig::start(nodes::litter(40), json!({ "gc": { "batch_size": 10 } })).await;
    // The oldest, so they are tried first.
    let ids: Vec<String> = (0..12)
        .map(|number| format!("default/old-{number}/app#0"))
        .map(|name| rig.sim.container_id(&name).unwrap())
        .collect();
    for id in &ids {
        let refuses = Fault::fail(Code::Unknown, "failed to find runtime handler odd");
        rig.sim.set_removal_fault(id, refuses);
    }
    let report = |pass: &Value| pass["targets"]["containers"].clone();
    let pass = rig.gc("target=containers").await;
    assert_eq!(report(&pass)["failed"], 10, "{pass:#}");
    assert_eq!(pass["outcome"], "aborted", "{pass:#}");

    let pass = rig.gc("target=containers").await;
    assert_eq!(report(&pass)["removed"], 28, "{pass:#}");
    // Two for the first time, and a batch of those that failed before.
    assert_eq!(report(&pass)["failed"], 12, "{pass:#}");
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(report(&pass)["remaining"], 12, "{pass:#}");

    let pass = rig.gc("target=containers").await;
    assert_eq!(report(&pass)["failed"], 10, "{pass:#}");
    let pass = rig.gc("target=containers&force=true").await;
    assert_eq!(report(&pass)["failed"], 12, "{pass:#}");

    for id in &ids {
        rig.sim.clear_removal_fault(id);
    }
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(report(&pass)["removed"], 12, "{pass:#}");
}

/// One that another client removes for ever is skipped; one whose removal takes longer than a pass may is given up.
#[tokio::test]
async fn what_a_pass_skipped_or_gave_up_comes_last_in_the_next_one() {
    let removing = Fault::fail(Code::Unknown, "container is already in removing state");
    for (fault, removal_timeout) in [(removing, "1s"), (Fault::hang(), "1m")] {
        let changes = json!({
            "runtime": { "removal_timeout": removal_timeout },
            "gc": { "max_removals": 1, "deadline": "3s" },
        });
        let rig = Rig::start(nodes::litter(2), changes).await;
        let oldest = rig.sim.container_id("default/old-0/app#0").unwrap();
        rig.sim.set_removal_fault(&oldest, fault);
        let pass = rig.gc("target=containers").await;
        assert_eq!(pass["targets"]["containers"]["removed"], 0, "{pass:#}");
        let pass = rig.gc("target=containers").await;
        assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
    }
}

#[tokio::test]
async fn the_circuit_breaker_counts_the_whole_batch() {
    let changes = json!({ "gc": { "batch_size": 10 } });
    let rig = Rig::start(nodes::litter(20), changes).await;
    let id = |number: usize| {
        let name = format!("default/old-{number}/app#0");
        rig.sim.container_id(&name).unwrap()
    };
    for number in 0..5 {
        let refuses = Fault::fail(Code::Internal, "refused");
        rig.sim.set_removal_fault(&id(number), refuses);
    }
    // Five of nine have failed while the tenth is in flight; it makes them half of the batch.
    let slow = Fault::slow(Duration::from_millis(600));
    rig.sim.set_removal_fault(&id(9), slow);
    let pass = rig.gc("target=containers").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["removed"], 15, "{pass:#}");
}

#[tokio::test]
async fn the_circuit_breaker_ends_a_target_for_the_whole_pass() {
    let changes = json!({ "gc": { "batch_size": 10 } });
    let pod = PodSpec::new("old").exited("app", 0, hours(3)).deleted();
    let rig = Rig::start(nodes::leaks(60).pod(pod), changes).await;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    // It goes after the sandboxes have had their turn.
    let slow = Fault::slow(Duration::from_secs(4));
    rig.sim.set_fault(Rpc::RemoveContainer, slow);
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
    assert_eq!(pass["targets"]["sandboxes"]["failed"], 10, "{pass:#}");
}

#[tokio::test]
async fn after_the_circuit_breaker_the_next_target_has_its_turn() {
    let changes = json!({
        "gc": { "batch_size": 10 },
        "policy": { "images": { "min_age": "0s", "max_age": "1ms" } },
    });
    let images = (0..3).map(|n| format!("registry.example/idle-{n}:1"));
    let node = images.fold(nodes::leaks(60), |node, tag| node.image(&tag, 1 << 20));
    let rig = Rig::start(node, changes).await;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(
        pass["errors"]
            .to_string()
            .contains("sandboxes: circuit breaker"),
        "{pass:#}"
    );
    let targets = &pass["targets"];
    assert_eq!(targets["sandboxes"]["failed"], 10);
    assert_eq!(targets["sandboxes"]["remaining"], 60);
    assert_eq!(targets["images"]["removed"], 3, "{pass:#}");
}

#[tokio::test]
async fn pause_refuses_with_409_unless_forced() {
    let rig = Rig::start(nodes::litter(2), json!({ "brakes": { "pause": true } })).await;
    rig.post("/gc").await.refused(409, "brakes.pause");
    rig.nothing_was_touched();
    assert_eq!(rig.gc("dry_run=true").await["outcome"], "planned");
    rig.nothing_was_touched();
    assert_eq!(rig.gc("force=true").await["outcome"], "completed");
    assert_eq!(rig.sim.call_count(Rpc::RemoveContainer), 2);
}

#[tokio::test]
async fn a_manual_gc_passes_cool_down_and_hourly_limit() {
    let brakes = json!({ "cooldown": "1h", "max_passes_per_hour": 1 });
    let rig = Rig::start(nodes::litter(3), json!({ "brakes": brakes })).await;
    for _ in 0..3 {
        assert_eq!(rig.gc("max_removals=1").await["outcome"], "partial");
    }
    assert_eq!(rig.removals().len(), 3);
}
