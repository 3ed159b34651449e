//! `POST /gc`: parameters and answers.

use crisweep_sim::{Fault, PodSpec, Rpc, hours};
use serde_json::json;

use crate::support::{Follow, Rig, nodes};

#[tokio::test]
async fn answers_202_with_the_pass_and_where_to_find_it() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let answer = rig.post("/gc").await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let pass = answer.json();
    let location = answer.header("location").unwrap();
    assert_eq!(
        location,
        format!("/api/v1/passes/{}", pass["id"].as_str().unwrap())
    );
    let done = rig.finished(pass["id"].as_str().unwrap()).await;
    assert_eq!(done["outcome"], "completed");
    assert_eq!(rig.get(location).await.json(), done);
    assert_eq!(rig.passes().await, [done]);
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
}

#[tokio::test]
async fn wait_answers_200_when_the_pass_ends_in_time_and_202_when_not() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let late = rig.post("/gc?wait=50ms").await;
    assert_eq!(late.status, 202, "{}", late.text);
    let pass = late.json();
    assert_ne!(pass["state"], "done");
    rig.sim.clear_faults();
    rig.finished(pass["id"].as_str().unwrap()).await;

    let again = rig.post("/gc?wait=60s").await;
    assert_eq!(again.status, 200);
    assert!(again.header("location").is_some());
    assert_eq!(again.json()["outcome"], "nothing-to-do");
}

#[tokio::test]
async fn follow_streams_lines_while_the_pass_runs_and_ends_with_it() {
    let changes = json!({ "gc": { "batch_size": 1, "max_concurrency": 1 } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    let held = rig.sim.container_id("default/old-1/app#0").unwrap();
    rig.sim.set_removal_fault(&held, Fault::hang());
    let mut follow = Follow::begin(rig.request("POST", "/gc?follow=true")).await;
    assert_eq!(
        follow.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    let location = follow.header("location").unwrap().to_owned();
    assert!(follow.line().await.unwrap().ends_with("begins"));
    let plan = follow.line().await.unwrap();
    assert!(
        plan.starts_with("containers: 2 to remove (pod-deleted 2)"),
        "{plan}"
    );
    assert_eq!(
        follow.line().await.unwrap(),
        "containers: batch 1: 1 of 2 gone"
    );
    assert_eq!(rig.get(&location).await.json()["state"], "running");
    rig.sim.clear_faults();
    let rest = follow.rest().await;
    assert!(rest.last().unwrap().contains("completed"), "{rest:?}");
    assert_eq!(rig.get(&location).await.json()["state"], "done");
}

#[tokio::test]
async fn follow_says_at_once_which_pass_it_waits_for() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let running = rig.begin_gc("").await;
    rig.removing().await;
    let mut follow = Follow::begin(rig.request("POST", "/gc?follow=true&target=containers")).await;
    let expected = format!("it waits for the end of pass {running}");
    assert_eq!(follow.line().await.unwrap(), expected);
    rig.sim.clear_faults();
    assert!(follow.line().await.unwrap().ends_with("begins"));
    follow.rest().await;
}

#[tokio::test]
async fn follow_says_that_a_pass_only_plans_because_of_the_mode() {
    const SAID: &str = "mode: observe, so this pass only plans";
    let rig = Rig::start(nodes::litter(2), json!({ "mode": "observe" })).await;
    for (query, is_said) in [("", true), ("dry_run=true&", false)] {
        let request = rig.request("POST", &format!("/gc?{query}follow=true"));
        let lines = Follow::begin(request).await.rest().await;
        let found = lines.iter().any(|line| line == SAID);
        assert_eq!(found, is_said, "{lines:?}");
        assert!(lines.last().unwrap().contains("planned"), "{lines:?}");
    }
}

/// The page for 3 a.m. begins with a dry run: what holds the rest must not come as news in the real pass.
#[tokio::test]
async fn a_dry_run_that_plans_something_says_what_a_pass_would_leave_for_want_of_knowledge() {
    let unknown = PodSpec::new("over").exited("app", 0, hours(3)).deleted();
    let crash = PodSpec::new("crash")
        .exited("app", 0, hours(4))
        .exited("app", 1, hours(3));
    let changes = json!({
        "pods": { "source": "none", "file": null },
        "policy": { "containers": { "max_dead": 0 } },
    });
    let rig = Rig::start(nodes::healthy().pod(unknown).pod(crash), changes).await;
    for (query, begins) in [("dry_run=true&", "planned (dry run, "), ("", "partial (")] {
        let request = rig.request("POST", &format!("/gc?{query}follow=true"));
        let lines = Follow::begin(request).await.rest().await;
        let last = lines.last().unwrap();
        assert!(last.contains(begins), "{lines:?}");
        assert!(last.contains("no pod source is configured"), "{lines:?}");
    }
}

#[tokio::test]
async fn query_and_json_body_are_understood_together() {
    let rig = Rig::start(nodes::litter(4), json!({})).await;
    let body = json!({ "target": ["containers"], "max_removals": 3, "wait": "60s" });
    let answer = rig.post_json("/gc?dry_run=false", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let pass = answer.json();
    assert_eq!(pass["outcome"], "partial");
    assert_eq!(pass["targets"]["containers"]["removed"], 3);
    assert!(pass["targets"].get("sandboxes").is_none());
    assert_eq!(rig.exited_containers(), 1);
    assert_eq!(rig.dead_sandboxes(), 4);
}

#[tokio::test]
async fn a_wrong_request_is_named_and_removes_nothing() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    for (query, words) in [
        ("target=pods", "unknown target \"pods\""),
        ("target=", "unknown target"),
        ("max_removals=1e3", "from 1"),
        ("wait=61m", "at most 1h"),
        ("assume_finished_after=-1h", "must be a duration"),
    ] {
        rig.post(&format!("/gc?{query}")).await.refused(400, words);
    }
    for (body, words) in [
        (r#"{"target": 7}"#, "unknown target \"7\""),
        (r#"{"target": [null]}"#, "true or false, not null"),
    ] {
        let request = rig.request("POST", "/gc").body(body);
        crate::support::Answer::of(request)
            .await
            .refused(400, words);
    }
    assert!(rig.passes().await.is_empty());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn a_second_request_joins_a_pass_that_waits_and_not_one_that_runs() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let running = rig.begin_gc("target=containers").await;
    rig.removing().await;
    let waiting = rig.begin_gc("target=containers").await;
    assert_ne!(running, waiting);
    let joined = rig.post("/gc?target=sandboxes").await;
    assert_eq!(joined.header("crisweep-admission"), Some("merged"));
    assert_eq!(joined.json()["id"], waiting);
    let apart = rig.post("/gc?target=sandboxes&dry_run=true").await;
    assert_eq!(apart.header("crisweep-admission"), Some("accepted"));
    let apart = apart.json()["id"].as_str().unwrap().to_owned();
    assert_ne!(apart, waiting);
    rig.sim.clear_faults();
    let pass = rig.finished(&waiting).await;
    assert_eq!(pass["merged_triggers"], 1);
    assert_eq!(pass["targets"]["sandboxes"]["removed"], 2);
    rig.finished(&apart).await;
}

#[tokio::test]
async fn more_passes_than_can_wait_are_refused_with_503() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    rig.begin_gc("").await;
    rig.removing().await;
    let mut last = String::new();
    for number in 1..=crisweep::trigger::admission::BY_HAND_MAX {
        last = rig.begin_gc(&format!("max_removals={number}")).await;
    }
    rig.post("/gc?max_removals=1000")
        .await
        .refused(503, "too many passes");
    rig.sim.clear_faults();
    rig.finished(&last).await;
}

#[tokio::test]
async fn while_the_runtime_is_down_a_waiting_caller_gets_503() {
    let rig = Rig::without_runtime(nodes::litter(1), json!({})).await;
    for target in ["all", "containers", "sandboxes", "logs", "images"] {
        let answer = rig.post(&format!("/gc?wait=60s&target={target}")).await;
        assert_eq!(answer.status, 503, "{}", answer.text);
        let pass = answer.json();
        assert_eq!(
            (&pass["state"], &pass["outcome"]),
            (&json!("done"), &json!("aborted"))
        );
        assert!(pass["errors"].to_string().contains("no look"), "{pass:#}");
    }
}
