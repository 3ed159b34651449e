//! Sandboxes that failed before: one probe is tried for its class.

use std::collections::BTreeSet;
use std::time::Duration;

use crisweep_sim::{Cni, Fault};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{Rig, nodes, until};

/// A node with leaked sandboxes, all of which have failed once and are due again.
async fn all_failed(count: u32) -> Rig {
    let config = json!({ "gc": { "failure_ratio": 0 }, "quarantine": { "base": "1s" } });
    let sandboxes = usize::try_from(count).unwrap();
    let rig = Rig::start(nodes::leaks(sandboxes), config).await;
    rig.sim.conduct(|it| it.cni_default = Cni::failing());
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["sandboxes"]["failed"], count, "{pass:#}");
    due(&rig, count).await;
    rig.sim.clear_record();
    rig
}

async fn due(rig: &Rig, count: u32) {
    until("the back-off is over", || async {
        let page = rig.metrics().await;
        let due = page.sum("crisweep_removable", "target=\"sandboxes\"");
        (due >= f64::from(count)).then_some(())
    })
    .await;
}

/// Returns when a sandbox is tried again.
async fn next_try(rig: &Rig, sandbox: &str) -> Value {
    let path = format!("/api/v1/explain/{}", rig.sim.sandbox_id(sandbox).unwrap());
    rig.get(&path).await.json()["quarantine"]["next_try"].clone()
}

#[tokio::test]
async fn after_one_success_all_of_the_class_are_removed_in_the_same_pass() {
    let rig = all_failed(300).await;
    rig.sim.heal_cni();
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.dead_sandboxes(), 0);
    let calls = rig.removals();
    assert_eq!(calls.len(), 300);
    let alone_until = calls[0].ended.unwrap().at;
    assert!(calls[1..].iter().all(|call| call.at >= alone_until));
}

#[tokio::test]
async fn while_it_fails_one_is_tried_for_each_back_off() {
    let rig = all_failed(300).await;
    for tried in 1..3 {
        let pass = rig.gc("").await;
        assert_eq!(pass["outcome"], "nothing-to-do");
        let report = &pass["targets"]["sandboxes"];
        assert_eq!(
            (&report["planned"], &report["failed"]),
            (&json!(1), &json!(1)),
            "{pass:#}"
        );
        assert_eq!(report["failed_again"], 1);
        assert_eq!(report["reasons"], json!({ "pod-deleted": 1 }));
        let told = until("the log's thread has written it", || async {
            let told = rig.logged("quarantined sandboxes are skipped").pop();
            told.filter(|it| it["next_try"] == report["next_try"])
        })
        .await;
        assert_eq!(told["count"], 300);
        assert_eq!(report["kept"]["quarantined"], 299);
        let calls = rig.removals();
        assert_eq!(calls.len(), tried);
        // A different one each time, so that one broken sandbox does not stand for all.
        let subjects: BTreeSet<&str> = calls.iter().map(|call| call.subject.as_str()).collect();
        assert_eq!(subjects.len(), tried);
        // The others wait as long as it does.
        let of_probe = next_try(&rig, &calls[tried - 1].subject).await;
        for number in [0, 299] {
            let other = next_try(&rig, &format!("default/leak-{number}#0")).await;
            assert_eq!(other, of_probe);
        }
        due(&rig, 300).await;
    }
}

#[tokio::test]
async fn sandboxes_that_never_failed_are_removed_first() {
    let rig = all_failed(5).await;
    for number in 0..20 {
        let fresh = nodes::leaked(number, 20).cni(Cni::healthy());
        rig.sim.add_pod(&fresh.namespace("other"));
    }
    let pass = rig.gc("").await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(20), &json!(1)),
        "{pass:#}"
    );
    assert_eq!(pass["outcome"], "completed");
    let page = rig.get("/").await.text;
    assert!(page.contains("Last pass did all but what failed again"));
    let calls = rig.removals();
    assert_eq!(calls.len(), 21);
    assert!(
        calls[..20]
            .iter()
            .all(|call| call.subject.starts_with("other/"))
    );
}

#[tokio::test]
async fn a_slow_answer_is_waited_for_before_the_crowd_is_tried() {
    let rig = all_failed(4).await;
    let slow = Cni::failing().after(Duration::from_millis(1500));
    rig.sim.conduct(|it| it.cni_default = slow);
    let pass = rig.gc("").await;
    assert_eq!(pass["targets"]["sandboxes"]["failed"], 1, "{pass:#}");
    assert_eq!(rig.removals().len(), 1);
    due(&rig, 4).await;
    rig.sim
        .conduct(|it| it.cni_default = Cni::slow(Duration::from_millis(1500)));
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.removals().len(), 5);
}

#[tokio::test]
async fn a_class_that_fails_holds_no_other_class() {
    let rig = Rig::start(
        nodes::leaks(6),
        json!({ "gc": { "failure_ratio": 0 }, "quarantine": { "base": "1s" } }),
    )
    .await;
    let ids: Vec<String> = (0..6)
        .map(|n| rig.sim.sandbox_id(&format!("default/leak-{n}#0")).unwrap())
        .collect();
    for id in &ids[..3] {
        rig.sim.set_cni(id, Cni::failing());
    }
    for id in &ids[3..] {
        rig.sim.set_cni(id, Cni::not_initialized());
    }
    rig.gc("").await;
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(
        status["quarantined_sandboxes"],
        json!({ "network-teardown": 3, "plugin-missing": 3 })
    );
    due(&rig, 6).await;
    for id in &ids[3..] {
        rig.sim.set_cni(id, Cni::healthy());
    }
    let pass = rig.gc("").await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(3), &json!(1)),
        "{pass:#}"
    );
}

#[tokio::test]
async fn quarantined_failures_do_not_trip_the_circuit_breaker() {
    let changes = json!({ "gc": { "failure_ratio": 0.9 }, "quarantine": { "base": "1s" } });
    let rig = Rig::start(nodes::leaks(20), changes).await;
    // The two removable ones come first: while one of them were in flight the share would be above 0.9.
    let stay = (2..20).map(|number| rig.sim.sandbox_id(&format!("default/leak-{number}#0")));
    let stay: BTreeSet<String> = stay.flatten().collect();
    for id in &stay {
        let broken = Fault::fail(Code::Unknown, "no");
        rig.sim.set_removal_fault(id, broken);
    }
    let probe = stay.first().unwrap();
    // 18 of 20 failed: exactly the allowed share.
    assert_eq!(rig.gc("").await["outcome"], "partial");
    due(&rig, 18).await;
    rig.sim.clear_removal_fault(probe);
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["removed"], &report["failed"]),
        (&json!(1), &json!(17))
    );
}
