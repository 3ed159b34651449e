//! Saved plans, and passes that carry them out.

use crisweep_sim::{Fault, PodSpec, Rpc, hours};
use serde_json::{Value, json};

use crate::support::answer::Answer;
use crate::support::{Rig, nodes};

async fn save(rig: &Rig, query: &str) -> Value {
    let answer = rig.post(&format!("/api/v1/plans?{query}")).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let plan = answer.json();
    let location = format!("/api/v1/plans/{}", plan["id"].as_str().unwrap());
    assert_eq!(answer.header("location"), Some(location.as_str()));
    plan
}

fn id(plan: &Value) -> &str {
    plan["id"].as_str().unwrap()
}

fn gone(name: &str) -> PodSpec {
    PodSpec::new(name).exited("app", 0, hours(3)).deleted()
}

#[tokio::test]
async fn a_saved_plan_is_the_plan_with_its_id_and_its_end() {
    let rig = Rig::start(nodes::litter(2), json!({ "collect": { "max_age": "1h" } })).await;
    let saved = save(&rig, "target=containers&target=sandboxes").await;
    let path = "/api/v1/plan?target=containers&target=sandboxes";
    let plan = rig.get(path).await.json();
    for key in ["taken_at", "removals", "kept", "summary"] {
        assert_eq!(saved[key], plan[key], "{key}");
    }
    assert_eq!(saved["targets"], json!(["containers", "sandboxes"]));
    assert_eq!(saved["by"]["kind"], "uid");
    let time = |key: &str| {
        saved[key]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
    };
    let lasts = time("expires_at").duration_since(time("taken_at"));
    assert_eq!(lasts, jiff::SignedDuration::from_hours(1));
    let path = format!("/api/v1/plans/{}", id(&saved));
    assert_eq!(rig.get(&path).await.json(), saved);
    let newest = save(&rig, "target=images&max_dead=7&assume_finished_after=2h").await;
    assert_eq!(
        (
            &newest["max_dead"],
            &newest["assume_finished_after_seconds"]
        ),
        (&json!(7), &json!(7200))
    );
    let list = rig.get("/api/v1/plans").await.json();
    let ids: Vec<&str> = list["plans"].as_array().unwrap().iter().map(id).collect();
    assert_eq!(ids, [id(&newest), id(&saved)]);
    assert_eq!(
        list["plans"][1]["removals"],
        json!({ "containers": 2, "sandboxes": 2 })
    );
    assert_eq!(rig.delete(&path).await.status, 200);
    rig.get(&path).await.refused(404, "newer ones replaced it");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn only_what_is_in_both_plans_goes() {
    let node = nodes::litter(2).pod(gone("vanishes"));
    let rig = Rig::start(node, json!({})).await;
    let plan = save(&rig, "").await;
    rig.sim.add_pod(&gone("appears"));
    let container = rig.sim.container_id("default/vanishes/app#0").unwrap();
    let sandbox = rig.sim.sandbox_id("default/vanishes#0").unwrap();
    assert!(rig.sim.change(|node| node.vanish_container(&container)));
    assert!(rig.sim.change(|node| node.vanish_sandbox(&sandbox)));
    let dry = rig.gc(&format!("plan={}&dry_run=true", id(&plan))).await;
    assert_eq!(dry["outcome"], "planned", "{dry:#}");
    rig.nothing_was_touched();
    let pass = rig.gc(&format!("plan={}", id(&plan))).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(pass["plan"], plan["id"]);
    for target in ["containers", "sandboxes"] {
        let report = &pass["targets"][target];
        assert_eq!(
            (&report["planned"], &report["removed"]),
            (&json!(2), &json!(2))
        );
        assert_eq!(dry["targets"][target]["planned"], 2);
    }
    assert_eq!(pass["targets"]["containers"]["kept"]["not-in-plan"], 1);
    // While its container is there, it holds the sandbox.
    assert_eq!(pass["targets"]["sandboxes"]["kept"]["has-containers"], 1);
    assert!(rig.sim.container_id("default/appears/app#0").is_some());
    let again = rig.gc(&format!("plan={}", id(&plan))).await;
    assert_eq!(again["outcome"], "nothing-to-do");
    let rest = rig.gc("").await;
    assert_eq!(rest["plan"], Value::Null);
    assert_eq!(rest["targets"]["containers"]["removed"], 1);
}

#[tokio::test]
async fn a_pass_takes_targets_and_options_of_its_plan_unless_it_is_asked_otherwise() {
    let finished = |n| {
        PodSpec::new(&format!("done-{n}"))
            .exited("app", 0, hours(3))
            .succeeded()
    };
    let rig = Rig::start(nodes::litter(1).pods(3, finished), json!({})).await;
    let plan = save(&rig, "target=containers&max_dead=0").await;
    assert_eq!(plan["removals"].as_array().unwrap().len(), 4);
    let few = rig
        .gc(&format!("plan={}&max_dead=2&max_removals=1", id(&plan)))
        .await;
    assert_eq!(few["targets"]["containers"]["removed"], 1, "{few:#}");
    let pass = rig.gc(&format!("plan={}", id(&plan))).await;
    assert_eq!(pass["targets"]["containers"]["removed"], 3, "{pass:#}");
    assert!(pass["targets"].get("sandboxes").is_none());
}

#[tokio::test]
async fn a_pass_with_a_plan_is_a_pass_of_its_own() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let plan = save(&rig, "target=containers").await;
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let running = rig
        .begin_gc("target=sandboxes&target=containers&max_removals=1")
        .await;
    rig.removing().await;
    let all = rig.begin_gc("").await;
    let with_plan = rig.begin_gc(&format!("plan={}", id(&plan))).await;
    let later = rig.begin_gc("target=images").await;
    assert_eq!(later, all, "without a plan they merge");
    assert!(with_plan != all && with_plan != running);
    assert_eq!(rig.pass(&with_plan).await["merged_triggers"], 0);
    rig.sim.clear_faults();
    for pass in [running, all, with_plan] {
        rig.finished(&pass).await;
    }
}

#[tokio::test]
async fn in_observe_mode_a_plan_is_only_planned() {
    let rig = Rig::start(nodes::litter(2), json!({ "mode": "observe" })).await;
    let plan = save(&rig, "").await;
    let pass = rig.gc(&format!("plan={}", id(&plan))).await;
    assert_eq!(
        (&pass["outcome"], &pass["dry_run"]),
        (&json!("planned"), &json!(true))
    );
    rig.nothing_was_touched();
}

#[tokio::test]
async fn unknown_plans_and_parameters_are_refused_by_name() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let unknown = "plan-20260101T000000Z-1";
    rig.post(&format!("/gc?plan={unknown}"))
        .await
        .refused(404, unknown);
    rig.post("/gc?plan=").await.refused(404, "no plan");
    rig.post_json("/gc", &json!({ "plan": unknown }))
        .await
        .refused(404, "the service restarted");
    rig.get(&format!("/api/v1/plans/{unknown}"))
        .await
        .refused(404, unknown);
    rig.delete(&format!("/api/v1/plans/{unknown}"))
        .await
        .refused(404, unknown);
    rig.post("/api/v1/plans?target=pods")
        .await
        .refused(400, "unknown target");
    for key in [
        "dry_run=true",
        "force=true",
        "max_removals=1",
        "wait=1s",
        "plan=x",
    ] {
        let answer = rig.post(&format!("/api/v1/plans?{key}")).await;
        answer.refused(
            400,
            "parameters are target, assume_finished_after, max_dead",
        );
    }
    for method in ["PUT", "DELETE", "PATCH"] {
        Answer::of(rig.request(method, "/api/v1/plans"))
            .await
            .refused(405, method);
    }
    assert_eq!(rig.passes().await.len(), 0);
}
