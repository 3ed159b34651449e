//! A kubelet that learns late of exits: the newest records of a pod wait until it surely knows.

use std::time::Duration;

use crisweep_sim::{
    Cni, Fault, LaggingKubelet, Node, NodeBuilder, Options, PodSpec, Rpc, hours, seconds,
};
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Value, json};
use tonic::Code;

use crate::alerts::hook::{asks, pass_of, sent};
use crate::pods::api_server::{ApiServer, answer};
use crate::support::kubelet::Reply;
use crate::support::{Rig, nodes, until};

/// What a pass logs after a rescue.
const FITS: &str = "the lists fit; the kubelet may sync";

/// The list limit of the node: about thirty containers, or twenty sandboxes.
const LIMIT_BYTES: usize = 30_000;

/// A runtime whose kubelet needs this long after the lists fit to sync exits.
fn lagging(relist_seconds: u64) -> Options {
    Options {
        send_limit_bytes: LIMIT_BYTES,
        lagging_kubelet: Some(LaggingKubelet {
            list_limit_bytes: LIMIT_BYTES,
            relist: seconds(relist_seconds),
        }),
        ..Options::default()
    }
}

/// The same where the runtime compresses lists over the limit for crisweep.
fn compressing() -> Options {
    Options {
        gzip: Some(seconds(0)),
        ..lagging(1)
    }
}

/// A pod that ended just now, unsynced by the kubelet.
fn ended(name: &str) -> PodSpec {
    PodSpec::new(name).exited("app", 0, seconds(5)).unsynced()
}

/// A deleted pod whose ten containers exited long ago.
fn old(number: usize) -> PodSpec {
    (0..10).fold(
        PodSpec::new(&format!("old-{number}")).deleted(),
        |pod, name| pod.exited(&format!("c{name}"), 0, hours(3)),
    )
}

/// Lists over the limit because of old exits, with recently finished and deleted pods.
fn over_the_limit() -> Node {
    crowded().build()
}

fn crowded() -> NodeBuilder {
    nodes::healthy()
        .pods(6, old)
        .pods(3, |n| ended(&format!("job-{n}")).succeeded())
        .pods(3, |n| ended(&format!("gone-{n}")).deleted())
}

fn changes(quiet: &str) -> Value {
    json!({
        "pods": { "quiet": quiet },
        "policy": {
            "containers": { "min_age": "0s", "max_dead": 0 },
            "sandboxes": { "min_age": "0s", "max_dead": 0 },
        },
    })
}

fn merged(mut base: Value, other: &Value) -> Value {
    for (section, values) in other.as_object().unwrap() {
        for (key, value) in values.as_object().unwrap() {
            base[section][key] = value.clone();
        }
    }
    base
}

#[tokio::test]
async fn a_pod_whose_end_the_kubelet_has_yet_to_sync_does_not_run_again() {
    tokio::join!(is_rescued(lagging(1)), is_rescued(compressing()));
}

async fn is_rescued(options: Options) {
    let rig = Rig::with(over_the_limit(), options, changes("3s")).await;
    let pass = rig.gc("").await;
    let harm = rig.sim.harmful_calls();
    assert!(harm.is_empty(), "something ran a second time: {harm:#?}");
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(
        (rig.exited_containers(), rig.dead_sandboxes()),
        (0, 0),
        "{pass:#}"
    );
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["planned"], &report["removed"]),
        (&json!(66), &json!(66))
    );
    assert_eq!(rig.logs(1, FITS).await.len(), 1);
}

#[tokio::test]
async fn a_sandbox_that_fails_before_the_rest_makes_the_pass_partial() {
    let stuck = |number| {
        PodSpec::new(&format!("stuck-{number}"))
            .deleted()
            .exited("app", 0, hours(3))
            .cni(Cni::failing())
    };
    let node = crowded().pods(2, stuck).build();
    let rig = Rig::with(node, lagging(1), changes("3s")).await;
    let pass = rig.gc("").await;
    assert_eq!(rig.logs(1, FITS).await.len(), 1);
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&pass["outcome"], &report["failed"], &report["remaining"]),
        (&json!("partial"), &json!(2), &json!(2)),
        "{pass:#}"
    );
    assert_eq!(report["planned"], 14, "{pass:#}");
}

#[tokio::test]
async fn a_sandbox_that_fails_before_and_after_the_rest_had_not_failed_in_an_earlier_pass() {
    let stuck = old(9).cni(Cni::failing());
    let mut changes = changes("2s");
    changes["quarantine"] = json!({ "base": "1ms" });
    let rig = Rig::with(crowded().pod(stuck).build(), lagging(1), changes).await;
    // As long as the failing one, which would be left behind otherwise.
    rig.sim
        .conduct(|it| it.cni_default = Cni::slow(Duration::from_millis(15)));
    let pass = rig.gc("").await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&pass["outcome"], &report["failed_again"]),
        (&json!("partial"), &json!(0)),
        "{pass:#}"
    );
}

#[tokio::test]
async fn a_removal_that_takes_longer_than_the_rest_is_not_begun_a_second_time() {
    let slow = old(9).cni(Cni::slow(seconds(5)));
    let rig = Rig::with(crowded().pod(slow).build(), lagging(1), changes("2s")).await;
    let pass = rig.gc("").await;
    assert_eq!(rig.logs(1, FITS).await.len(), 1);
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&pass["outcome"], &report["planned"], &report["removed"]),
        (&json!("completed"), &json!(13), &json!(13)),
        "{pass:#}"
    );
    assert_eq!(rig.subjects(Rpc::RemovePodSandbox).len(), 13);
}

#[tokio::test]
async fn a_removal_that_ends_during_the_rest_stays_planned_and_hides_no_failure() {
    let slow = old(8).cni(Cni::slow(seconds(2)));
    let stuck = old(9).cni(Cni::failing());
    let node = nodes::healthy().pods(6, old).pod(slow).pod(stuck);
    let rig = Rig::with(node.build(), lagging(1), changes("4s")).await;
    let pass = rig.gc("").await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["planned"], &report["removed"], &report["remaining"]),
        (&json!(8), &json!(7), &json!(1)),
        "{pass:#}"
    );
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
}

/// Its removal failed before the rest, and another client or the runtime itself carries it out meanwhile.
#[tokio::test]
async fn a_sandbox_that_goes_during_the_rest_after_it_failed_hides_no_other() {
    let (goes, stays) = (old(8), old(9).cni(Cni::failing()));
    let node = nodes::healthy().pods(6, old).pod(goes).pod(stays);
    let rig = Rig::with(node.build(), lagging(1), changes("4s")).await;
    let goes = rig.sim.sandbox_id("default/old-8#0").unwrap();
    let fault = Fault::fail(Code::Unknown, "not now");
    rig.sim.set_removal_fault(&goes, fault);
    let id = rig.begin_gc("").await;
    until("the pass rests", || async {
        let rests = rig.logged(FITS).len();
        (rests == 1).then_some(())
    })
    .await;
    assert!(rig.sim.change(|node| node.vanish_sandbox(&goes)));
    let pass = rig.finished(&id).await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(
        (&report["planned"], &report["removed"], &report["remaining"]),
        (&json!(8), &json!(6), &json!(1)),
        "{pass:#}"
    );
}

#[tokio::test]
async fn on_lists_that_fit_the_newest_record_waits_until_the_pod_was_seen_over() {
    let node = nodes::healthy()
        .pods(3, |n| {
            ended(&format!("job-{n}"))
                .exited("app", 1, seconds(5))
                .succeeded()
        })
        .pods(3, |n| {
            ended(&format!("gone-{n}"))
                .exited("app", 1, seconds(5))
                .deleted()
        });
    let rig = Rig::with(node.build(), lagging(1), changes("8s")).await;
    let pass = rig.gc("").await;
    let report = &pass["targets"]["containers"];
    assert_eq!(
        (&report["removed"], &report["kept"]["too-young"]),
        (&json!(6), &json!(6)),
        "{pass:#}"
    );
    until("the rest was seen over for long enough", || async {
        rig.gc("").await;
        (rig.exited_containers() + rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_alert_whose_pass_kept_something_for_a_time_gets_one_pass_more() {
    let node = nodes::healthy().pods(3, |n| ended(&format!("gone-{n}")).deleted());
    let rig = Rig::with(node.build(), lagging(1), changes("8s")).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(
        first["targets"]["containers"]["kept"]["too-young"], 3,
        "{first:#}"
    );
    until("the pass that follows has cleaned", || async {
        (rig.exited_containers() + rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
    let passes = rig.passes().await;
    assert_eq!(passes.len(), 2);
    let follow_up = rig.finished(passes[0]["id"].as_str().unwrap()).await;
    assert_eq!(follow_up["trigger"]["cause"], "alert", "{follow_up:#}");
    assert_eq!(follow_up["trigger"]["follow_up"], true);
}

#[tokio::test]
async fn an_alert_that_joins_a_pass_which_gets_none_has_its_own_pass_more() {
    tokio::join!(joins_a_follow_up(), joins_a_persons_pass());
}

/// A node with pods that ended just now.
async fn just_ended() -> Rig {
    let node = nodes::healthy().pods(3, |n| ended(&format!("gone-{n}")).deleted());
    Rig::with(node.build(), lagging(1), changes("8s")).await
}

/// A second alert joins the follow-up, which therefore begins before its time.
async fn joins_a_follow_up() {
    let rig = just_ended().await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    rig.finished(&pass_of(&body)).await;
    let body = sent(&rig, asks("containers"), 202, "merged").await;
    let early = rig.finished(&pass_of(&body)).await;
    assert_ne!(early["trigger"]["follow_up"], true, "{early:#}");
    let kept = &early["targets"]["containers"]["kept"]["too-young"];
    assert_eq!(kept, 3, "it began at once: {early:#}");
    until("the pass that follows both has cleaned", || async {
        (rig.exited_containers() == 0).then_some(())
    })
    .await;
}

/// An alert joins a pass that a person asked for, which waits for the end of another.
async fn joins_a_persons_pass() {
    let rig = just_ended().await;
    rig.sim
        .set_fault(Rpc::ListContainers, Fault::slow(seconds(1)));
    let images = rig.begin_gc("target=images").await;
    until("the first pass has begun: none can join it", || async {
        (rig.pass(&images).await["targets"]["images"]["begun"] == true).then_some(())
    })
    .await;
    let by_hand = rig.begin_gc("").await;
    assert_ne!(by_hand, images);
    let body = sent(&rig, asks("all"), 202, "merged").await;
    assert_eq!(pass_of(&body), by_hand);
    rig.sim.clear_faults();
    let first = rig.finished(&by_hand).await;
    assert_eq!(
        first["targets"]["containers"]["kept"]["too-young"], 3,
        "{first:#}"
    );
    until("the pass that follows has cleaned", || async {
        (rig.exited_containers() + rig.dead_sandboxes() == 0).then_some(())
    })
    .await;
    assert_eq!(rig.passes().await[0]["trigger"]["cause"], "alert");
}

#[tokio::test]
async fn pods_that_ended_long_ago_are_removed_at_once() {
    let rig = Rig::start(nodes::litter(3), changes("1m")).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (0, 0));
}

#[tokio::test]
async fn a_cancel_ends_the_rest_after_the_rescue() {
    let node = nodes::healthy().pods(6, old).build();
    let rig = Rig::with(node, lagging(1), changes("10m")).await;
    let id = rig.begin_gc("").await;
    until("the pass rests", || async { rig.logged(FITS).pop() }).await;
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    assert_eq!(rig.finished(&id).await["outcome"], "aborted");
}

#[tokio::test]
async fn a_pass_after_one_cut_before_its_rest_keeps_pods_the_kubelet_has_yet_to_sync() {
    let rig = Rig::with(over_the_limit(), lagging(3), changes("6s")).await;
    // crisweep has seen them finished long enough, but during the outage.
    tokio::time::sleep(seconds(7)).await;
    let first = rig.gc("max_removals=60").await;
    assert!(
        first["errors"].to_string().contains("max_removals"),
        "{first:#}"
    );
    assert_eq!(rig.exited_containers(), 6, "{first:#}");
    // The rig asserts that nothing ran a second time.
    let second = rig.gc("target=containers").await;
    let kept = &second["targets"]["containers"]["kept"];
    assert_eq!(kept["too-young"], 6, "{second:#}");
}

#[tokio::test]
async fn what_a_pass_could_not_know_before_its_rest_is_no_error_of_it_after_it_went() {
    // Superseded records need no pod source, and are enough to make the list fit.
    let loops = (0..60).fold(PodSpec::new("loops"), |pod, attempt| {
        pod.exited("app", attempt, hours(2) + seconds(u64::from(60 - attempt)))
    });
    let node = nodes::healthy().pod(loops.running("app", 60)).pods(3, |n| {
        PodSpec::new(&format!("gone-{n}"))
            .exited("app", 0, hours(3))
            .deleted()
    });
    let options = Options {
        lagging_kubelet: None,
        ..lagging(1)
    };
    let rig = Rig::with(node.build(), options, changes("2s")).await;
    let pods = std::fs::read(rig.pods_file()).unwrap();
    std::fs::write(rig.pods_file(), "no list").unwrap();
    let id = rig.begin_gc("target=containers").await;
    until("the pass rests", || async { rig.logged(FITS).pop() }).await;
    let resting = rig.pass(&id).await["errors"].to_string();
    assert!(resting.contains("3 stay because their pods"), "{resting}");
    std::fs::write(rig.pods_file(), pods).unwrap();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["errors"], json!([]), "{pass:#}");
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    assert_eq!(rig.exited_containers(), 0, "{pass:#}");
}

/// A node on which nothing exited long ago.
fn all_of_just_now() -> Node {
    NodeBuilder::new()
        .pod(PodSpec::new("web").running("app", 0))
        .pods(40, |n| ended(&format!("gone-{n:02}")).deleted())
        .build()
}

/// Passes over a node whose list stays over its limit.
async fn keeps_all(rig: &Rig) {
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(
        pass["errors"].to_string().contains("still over its limit"),
        "{pass:#}"
    );
    rig.nothing_was_touched();
}

#[tokio::test]
async fn ends_the_kubelet_may_not_know_are_kept_without_the_api_servers_confirmation() {
    let rig = Rig::with(all_of_just_now(), lagging(1), changes("1m")).await;
    keeps_all(&rig).await;
}

#[tokio::test]
async fn an_outage_goes_on_over_a_crash() {
    let node = nodes::healthy()
        .pods(40, |n| PodSpec::new(&format!("app-{n}")).running("app", 0))
        .pod(PodSpec::new("job").running("app", 0));
    let mut rig = Rig::with(node.build(), lagging(1), changes("100ms")).await;
    // It sees the list over its limit after it has read the state.
    rig.gc("dry_run=true").await;
    assert!(rig.sim.change(|node| node.finish_pod("default/job", 0)));
    // Longer than ten times `quiet`.
    tokio::time::sleep(seconds(2)).await;
    rig.kill().await;
    rig.begin().await;
    keeps_all(&rig).await;
    // A run that cannot read the state at its start learns of the outage when it opens it.
    rig.kill().await;
    let database = rig.state_dir().join("crisweep.db");
    let database = Connection::open(database).unwrap();
    database.execute_batch("BEGIN EXCLUSIVE").unwrap();
    rig.begin().await;
    drop(database);
    keeps_all(&rig).await;
}

#[tokio::test]
async fn a_pass_over_containers_says_that_the_list_of_sandboxes_blinds_the_kubelet() {
    let node = nodes::healthy()
        .pods(23, |n| PodSpec::new(&format!("app-{n}")).running("app", 0))
        .pods(2, |n| ended(&format!("gone-{n}")).deleted());
    let rig = Rig::with(node.build(), lagging(1), changes("1m")).await;
    let pass = rig.gc("target=containers").await;
    let errors = pass["errors"].to_string();
    assert!(
        errors.contains("the list of sandboxes is still over"),
        "{pass:#}"
    );
    assert_eq!(pass["outcome"], "partial");
    rig.nothing_was_touched();
}

/// crisweep sees all of a list that comes compressed; the kubelet, which asks for it plainly, sees nothing.
#[tokio::test]
async fn a_kubelet_stays_blind_while_the_runtime_compresses_for_crisweep() {
    let rig = Rig::with(all_of_just_now(), compressing(), changes("1m")).await;
    let page = rig.metrics().await;
    page.is(
        "cri_list_mode{list=\"containers\",mode=\"compressed\"}",
        1.0,
    );
    page.is("cri_list_complete{list=\"containers\"}", 1.0);
    keeps_all(&rig).await;
}

#[tokio::test]
async fn nothing_is_risked_while_slow_removals_may_make_the_lists_fit() {
    let api_server = ApiServer::start().await;
    let settings = merged(api_server.config("api-server"), &changes("1m"));
    let old = |n: usize| {
        PodSpec::new(&format!("old-{n}"))
            .exited("app", 0, hours(3))
            .deleted()
    };
    let node = NodeBuilder::new()
        .pods(4, old)
        .pods(22, |n| ended(&format!("gone-{n:02}")).deleted());
    let rig = Rig::with(
        node.pod(PodSpec::new("web").running("app", 0)).build(),
        lagging(1),
        settings,
    )
    .await;
    api_server.set_answer(&answer(&rig.sim));
    rig.sim
        .set_fault(Rpc::RemoveContainer, Fault::slow(seconds(3)));
    let id = rig.begin_gc("target=containers&target=sandboxes").await;
    until("the pass rests", || async { rig.logged(FITS).pop() }).await;
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    let pass = rig.finished(&id).await;
    assert!(!pass["errors"].to_string().contains("risked"), "{pass:#}");
    assert_eq!((rig.exited_containers(), rig.dead_sandboxes()), (22, 22));
}

#[tokio::test]
async fn pods_the_api_server_confirms_are_removed_until_the_lists_fit_and_reported() {
    tokio::join!(risks_pods(seconds(0)), risks_pods(seconds(2)));
}

#[tokio::test]
async fn pods_that_cannot_go_hold_back_no_others_that_make_the_lists_fit() {
    let refuses = Fault::fail(Code::Unknown, "failed to find runtime handler odd");
    let pass = after_stuck_ones(refuses).await;
    let removed = pass["targets"]["containers"]["removed"].as_u64().unwrap();
    assert!(removed > 0, "{pass:#}");
    let risked = format!("the records of {removed} finished or deleted pods");
    let errors = pass["errors"].to_string();
    assert!(errors.contains(&risked), "{pass:#}");
    let broke = errors.matches("containers: circuit breaker").count();
    assert!(broke <= 1, "told once: {pass:#}");
}

/// The runtime may finish a removal that ran out of time, and another client its own: others would be a risk for nothing.
#[tokio::test]
async fn no_pods_go_in_place_of_those_whose_removal_may_still_end() {
    let busy = Fault::fail(Code::Unknown, "container is already in removing state");
    for (end, counts) in [(Fault::hang(), "failed"), (busy, "skipped")] {
        let pass = after_stuck_ones(end).await;
        let report = &pass["targets"]["containers"];
        assert_eq!(report["removed"], 0, "{pass:#}");
        assert_ne!(report[counts], 0, "{pass:#}");
    }
}

#[tokio::test]
async fn a_pass_that_failed_to_remove_what_it_risked_is_not_completed() {
    let refuses = Fault::fail(Code::Unknown, "failed to find runtime handler odd");
    let (rig, _api_server) = stuck_ones(2, refuses).await;
    let pass = rig.gc("target=containers&target=sandboxes").await;
    assert_eq!(pass["targets"]["containers"]["failed"], 2, "{pass:#}");
    assert_eq!(rig.logs(1, FITS).await.len(), 1);
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
}

/// Else the kubelet would stay blind for ever.
#[tokio::test]
async fn what_an_earlier_pass_tried_in_vain_holds_back_no_others_that_make_the_lists_fit() {
    let busy = Fault::fail(Code::Unknown, "container is already in removing state");
    for end in [Fault::hang(), busy] {
        let (rig, _api_server) = stuck_ones(18, end).await;
        let first = rig.gc("target=containers&target=sandboxes").await;
        assert_eq!(first["targets"]["containers"]["removed"], 0, "{first:#}");
        let errors = first["errors"].to_string();
        assert!(errors.contains("or until more pods are over"), "{errors}");
        let second = rig.gc("target=containers&target=sandboxes").await;
        assert_ne!(second["targets"]["containers"]["removed"], 0, "{second:#}");
        assert_eq!(rig.logs(1, FITS).await.len(), 1);
    }
}

/// Alertmanager may repeat its alert only after hours.
#[tokio::test]
async fn an_alert_whose_pass_left_the_kubelet_blind_gets_one_pass_more() {
    let (rig, _api_server) = stuck_ones(18, Fault::hang()).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["targets"]["containers"]["removed"], 0, "{first:#}");
    until("the pass that follows makes the lists fit", || async {
        rig.logged(FITS).pop()
    })
    .await;
    assert_eq!(rig.passes().await[0]["trigger"]["follow_up"], true);
}

/// What a pass may risk must be old enough too.
#[tokio::test]
async fn an_alert_that_finds_the_pods_of_a_blind_node_too_young_gets_one_pass_more() {
    // A second try of what is due, at once, would be the only one.
    let refuses = Fault::fail(Code::Unknown, "failed to find runtime handler odd");
    let (rig, _api_server) = young_ones_and_a_stuck_one("25s", refuses).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["targets"]["containers"]["removed"], 0, "{first:#}");
    until("the pass that follows makes the lists fit", || async {
        rig.logged(FITS).pop()
    })
    .await;
    assert_eq!(rig.passes().await[0]["trigger"]["follow_up"], true);
}

/// Each day some containers are younger than a day.
#[tokio::test]
async fn a_blind_kubelet_does_not_wait_for_a_long_minimum_age_while_something_is_due() {
    let busy = Fault::fail(Code::Unknown, "device or resource busy");
    let (rig, _api_server) = young_ones_and_a_stuck_one("1h", busy.times(1)).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let first = rig.finished(&pass_of(&body)).await;
    assert_eq!(first["targets"]["containers"]["failed"], 1, "{first:#}");
    let next = rig.passes().await.remove(0);
    assert_eq!(next["trigger"]["follow_up"], true, "{next:#}");
    let time = |it: &Value| it.as_str().unwrap().parse::<Timestamp>().unwrap();
    let wait = time(&next["not_before"]).duration_since(time(&first["finished_at"]));
    assert!(wait < SignedDuration::from_mins(2), "{wait:?}");
}

/// No pass would find more than this one.
#[tokio::test]
async fn a_pass_after_which_nothing_may_go_gets_none_more_although_the_kubelet_is_blind() {
    let rig = Rig::with(all_of_just_now(), lagging(1), changes("1m")).await;
    let body = sent(&rig, asks("all"), 202, "accepted").await;
    let pass = rig.finished(&pass_of(&body)).await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert_eq!(rig.passes().await.len(), 1);
}

#[tokio::test]
async fn an_api_server_that_is_down_confirms_no_pod_to_be_risked() {
    let (api_server, settings, options) = only_a_risk().await;
    let rig = Rig::with(all_of_just_now(), options, settings).await;
    api_server
        .server
        .reply(Reply::status("503 Service Unavailable"));
    let dry_run = rig.gc("dry_run=true").await;
    let errors = dry_run["errors"].to_string();
    assert!(!errors.contains("a pass also removes"), "{dry_run:#}");
    let pass = rig.gc("target=containers&target=sandboxes").await;
    let errors = pass["errors"].to_string();
    assert!(errors.contains("until the API server confirms"), "{pass:#}");
    rig.nothing_was_touched();
}

#[tokio::test]
async fn no_pods_go_in_place_of_those_whose_sandboxes_may_still_go() {
    let (api_server, settings, options) = only_a_risk().await;
    let gone = |name: String, ago| PodSpec::new(&name).exited("app", 0, ago).deleted();
    let node = NodeBuilder::new()
        .pod(PodSpec::new("web").running("app", 0))
        .pods(12, |n| {
            gone(format!("stuck-{n:02}"), seconds(9)).cni(Cni::slow(seconds(600)))
        })
        .pods(14, |n| gone(format!("gone-{n:02}"), seconds(5)));
    let rig = Rig::with(node.build(), options, settings).await;
    api_server.set_answer(&answer(&rig.sim));
    let pass = rig.gc("target=containers&target=sandboxes").await;
    let report = &pass["targets"]["sandboxes"];
    assert_eq!(report["removed"], 0, "{pass:#}");
    assert_ne!(report["failed"], 0, "{pass:#}");
}

/// A pass over pods that are a risk; the removals of those that ended first, more than those that must go, end like this.
async fn after_stuck_ones(end: Fault) -> Value {
    let (rig, _api_server) = stuck_ones(26, end).await;
    rig.gc("target=containers&target=sandboxes").await
}

/// An API server, settings and a runtime with which only a risk makes the lists fit, and removals time out soon.
async fn only_a_risk() -> (ApiServer, Value, Options) {
    let api_server = ApiServer::start().await;
    let mut settings = merged(api_server.config("api-server"), &changes("1h"));
    settings["runtime"] = json!({ "removal_timeout": "1s" });
    let options = Options {
        lagging_kubelet: None,
        ..lagging(1)
    };
    (api_server, settings, options)
}

/// All but one are younger than `min_age`; the removal of that one ends so.
async fn young_ones_and_a_stuck_one(min_age: &str, end: Fault) -> (Rig, ApiServer) {
    let (api_server, mut settings, options) = only_a_risk().await;
    for target in ["containers", "sandboxes"] {
        settings["policy"][target]["min_age"] = json!(min_age);
    }
    let rig = Rig::with(all_of_just_now(), options, settings).await;
    let stuck = PodSpec::new("stuck").exited("app", 0, hours(3));
    rig.sim.add_pod(&stuck.exited("app", 1, hours(2)));
    let stuck = rig.sim.container_id("default/stuck/app#0").unwrap();
    rig.sim.set_removal_fault(&stuck, end);
    api_server.set_answer(&answer(&rig.sim));
    (rig, api_server)
}

async fn stuck_ones(count: usize, end: Fault) -> (Rig, ApiServer) {
    let (api_server, settings, options) = only_a_risk().await;
    let stuck = |n: usize| {
        PodSpec::new(&format!("stuck-{n:02}"))
            .exited("app", 0, seconds(9))
            .deleted()
    };
    let node = NodeBuilder::new()
        .pod(PodSpec::new("web").running("app", 0))
        .pods(count, stuck)
        .pods(40 - count, |n| ended(&format!("gone-{n:02}")).deleted());
    let rig = Rig::with(node.build(), options, settings).await;
    api_server.set_answer(&answer(&rig.sim));
    for n in 0..count {
        let id = rig.sim.container_id(&format!("default/stuck-{n:02}/app#0"));
        rig.sim.set_removal_fault(&id.unwrap(), end.clone());
    }
    (rig, api_server)
}

/// Removes what the kubelet may not know, container by container in this time.
async fn risks_pods(each: Duration) {
    let api_server = ApiServer::start().await;
    let settings = merged(api_server.config("api-server"), &changes("1h"));
    let options = Options {
        // Nothing else helps, so the kubelet is not modelled here: it would run some of them again.
        lagging_kubelet: None,
        ..lagging(1)
    };
    let rig = Rig::with(all_of_just_now(), options, settings).await;
    api_server.set_answer(&answer(&rig.sim));
    let dry_run = rig.gc("dry_run=true").await;
    assert_eq!(dry_run["targets"]["containers"]["planned"], 0);
    let errors = dry_run["errors"].to_string();
    assert!(errors.contains("a pass also removes"), "{dry_run:#}");
    let plan = rig.get("/api/v1/plan").await.json();
    assert_eq!(plan["removals"], json!([]));
    assert_eq!(
        plan["at_risk"],
        json!({ "containers": 40, "sandboxes": 40 })
    );
    let status = rig.get("/api/v1/status").await.json();
    assert_eq!(status["at_risk"], plan["at_risk"]);
    let images = rig.get("/api/v1/plan?target=images").await.json();
    assert_eq!(images["at_risk"], Value::Null);
    let risk = "as too young (40 containers, 40 sandboxes at most)";
    for path in ["/api/v1/plan", "/", "/?confirm=pass"] {
        let page = rig.get(path).await.text;
        assert!(page.contains(risk), "{path}: {page}");
    }
    rig.sim.set_fault(Rpc::RemoveContainer, Fault::slow(each));
    let id = rig.begin_gc("target=containers&target=sandboxes").await;
    until("the pass rests", || async { rig.logged(FITS).pop() }).await;
    let left = rig.exited_containers();
    assert!((10..30).contains(&left), "{left}");
    if !each.is_zero() {
        rig.delete(&format!("/api/v1/passes/{id}")).await;
    }
    let pass = rig.finished(&id).await;
    // After its rest the pass goes by the normal rules.
    assert!(!each.is_zero() || rig.exited_containers() == left);
    let removed = &pass["targets"]["containers"]["removed"];
    let risked = format!("the records of {removed} finished or deleted pods");
    assert!(pass["errors"].to_string().contains(&risked), "{pass:#}");
    assert_eq!(pass["pods"]["source"], "api-server");
}
