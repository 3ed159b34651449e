//! `GET /api/v1/explain/{id}`.

use crisweep_proto::cri::ListImagesResponse;
use crisweep_sim::{Fault, PodSpec, Rpc, hours, seconds};
use prost::Message;
use serde_json::{Value, json};

use crate::support::{Rig, nodes};

async fn explain(rig: &Rig, id: &str) -> Value {
    let answer = rig.get(&format!("/api/v1/explain/{id}")).await;
    assert_eq!(answer.status, 200, "{id}: {}", answer.text);
    answer.json()
}

async fn rig() -> Rig {
    let crash = PodSpec::new("crash")
        .namespace("shop")
        .exited("app", 0, hours(3))
        .exited("app", 1, hours(2))
        .running("app", 2);
    Rig::start(nodes::litter(1).pod(crash), json!({})).await
}

#[tokio::test]
async fn containers_and_sandboxes_have_a_verdict_with_a_reason() {
    let rig = rig().await;
    for (subject, verdict, reason, pod) in [
        ("default/old-0/app#0", "remove", "pod-deleted", "deleted"),
        ("shop/crash/app#0", "remove", "superseded", "active"),
        ("shop/crash/app#1", "keep", "within-limits", "active"),
        ("shop/crash/app#2", "keep", "running", "active"),
    ] {
        let id = rig.sim.container_id(subject).unwrap();
        let value = explain(&rig, &id).await;
        assert_eq!(value["kind"], "container");
        assert_eq!(
            (&value["verdict"], &value["reason"]),
            (&json!(verdict), &json!(reason)),
            "{subject}"
        );
        assert_eq!(value["object"]["id"], id);
        assert_eq!(value["object"]["pod_state"], pod);
        assert!(!value["explanation"].as_str().unwrap().is_empty());
        assert!(!value["pod_explanation"].as_str().unwrap().is_empty());
        assert!(value["taken_at"].is_string());
    }
    for (subject, verdict, reason) in [
        ("default/old-0#0", "remove", "pod-deleted"),
        ("shop/crash#0", "keep", "ready"),
    ] {
        let id = rig.sim.sandbox_id(subject).unwrap();
        let value = explain(&rig, &id).await;
        assert_eq!(value["kind"], "sandbox");
        assert_eq!(
            (&value["verdict"], &value["reason"]),
            (&json!(verdict), &json!(reason)),
            "{subject}"
        );
    }
}

#[tokio::test]
async fn a_pod_is_explained_with_all_its_objects() {
    let rig = rig().await;
    let uid = rig.sim.pod_uid("shop/crash").unwrap();
    let value = explain(&rig, &uid).await;
    assert_eq!(
        (&value["kind"], &value["uid"]),
        (&json!("pod"), &json!(uid))
    );
    assert_eq!(value["pod_state"], "active");
    assert_eq!(value["objects"].as_array().unwrap().len(), 4);
    assert_eq!(value["objects_total"], 4);
    assert_eq!(value["pod"]["listed"], "running-or-pending");
    let explanation = value["explanation"].as_str().unwrap();
    assert!(
        explanation.starts_with("pod shop/crash is active: "),
        "{explanation}"
    );
    let summary = value["summary"].as_str().unwrap();
    assert!(
        summary.contains("goes: superseded 1; stays: ready 1, running 1, within-limits 1"),
        "{summary}"
    );
    let by_name = explain(&rig, "shop/crash").await;
    assert_eq!(by_name["uid"], json!(uid));
}

#[tokio::test]
async fn an_object_has_its_rules_its_holders_and_what_would_change() {
    let rig = holders().await;
    let sandbox = rig.sim.sandbox_id("default/done#0").unwrap();
    let holder = rig.sim.container_id("default/done/app#0").unwrap();
    let value = explain(&rig, &sandbox).await;
    let rules = value["rules"].as_array().unwrap();
    let names: Vec<_> = rules
        .iter()
        .map(|rule| rule["rule"].as_str().unwrap())
        .collect();
    assert_eq!(names[..4], ["ready", "containers", "unmanaged", "protect"]);
    let said: Vec<_> = rules
        .iter()
        .map(|rule| rule["said"].as_str().unwrap())
        .collect();
    assert_eq!(said[..3], ["passes", "keeps", "not-reached"]);
    assert_eq!(
        (&rules[1]["decides"], &rules[1]["reason"]),
        (&json!(true), &json!("has-containers"))
    );
    let held = &value["held_by"][0];
    assert_eq!(
        (&held["id"], &held["reason"]),
        (&json!(holder), &json!("newest"))
    );
    assert_eq!(held["pod"]["state"], "terminated");
    assert_eq!(held["pod"]["listed"], "finished");
    // People read the word of the page and of docs/pods.md.
    let words = held["pod"]["words"].as_str().unwrap();
    assert!(
        words.starts_with("pod default/done is finished: "),
        "{words}"
    );
    assert_eq!(value["since"]["what"], "created");
    let change = value["would_change"][0]["what"].as_str().unwrap();
    assert!(
        change.contains("(kept: newest) must go first; for that: pod default/done"),
        "{change}"
    );
    let summary = value["summary"].as_str().unwrap();
    assert!(
        summary.contains("stays (has-containers)") && summary.contains("stays (newest)"),
        "{summary}"
    );
    // Time alone lets this one be judged by other rules, which keep it.
    let fresh = rig.sim.container_id("default/fresh/app#0").unwrap();
    let change = explain(&rig, &fresh).await["would_change"][0].clone();
    let what = change["what"].as_str().unwrap();
    assert!(
        what.contains("policy.containers.min_age is over then, and it still stays (newest)"),
        "{what}"
    );
    assert_eq!(change["in_seconds"], Value::Null);
}

#[tokio::test]
async fn a_young_object_says_when_it_goes() {
    let gone = PodSpec::new("gone").exited("app", 0, seconds(30)).deleted();
    let changes = json!({ "policy": { "containers": { "min_age": "10m" } } });
    let rig = Rig::start(nodes::litter(1).pod(gone), changes).await;
    let id = rig.sim.container_id("default/gone/app#0").unwrap();
    let value = explain(&rig, &id).await;
    assert_eq!(value["reason"], "too-young");
    let change = &value["would_change"][0];
    assert!(
        change["what"]
            .as_str()
            .unwrap()
            .contains("and it goes (pod-deleted)"),
        "{change}"
    );
    let seconds = change["in_seconds"].as_u64().unwrap();
    assert!((1..=600).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn an_image_is_found_by_id_digest_and_tag() {
    let rig = rig().await;
    let images = rig.sim.images();
    let image = images.iter().find(|image| !image.pinned).unwrap();
    let bare = image.id.trim_start_matches("sha256:");
    let tag = image.repo_tags[0].replace('/', "%2F");
    let digest = image.repo_digests[0].replace('/', "%2F");
    for id in [
        image.id.as_str(),
        bare,
        &bare[..12],
        &image.id[..20],
        &tag,
        &digest,
    ] {
        let value = explain(&rig, id).await;
        assert_eq!(value["kind"], "image");
        assert_eq!(
            (&value["verdict"], &value["reason"]),
            (&json!("keep"), &json!("in-use"))
        );
        assert_eq!(value["object"]["id"], image.id);
        assert_eq!(value["image"]["repo_tags"], json!(image.repo_tags));
    }
    let pause = images.iter().find(|image| image.pinned).unwrap();
    assert_eq!(explain(&rig, &pause.id).await["reason"], "pinned");
}

#[tokio::test]
async fn a_beginning_is_enough_unless_it_is_short_or_ambiguous() {
    let one = PodSpec::new("one")
        .uid("aaaaaaaa-0000-4000-8000-000000000001")
        .running("app", 0);
    let two = PodSpec::new("two")
        .uid("aaaaaaaa-0000-4000-8000-000000000002")
        .running("app", 0);
    let rig = Rig::start(nodes::litter(1).pod(one).pod(two), json!({})).await;
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    assert_eq!(explain(&rig, &id[..6]).await["object"]["id"], id);
    assert_eq!(explain(&rig, &id[..13]).await["object"]["id"], id);
    rig.get(&format!("/api/v1/explain/{}", &id[..5]))
        .await
        .refused(404, "at least 6 characters");
    rig.get("/api/v1/explain/aaaaaaaa-0000")
        .await
        .refused(400, "ambiguous: 2 ids");
}

#[tokio::test]
async fn an_image_of_two_runtime_handlers_is_found_by_the_id_of_either() {
    let rig = rig().await;
    let mut images = rig.sim.images();
    let image = images.iter().find(|image| !image.pinned).unwrap().clone();
    let mut other = image.clone();
    other.spec.get_or_insert_default().runtime_handler = "kata".to_owned();
    images.push(other);
    let list = ListImagesResponse { images }.encode_to_vec();
    rig.sim.set_fault(Rpc::ListImages, Fault::garbage(list));
    let kata = format!("{},kata", image.id);
    for id in [&image.id, &kata] {
        assert_eq!(explain(&rig, id).await["object"]["id"], *id);
    }
    let by_tag = format!("/api/v1/explain/{}", image.repo_tags[0]);
    rig.get(&by_tag).await.refused(400, ", handler kata)");
}

#[tokio::test]
async fn of_an_object_that_a_pass_removed_it_says_which_pass_and_why() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    let pass = rig.gc("target=containers").await;
    assert_eq!(rig.sim.container_id("default/old-0/app#0"), None);
    let pass = pass["id"].as_str().unwrap();
    let answer = rig.get(&format!("/api/v1/explain/{}", &id[..6])).await;
    answer.refused(
        404,
        &format!("{id} (containers) is gone: pass {pass} removed it at"),
    );
    answer.refused(404, "(pod-deleted)");
    let shorter = rig.get(&format!("/api/v1/explain/{}", &id[..5])).await;
    shorter.refused(404, "at least 6 characters");
}

/// One object for each distinct detail.
async fn holders() -> Rig {
    let crash = PodSpec::new("crash")
        .exited("app", 0, hours(3))
        .exited("app", 1, hours(2))
        .running("app", 2);
    let node = nodes::litter(1)
        .pod(crash)
        .pod(PodSpec::new("waits").exited("app", 0, hours(1)))
        .pod(
            PodSpec::new("done")
                .exited("app", 0, hours(1))
                .not_ready()
                .succeeded(),
        )
        .pod(PodSpec::new("fresh").exited("app", 0, seconds(30)));
    let policy = json!({ "policy": { "containers": { "min_age": "10m" } } });
    Rig::start(node, policy).await
}

#[tokio::test]
async fn a_detail_names_why_an_object_is_kept_or_removed() {
    let rig = holders().await;
    let container = |name: &str| rig.sim.container_id(name).unwrap();
    let short = |id: &str| id[..12].to_owned();
    let (newer, dead) = (
        container("default/crash/app#2"),
        container("default/done/app#0"),
    );
    let newer = format!(
        "container {} (app attempt 2, running) is a newer record of it",
        short(&newer)
    );
    let holder = format!(
        "container {} (app attempt 0, exited) is in it",
        short(&dead)
    );
    let sandbox = rig.sim.sandbox_id("default/done#0").unwrap();
    for (id, reason, words) in [
        (
            container("default/crash/app#0"),
            "superseded",
            newer.as_str(),
        ),
        (
            container("default/crash/app#1"),
            "within-limits",
            "max_per_container keeps 1",
        ),
        (
            container("default/waits/app#0"),
            "newest",
            "the kubelet would run it again; its pod is active",
        ),
        (dead, "newest", "max_dead keeps 200; its pod is finished"),
        (
            container("default/fresh/app#0"),
            "too-young",
            "ago; policy.containers.min_age is 10m",
        ),
        (
            container("default/old-0/app#0"),
            "pod-deleted",
            "its pod is deleted",
        ),
        (sandbox, "has-containers", holder.as_str()),
    ] {
        let value = explain(&rig, &id).await;
        assert_eq!(value["reason"], reason, "{value:#}");
        assert!(
            value["detail"].as_str().unwrap().contains(words),
            "{value:#}"
        );
    }
    for (name, words) in [
        ("waits", "without it the kubelet would run it again"),
        (
            "done",
            "the pod is finished, and max_dead does not ask for it",
        ),
    ] {
        let value = explain(&rig, &container(&format!("default/{name}/app#0"))).await;
        let explanation = value["explanation"].as_str().unwrap();
        assert!(explanation.ends_with(words), "{value:#}");
    }
}

#[tokio::test]
async fn every_object_of_a_plan_has_a_detail() {
    let rig = holders().await;
    let plan = rig.get("/api/v1/plan").await.json();
    let rows = ["removals", "kept"].map(|list| plan[list].as_array().unwrap().clone());
    let used = rows[1]
        .iter()
        .find(|row| row["reason"] == "in-use")
        .unwrap();
    assert!(
        used["detail"].as_str().unwrap().contains("uses it"),
        "{used}"
    );
    for row in rows.iter().flatten() {
        let detail = row["detail"].as_str().unwrap();
        assert!(!detail.is_empty() && detail.len() < 310, "{row}");
        assert!(!detail.contains("nobody"), "{row}");
    }
}

#[tokio::test]
async fn without_a_source_the_detail_names_the_missing_source() {
    let pods = json!({ "pods": { "source": "none", "file": null } });
    let rig = Rig::start(nodes::litter(1), pods).await;
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    let value = explain(&rig, &id).await;
    assert_eq!(
        (&value["verdict"], &value["reason"]),
        (&json!("keep"), &json!("newest"))
    );
    let why = value["pod_explanation"].as_str().unwrap();
    assert!(why.contains("no pod source is configured"), "{why}");
}

#[tokio::test]
async fn names_with_slashes_need_not_be_encoded() {
    let rig = rig().await;
    let images = rig.sim.images();
    let image = images.iter().find(|image| !image.pinned).unwrap();
    let value = explain(&rig, &image.repo_tags[0]).await;
    assert_eq!(value["object"]["id"], image.id);
    // An image belongs to no pod.
    assert_eq!(value["pod_explanation"], Value::Null);
    rig.get("/api/v1/explain//var/log/pods/none")
        .await
        .refused(404, "/var/log/pods/none");
}
