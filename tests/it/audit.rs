//! What can be asked about passes and removals: over HTTP, by command, and as JSON lines.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crisweep_sim::{Cni, Fault};
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::state::rows;
use crate::support::pipe::Pipe;
use crate::support::service::{Service, run};
use crate::support::{Rig, nodes, until};

/// A node whose first pass removes four sandboxes and fails at one.
async fn with_a_failure(changes: Value) -> Rig {
    let rig = Rig::start(nodes::leaks(5), changes).await;
    let failing = rig.sim.sandbox_id("default/leak-2#0").unwrap();
    rig.sim.set_cni(&failing, Cni::plugin_missing());
    rig.gc("target=sandboxes").await;
    rig
}

#[tokio::test]
async fn removals_say_what_went_for_whom_and_how_it_ended() {
    let rig = with_a_failure(json!({})).await;
    let all = rig.get("/api/v1/removals").await.json();
    let rows = all["removals"].as_array().unwrap();
    assert_eq!((rows.len(), &all["next"]), (5, &Value::Null), "{all:#}");
    let failed = rig.get("/api/v1/removals?result=failed").await.json();
    let [row] = &failed["removals"].as_array().unwrap()[..] else {
        panic!("{failed:#}");
    };
    assert_eq!(row["pod_name"], "leak-2");
    assert_eq!(row["class"], "plugin-missing");
    assert_eq!(row["trigger"]["cause"], "manual");
    assert_eq!(row["trigger"]["by"]["kind"], "uid");
    assert!(row["why"].as_str().unwrap().contains("bridge"), "{row}");
    assert!(
        row["duration_ms"].is_u64() && row["ended_at"].is_string(),
        "{row}"
    );
    let id = row["id"].as_str().unwrap();
    for (query, count) in [
        (format!("id={}", &id[..12]), 1),
        (
            "namespace=default&reason=pod-deleted&target=sandboxes".to_owned(),
            5,
        ),
        ("pod=leak-3".to_owned(), 1),
        ("since=1h".to_owned(), 5),
        ("until=1h".to_owned(), 0),
        ("until=2099-01-01T00:00:00Z".to_owned(), 5),
        (format!("pass={}", row["pass"].as_str().unwrap()), 5),
    ] {
        let found = rig.get(&format!("/api/v1/removals?{query}")).await.json();
        let found = found["removals"].as_array().unwrap().len();
        assert_eq!(found, count, "{query}");
    }
}

#[tokio::test]
async fn a_removal_whose_result_could_not_be_written_is_not_said_to_have_not_begun() {
    let changes = json!({ "gc": { "max_concurrency": 1 }, "evidence": { "enabled": false } });
    let rig = Rig::start(nodes::litter(12), changes).await;
    for container in rig.sim.containers() {
        let slow = Fault::slow(Duration::from_millis(700));
        rig.sim.set_removal_fault(&container.row.id, slow);
    }
    let id = rig.begin_gc("target=containers").await;
    rig.removing().await;
    let other = Connection::open(rig.state_dir().join("crisweep.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    until("a result is lost", || async {
        let lost = rig.logged("state cannot be written; passes go on without it");
        (!lost.is_empty()).then_some(())
    })
    .await;
    other.execute_batch("ROLLBACK").unwrap();
    rig.delete(&format!("/api/v1/passes/{id}")).await;
    rig.finished(&id).await;
    let audit = rig.get(&format!("/api/v1/removals?pass={id}")).await.json();
    let rows = audit["removals"].as_array().unwrap();
    let of = |result: Value| -> Vec<&str> {
        let rows = rows.iter().filter(|row| row["result"] == result);
        rows.map(|row| row["id"].as_str().unwrap()).collect()
    };
    assert!(!of(Value::Null).is_empty(), "{audit:#}");
    let skipped = of(json!("skipped"));
    assert_eq!(skipped.len(), rig.exited_containers(), "{audit:#}");
    assert!(skipped.iter().all(|id| rig.sim.container(id).is_some()));
}

#[tokio::test]
async fn what_went_elsewhere_while_the_runtime_was_away_is_said_to_have_not_begun() {
    let changes = json!({ "gc": { "max_concurrency": 1 }, "evidence": { "enabled": false } });
    let rig = Rig::start(nodes::litter(3), changes).await;
    let id_of = |number| rig.sim.container_id(&format!("default/old-{number}/app#0"));
    let (first, last) = (id_of(0).unwrap(), id_of(2).unwrap());
    rig.sim.set_removal_fault(&first, Fault::hang());
    let id = rig.begin_gc("target=containers").await;
    rig.removing().await;
    rig.sim.stop().await;
    rig.sim.clear_faults();
    assert!(rig.sim.change(|node| node.vanish_container(&last)));
    rig.sim.start().unwrap();
    let pass = rig.finished(&id).await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    let path = format!("/api/v1/removals?pass={id}&id={last}");
    let audit = rig.get(&path).await.json();
    let row = &audit["removals"][0];
    assert_eq!(row["result"], "skipped", "{audit:#}");
    // The pass did not have to end: it went on.
    let why = "its removal had not begun when the pass ended";
    assert_eq!(row["why"], why, "{audit:#}");
}

#[tokio::test]
async fn pages_go_on_where_the_last_one_ended() {
    let rig = with_a_failure(json!({})).await;
    let first = rig.get("/api/v1/removals?limit=3").await.json();
    let path = format!("/api/v1/removals?limit=3&before={}", first["next"]);
    let second = rig.get(&path).await.json();
    let count = |page: &Value| page["removals"].as_array().unwrap().len();
    assert_eq!((count(&first), count(&second)), (3, 2));
    assert_eq!(second["next"], Value::Null);

    rig.gc("dry_run=true").await;
    let passes = rig.get("/api/v1/passes?limit=1").await.json();
    assert_eq!(
        passes["passes"][0]["outcome"], "nothing-to-do",
        "{passes:#}"
    );
    let path = format!("/api/v1/passes?before={}", passes["next"]);
    let earlier = rig.get(&path).await.json();
    assert_eq!(earlier["passes"][0]["outcome"], "partial", "{earlier:#}");
    let partial = rig.get("/api/v1/passes?outcome=partial&cause=manual").await;
    assert_eq!(partial.json()["passes"], earlier["passes"]);
}

#[tokio::test]
async fn wrong_questions_are_refused_by_name() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    for (query, words) in [
        (
            "colour=red",
            "unknown parameter \"colour\"; known are pass, target",
        ),
        (
            "limit=0",
            "limit: \"0\" is not a whole number from 1 to 1000",
        ),
        ("limit=1001", "from 1 to 1000"),
        ("before=x", "before: \"x\" is not a whole number from 1"),
        ("since=soon", "since: \"soon\" is neither a time"),
        ("pod=a&pod=b", "pod is there twice"),
        ("target=pods", "none of containers, sandboxes, logs, images"),
        ("result=faild", "result: \"faild\" is none of removed,"),
        ("reason=old", "reason: \"old\" is none of pod-deleted,"),
    ] {
        rig.get(&format!("/api/v1/removals?{query}"))
            .await
            .refused(400, words);
    }
    rig.get("/api/v1/passes?target=images")
        .await
        .refused(400, "known are outcome");
    rig.get("/api/v1/passes?outcome=complete")
        .await
        .refused(400, "outcome: \"complete\" is none of completed,");
    rig.get("/api/v1/passes?cause=alerts")
        .await
        .refused(400, "cause: \"alerts\" is none of alert,");
    let quotes = rig
        .get("/api/v1/removals?namespace=%27%20OR%201%3D1%20--")
        .await;
    assert_eq!(quotes.json()["removals"], json!([]));
}

#[tokio::test]
async fn without_a_database_the_answer_says_so() {
    let rig = Rig::start(
        nodes::healthy(),
        json!({ "state": { "dir": "/proc/none" } }),
    )
    .await;
    rig.get("/api/v1/removals").await.refused(
        503,
        "the database is not open; /api/v1/status says why (state)",
    );
    let status = rig.get("/api/v1/status").await.json();
    let errors = status["state"]["errors"].as_object().unwrap();
    assert!(!errors.is_empty());
    for path in ["/api/v1/passes?limit=3", "/api/v1/evidence"] {
        rig.get(path).await.refused(503, "not open");
    }
    assert_eq!(rig.get("/api/v1/passes").await.json()["passes"], json!([]));
}

#[tokio::test]
async fn a_pass_that_the_history_forgot_is_found_in_the_database() {
    let rig = Rig::start(nodes::healthy(), json!({})).await;
    let first = rig.gc("").await;
    for _ in 0..100 {
        rig.gc("dry_run=true").await;
    }
    let all = rig.get("/api/v1/passes").await.json();
    assert!(!all["passes"].as_array().unwrap().contains(&first));
    // Of 101 passes the smallest journal may have lost the first.
    let oldest = rig.get("/api/v1/passes?limit=200").await.json();
    let oldest = oldest["passes"].as_array().unwrap().last().unwrap().clone();
    let id = oldest["id"].as_str().unwrap();
    assert_eq!(rig.pass(id).await, oldest);
}

#[tokio::test]
async fn the_command_shows_as_many_passes_as_it_is_asked_for() {
    let changes = json!({ "state": { "journal_bytes": "4MiB" } });
    let rig = Rig::start(nodes::healthy(), changes).await;
    // One more than the service answers at a time.
    for _ in 0..201 {
        rig.gc("dry_run=true&target=logs").await;
    }
    let url = format!("--service.url=http://{}", rig.address);
    for (limit, shown) in [
        ("--limit=200", 200),
        ("--limit=201", 201),
        ("--limit=1000", 201),
    ] {
        let output = run(&["passes", limit, "--output=json", &url]).await;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["passes"].as_array().unwrap().len(), shown, "{limit}");
    }
}

#[tokio::test]
async fn the_command_shows_passes_with_and_without_the_service() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", dir.path().join("crisweep.sock").display());
    let listen = json!({ "web": { "listen": ["127.0.0.1:0", socket] } });
    let mut rig = with_a_failure(listen).await;
    let file = rig.config_file();
    let file = file.to_str().unwrap().to_owned();
    let id = rig.passes().await[0]["id"].as_str().unwrap().to_owned();
    let mut shown = Vec::new();
    for who in [
        "the running service answers",
        "this command reads the database",
    ] {
        let list = run(&["--config.file", &file, "passes"]).await;
        let told = String::from_utf8(list.stderr).unwrap();
        assert!(list.status.success() && told.contains(who), "{told}");
        let one = run(&["--config.file", &file, "passes", &id]).await;
        let list = String::from_utf8(list.stdout).unwrap();
        let one = String::from_utf8(one.stdout).unwrap();
        assert!(list.contains(&id) && list.contains("partial"), "{list}");
        assert!(one.contains(&id) && one.contains("manual: uid"), "{one}");
        assert!(one.contains("default/leak-3#0"), "{one}");
        assert!(one.contains("(1 failed, 4 removed)"), "{one}");
        assert!(one.contains("failed to find plugin \"bridge\""), "{one}");
        let json = run(&["--config.file", &file, "passes", &id, "--output", "json"]).await;
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["removals"].as_array().unwrap().len(), 5);
        shown.push((list, one, json));
        if shown.len() == 1 {
            let none = run(&["--config.file", &file, "passes", "none"]).await;
            assert_eq!(none.status.code(), Some(1));
            rig.kill().await;
        }
    }
    assert_eq!(shown[0], shown[1]);
    let none = run(&["--config.file", &file, "passes", "none"]).await;
    let told = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(
        told.contains("no pass \"none\" is in the database"),
        "{told}"
    );
}

#[tokio::test]
async fn without_a_database_the_commands_name_its_directory_and_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let [file, state] = ["config.yaml", "state"].map(|name| dir.path().join(name));
    let config = json!({ "state": { "dir": state }, "web": { "listen": ["unix:/none"] } });
    fs::write(&file, config.to_string()).unwrap();
    let place = state.display();
    let none = format!(
        "crisweep: there is no database in {place} (state.dir): no service has run with this directory yet, or it has \
         another one; name its configuration with --config.file, or the service with --service.url\n"
    );
    let empty = format!("crisweep: the database in {place}: crisweep.db is empty\n");
    let commands: [&[&str]; 5] = [
        &["passes"],
        &["passes", "20260131T090000Z-7"],
        &["evidence"],
        &["evidence", "show", "0123456789ab"],
        &["snapshot", "-", "--pass", "20260131T090000Z-7"],
    ];
    for wanted in [&none, &none, &empty] {
        for command in commands {
            let asked = run(&[&["--config.file", file.to_str().unwrap()], command].concat()).await;
            let told = String::from_utf8(asked.stderr).unwrap();
            assert!(told.ends_with(wanted), "{command:?}: {told}");
            assert_eq!(asked.status.code(), Some(1), "{command:?}");
        }
        if state.exists() {
            fs::write(state.join("crisweep.db"), "").unwrap();
        }
        fs::create_dir_all(&state).unwrap();
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[tokio::test]
async fn each_pass_and_removal_is_a_line_of_json_in_a_file_that_may_be_moved() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.jsonl");
    let rig = with_a_failure(json!({ "state": { "audit_lines": file } })).await;
    let written = until("the pass's end is written", || async {
        let lines = lines(&file);
        (lines.len() == 7).then_some(lines)
    })
    .await;
    assert_eq!(written[0]["event"], "pass");
    assert_eq!(
        (&written[0]["state"], &written[6]["state"]),
        (&json!("running"), &json!("done"))
    );
    assert_eq!(written[6]["trigger"]["cause"], "manual");
    let failed: Vec<&Value> = written
        .iter()
        .filter(|it| it["result"] == "failed")
        .collect();
    assert_eq!(failed[0]["pod_name"], "leak-2");
    assert_eq!(failed[0]["pass"], written[0]["id"]);
    assert!(
        written
            .iter()
            .all(|it| it["time"].is_string() && it["node"].is_string())
    );

    let moved = dir.path().join("audit.jsonl.1");
    fs::rename(&file, &moved).unwrap();
    rig.gc("dry_run=true").await;
    until("the new file has the next pass", || async {
        (lines(&file).len() == 2).then_some(())
    })
    .await;
    assert_eq!(lines(&moved).len(), 7);
}

#[tokio::test]
async fn lines_that_cannot_be_written_are_counted_and_stop_nothing() {
    let changes = json!({ "state": { "audit_lines": "/proc/none/audit.jsonl" } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    until("the lost lines are counted", || async {
        let metrics = rig.metrics().await;
        let lost = metrics.get("crisweep_state_write_failures_total");
        (lost >= Some(4.0)).then_some(())
    })
    .await;
    assert_eq!(
        rig.logged("JSON lines of passes and removals are lost")
            .len(),
        1
    );
}

#[tokio::test]
async fn lines_that_wait_when_the_service_stops_are_written() {
    let changes = json!({ "state": { "audit_lines": "stdout" } });
    let mut rig = Rig::start(nodes::litter(100), changes).await;
    rig.kill().await;
    let pipe = Pipe::new();
    rig.service = Service::start_into(pipe.writer(), &rig.config_file()).await;
    rig.ready().await;
    pipe.fill();
    assert_eq!(rig.gc("").await["outcome"], "completed");
    rig.service.signal(Signal::TERM);
    let reading = pipe.read_on();
    rig.service.exited().await;
    let text = reading.all();
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines: Vec<Value> = lines.map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(lines.len(), 202);
    assert_eq!(lines[201]["outcome"], "completed");
}

#[tokio::test]
async fn lines_that_wait_when_the_service_stops_and_cannot_be_written_are_named() {
    let changes = json!({ "state": { "audit_lines": "stdout" } });
    let mut rig = Rig::start(nodes::litter(2), changes).await;
    rig.kill().await;
    let pipe = Pipe::new();
    rig.service = Service::start_into(pipe.writer(), &rig.config_file()).await;
    rig.ready().await;
    pipe.fill();
    rig.gc("").await;
    rig.service.signal(Signal::TERM);
    rig.service.exited().await;
    let lost = rig.logged("JSON lines of passes and removals are lost at the end");
    assert_eq!(lost[0]["lines"], 6, "{lost:?}");
}

#[tokio::test]
async fn the_node_before_a_pass_can_be_planned_again() {
    let mut rig = with_a_failure(json!({ "state": { "snapshots": 2 } })).await;
    let pass = rig.passes().await[0].clone();
    let id = pass["id"].as_str().unwrap();
    let answer = rig.get(&format!("/api/v1/snapshot?pass={id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    rig.get("/api/v1/snapshot?pass=none")
        .await
        .refused(404, "no snapshot from before pass");
    rig.get("/api/v1/snapshot?when=1")
        .await
        .refused(400, "known are pass");
    // Passes that removed nothing keep none, and the two newest stay.
    rig.gc("dry_run=true").await;
    for number in [1, 2] {
        rig.sim.add_pod(&nodes::deleted(number, number + 1));
        rig.gc("").await;
    }
    assert_eq!(rows(&rig.state_dir(), "snapshots"), 2);
    let newest = rig.passes().await[0]["id"].as_str().unwrap().to_owned();
    let dir = tempfile::tempdir().unwrap();
    let file = rig.config_file();
    let file = file.to_str().unwrap();
    let out = dir.path().join("before.json.zst");
    let out = out.to_str().unwrap();
    rig.kill().await;
    let none = run(&["--config.file", file, "snapshot", "--pass", id, out]).await;
    assert_eq!(none.status.code(), Some(1), "the oldest made way: {none:?}");
    let kept = run(&["--config.file", file, "snapshot", "--pass", &newest, out]).await;
    assert!(kept.status.success(), "{kept:?}");
    let plan = run(&["simulate", out, "--output", "json"]).await;
    let plan: Value = serde_json::from_slice(&plan.stdout).unwrap();
    let names = plan.to_string();
    assert!(
        names.contains("old-2") && !names.contains("old-1"),
        "{plan:#}"
    );
}
