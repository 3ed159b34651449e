//! What is removed, in which order, and how many at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use crisweep_sim::{Disk, Fault, PodSpec, Rpc, hours};
use serde_json::json;

use crate::support::{Rig, nodes};

#[tokio::test]
async fn containers_and_then_their_sandbox_go_in_one_pass() {
    let rig = Rig::start(nodes::litter(5), json!({})).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed");
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
    let rpcs: Vec<Rpc> = rig.removals().iter().map(|call| call.rpc).collect();
    let wanted = [[Rpc::RemoveContainer; 5], [Rpc::RemovePodSandbox; 5]].concat();
    assert_eq!(rpcs, wanted);
    // A dead sandbox is not stopped first: that would run the network teardown twice.
    assert_eq!(rig.sim.call_count(Rpc::StopPodSandbox), 0);
    assert_eq!(rig.gc("").await["outcome"], "nothing-to-do");
}

#[tokio::test]
async fn a_sandbox_whose_container_goes_slowly_goes_in_the_same_pass() {
    let rig = Rig::start(nodes::litter(5), json!({})).await;
    let slow = Fault::slow(Duration::from_secs(2));
    rig.sim.set_fault(Rpc::RemoveContainer, slow);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["planned"], &report["removed"], &report["kept"]),
        (&json!(5), &json!(5), &json!({ "ready": 1 }))
    );
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
}

#[tokio::test]
async fn an_exit_that_the_runtime_does_not_date_counts_from_our_first_sight_of_it() {
    let changes = json!({ "policy": { "containers": { "min_age": "1h" } } });
    let mut rig = Rig::start(nodes::healthy(), changes).await;
    rig.sim.add_pod(&nodes::deleted(0, 1));
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    assert!(
        rig.sim
            .change(|node| node.edit_container(&id, |it| it.finished_at = 0))
    );
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "nothing-to-do", "{pass:#}");
    assert_eq!(pass["targets"]["containers"]["kept"]["too-young"], 1);
    let plan = rig.get("/api/v1/plan?target=containers").await.json();
    let mut kept = plan["kept"].as_array().unwrap().iter();
    let detail = kept.find(|it| it["id"] == *id).unwrap()["detail"].to_string();
    let words = "the runtime gives no time of its exit; first seen exited";
    assert!(detail.contains(words), "{detail}");
    let explained = rig.get(&format!("/api/v1/explain/{id}")).await.json();
    assert_eq!(
        explained["since"]["what"], "first seen exited",
        "{explained:#}"
    );
    rig.configure(&json!({ "policy": { "containers": { "min_age": "0s" } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    // A list from before that sight may have lacked the pod while it ran.
    rig.write_pods_again();
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["containers"]["removed"], 1, "{pass:#}");
}

#[tokio::test]
async fn the_oldest_is_removed_first() {
    let changes = json!({ "gc": { "max_concurrency": 1, "batch_size": 7 } });
    let rig = Rig::start(nodes::litter(20), changes).await;
    rig.gc("").await;
    let containers: Vec<String> = (0..20).map(|n| format!("default/old-{n}/app#0")).collect();
    assert_eq!(rig.subjects(Rpc::RemoveContainer), containers);
    let sandboxes: Vec<String> = (0..20).map(|n| format!("default/old-{n}#0")).collect();
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), sandboxes);
    assert_eq!(rig.sim.peak_removals_in_flight(), 1);
}

#[tokio::test]
async fn batches_hold_fifty_and_at_most_eight_containers_are_in_flight() {
    let rig = Rig::start(nodes::litter(120), json!({})).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: Duration::from_millis(10),
            crowding: Duration::ZERO,
        }
    });
    // On a busy machine a sandbox may be thought to wait for its network: up to three more than eight find out.
    for (target, at_most) in [("containers", 8), ("sandboxes", 8 + 3)] {
        let pass = rig.gc(&format!("target={target}")).await;
        assert_eq!(pass["outcome"], "completed");
        let peak = rig.sim.peak_removals_in_flight();
        assert!((2..=at_most).contains(&peak), "{target}: {peak}");
        assert_eq!(pass["targets"][target]["batches"], 3);
        let of_target = rig.logged("batch begins").into_iter();
        let sizes: Vec<u64> = of_target
            .filter(|line| line["target"] == target)
            .map(|line| line["size"].as_u64().unwrap())
            .collect();
        assert_eq!(sizes, [50, 50, 20]);
    }
    // Each batch is older than the next one.
    let order = rig.subjects(Rpc::RemoveContainer);
    for (batch, subjects) in order.chunks(50).enumerate() {
        let wanted = (50 * batch..120).take(50);
        let wanted: BTreeSet<String> = wanted.map(|n| format!("default/old-{n}/app#0")).collect();
        assert_eq!(subjects.iter().cloned().collect::<BTreeSet<_>>(), wanted);
    }
}

#[tokio::test]
async fn containers_that_take_seconds_make_room_for_no_more_than_one_each() {
    let changes = json!({ "gc": { "io_pressure_pause_percent": 0 } });
    let rig = Rig::start(nodes::litter(12), changes).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: Duration::from_millis(1_500),
            crowding: Duration::ZERO,
        }
    });
    rig.gc("target=containers").await;
    // Two at a time, and two more after these have taken a second.
    let peak = rig.sim.peak_removals_in_flight();
    assert!((2..=6).contains(&peak), "{peak}");
}

#[tokio::test]
async fn only_surplus_of_living_pods_is_removed() {
    let crash = PodSpec::new("crash")
        .exited("app", 0, hours(5))
        .exited("app", 1, hours(4))
        .exited("app", 2, hours(3))
        .running("app", 3)
        .leaked_sandbox(0, hours(9))
        .sandbox(1);
    // The last named sandbox is the ready one; the running container is in the first.
    let waits = PodSpec::new("waits")
        .exited("app", 0, hours(5))
        .exited("app", 1, hours(4));
    let rig = Rig::start(nodes::healthy().pod(crash).pod(waits), json!({})).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(
        pass["targets"]["containers"]["reasons"],
        json!({ "superseded": 3 })
    );
    let gone: BTreeSet<String> = rig.subjects(Rpc::RemoveContainer).into_iter().collect();
    let wanted = [
        "default/crash/app#0",
        "default/crash/app#1",
        "default/waits/app#0",
    ];
    assert_eq!(gone, wanted.map(str::to_owned).into());
    assert_eq!(rig.removals().len(), 4);
}

#[tokio::test]
async fn dry_runs_and_mode_observe_remove_nothing() {
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    for (query, outcome) in [
        ("dry_run=true", "planned"),
        ("dry_run=true&target=sandboxes", "nothing-to-do"),
    ] {
        let pass = rig.gc(query).await;
        assert_eq!(pass["dry_run"], true);
        assert_eq!(pass["outcome"], outcome);
        assert_eq!(pass["before"], pass["after"]);
    }
    rig.configure(&json!({ "mode": "observe" }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    let pass = rig.gc("").await;
    assert_eq!(
        (&pass["dry_run"], &pass["outcome"]),
        (&json!(true), &json!("planned"))
    );
    assert_eq!(pass["targets"]["containers"]["planned"], 3);
    assert_eq!(pass["targets"]["containers"]["removed"], 0);
    rig.nothing_was_touched();
}

#[tokio::test]
async fn the_kubelets_own_labels_protect() {
    let vault = PodSpec::new("kept")
        .namespace("vault")
        .exited("app", 0, hours(3))
        .deleted();
    let two = PodSpec::new("two")
        .exited("debug", 0, hours(3))
        .exited("app", 0, hours(3))
        .deleted();
    let named = PodSpec::new("named").exited("app", 0, hours(3)).deleted();
    let node = nodes::litter(1).pod(vault).pod(two).pod(named);
    let labels = [
        "io.kubernetes.pod.namespace=vault",
        "io.kubernetes.container.name=debug",
        "io.kubernetes.pod.name=named",
    ];
    let protect = json!({ "policy": { "protect": { "labels": labels } } });
    let rig = Rig::start(node, protect).await;
    let pass = rig.gc("").await;
    let mut gone = rig.subjects(Rpc::RemoveContainer);
    gone.sort();
    assert_eq!(gone, ["default/old-0/app#0", "default/two/app#0"]);
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), ["default/old-0#0"]);
    let kept = &pass["targets"]["containers"]["kept"];
    assert_eq!(kept, &json!({ "protected": 3, "running": 1 }));
}

#[tokio::test]
async fn protected_and_foreign_objects_stay() {
    let protected = PodSpec::new("kept")
        .namespace("vault")
        .exited("app", 0, hours(3))
        .deleted();
    let labelled = PodSpec::new("debug")
        .label("keep", "yes")
        .exited("app", 0, hours(3))
        .deleted();
    let foreign = PodSpec::new("tool")
        .unmanaged()
        .exited("app", 0, hours(3))
        .not_ready();
    let node = nodes::litter(1).pod(protected).pod(labelled).pod(foreign);
    let protect = json!({ "namespaces": ["vault"], "labels": ["keep=yes"] });
    let rig = Rig::start(node, json!({ "policy": { "protect": protect } })).await;
    let pass = rig.gc("").await;
    assert_eq!(rig.subjects(Rpc::RemoveContainer), ["default/old-0/app#0"]);
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox), ["default/old-0#0"]);
    let kept = &pass["targets"]["containers"]["kept"];
    assert_eq!(
        kept,
        &json!({ "protected": 2, "running": 1, "unmanaged": 1 })
    );
}
