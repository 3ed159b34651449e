//! The JSON shapes that clients build on: the keys are a contract.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Rig, nodes};

fn keys(value: &Value) -> BTreeSet<&str> {
    let object = value.as_object().unwrap_or_else(|| panic!("{value}"));
    object.keys().map(String::as_str).collect()
}

#[track_caller]
fn has_keys(value: &Value, wanted: &str) {
    let missing: Vec<&str> = wanted
        .split(' ')
        .filter(|key| !keys(value).contains(key))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {value:#}");
}

#[tokio::test]
async fn a_plan_names_every_object_with_its_reason() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let plan = rig.get("/api/v1/plan").await.json();
    assert_eq!(
        keys(&plan),
        ["kept", "removals", "summary", "taken_at"].into()
    );
    let removals = plan["removals"].as_array().unwrap();
    let kept = plan["kept"].as_array().unwrap();
    // One living container, its sandbox and two images stay; two pairs are removed.
    assert_eq!((removals.len(), kept.len()), (4, 4));
    let of_pods = kept.iter().filter(|entry| entry["target"] != "images");
    for entry in removals.iter().chain(of_pods) {
        has_keys(entry, "target id name pod reason age_seconds");
        assert_eq!(keys(&entry["pod"]), ["name", "namespace", "uid"].into());
        assert!(entry["age_seconds"].is_i64());
    }
    let order: Vec<(&str, &str)> = removals
        .iter()
        .map(|r| {
            (
                r["target"].as_str().unwrap(),
                r["pod"]["name"].as_str().unwrap(),
            )
        })
        .collect();
    let wanted = [
        ("containers", "old-0"),
        ("containers", "old-1"),
        ("sandboxes", "old-0"),
        ("sandboxes", "old-1"),
    ];
    assert_eq!(order, wanted);
    let age = removals[0]["age_seconds"].as_i64().unwrap();
    assert!((3 * 3600..4 * 3600).contains(&age), "{age}");
    let summary = json!({
        "containers": { "remove": { "pod-deleted": 2 }, "keep": { "running": 1 } },
        "sandboxes": { "remove": { "pod-deleted": 2 }, "keep": { "ready": 1 } },
        "logs": { "remove": {}, "keep": {} },
        "images": { "remove": {}, "keep": { "in-use": 1, "pinned": 1 } },
    });
    assert_eq!(plan["summary"], summary);
    let one = rig.get("/api/v1/plan?target=sandboxes").await.json();
    assert_eq!(keys(&one["summary"]), ["sandboxes"].into());
    // A plan without containers keeps them, and they hold their sandboxes.
    assert_eq!(one["removals"], json!([]));
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_pass_lists_its_counts_per_target() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let pass = rig.gc("").await;
    has_keys(
        &pass,
        "id state outcome dry_run trigger queued_at started_at finished_at pods before after targets errors",
    );
    assert_eq!(
        pass["pods"],
        json!({ "source": "file", "state": "known", "detail": null })
    );
    assert_eq!(
        (&pass["state"], &pass["outcome"]),
        (&json!("done"), &json!("completed"))
    );
    let own = rustix::process::geteuid().as_raw().to_string();
    let by = json!({ "kind": "uid", "name": own });
    assert_eq!(pass["trigger"], json!({ "cause": "manual", "by": by }));
    let figures = "exited_containers not_ready_sandboxes containers_list_bytes \
                   sandboxes_list_bytes image_fs_used_ratio image_fs_used_bytes \
                   image_fs_available_bytes image_fs_inodes_used image_fs_inodes_free complete";
    for (when, count) in [("before", 2), ("after", 0)] {
        has_keys(&pass[when], figures);
        assert_eq!(pass[when]["exited_containers"], count);
        assert_eq!(pass[when]["not_ready_sandboxes"], count);
        assert!(pass[when]["containers_list_bytes"].as_u64() > Some(0));
        let ratio = pass[when]["image_fs_used_ratio"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&ratio));
    }
    for target in ["containers", "sandboxes"] {
        let report = &pass["targets"][target];
        has_keys(
            report,
            "planned removed still_listed already_gone failed remaining kept freed_bytes",
        );
        assert_eq!(
            (&report["planned"], &report["removed"]),
            (&json!(2), &json!(2))
        );
        assert_eq!(report["remaining"], 0);
    }
    assert_eq!(
        pass["targets"]["containers"]["kept"],
        json!({ "running": 1 })
    );
    assert_eq!(pass["errors"], json!([]));
    let times = ["queued_at", "started_at", "finished_at"].map(|key| {
        let at = pass[key].as_str().unwrap();
        at.parse::<jiff::Timestamp>().unwrap()
    });
    assert!(times.is_sorted(), "{times:?}");
}

#[tokio::test]
async fn the_status_shows_node_service_and_brakes() {
    let rig = Rig::start(nodes::litter(2), json!({ "brakes": { "pause": true } })).await;
    let status = rig.get("/api/v1/status").await.json();
    has_keys(
        &status,
        "node version mode runtime look figures pods removable quarantined_sandboxes \
         brakes running waiting last_pass",
    );
    assert_eq!(status["node"], "node-1");
    assert_eq!(
        (&status["mode"], &status["brakes"]["pause"]),
        (&json!("enforce"), &json!(true))
    );
    assert_eq!(status["runtime"]["name"], "containerd");
    assert_eq!(status["runtime"]["up"], true);
    assert_eq!(status["pods"]["known"], true);
    assert_eq!(
        status["removable"],
        json!({ "containers": 2, "sandboxes": 2, "logs": 0, "images": 0 })
    );
    assert_eq!(status["figures"]["exited_containers"], 2);
    let list = &status["lists"]["containers"];
    assert_eq!(
        keys(list),
        ["bytes", "complete", "limit_bytes", "mode"].into()
    );
    assert_eq!(
        (&list["mode"], &list["complete"]),
        (&json!("unary"), &json!(true))
    );
    assert_eq!(
        (&status["running"], &status["waiting"]),
        (&json!(null), &json!([]))
    );
}
