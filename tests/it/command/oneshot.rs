//! `crisweep plan` and `crisweep gc`.

use std::fs;

use crisweep_sim::{Cni, Fault, NodeBuilder, PodSpec, Rpc, hours, seconds};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::bare::Bare;
use crate::support::service::text;
use crate::support::{Rig, nodes};

fn ended_just_now() -> NodeBuilder {
    let gone = |n| {
        PodSpec::new(&format!("gone-{n}"))
            .exited("app", 0, seconds(5))
            .deleted()
    };
    nodes::healthy().pods(3, gone)
}

fn quiet() -> Value {
    json!({
        "pods": { "quiet": "2s" },
        "policy": { "containers": { "min_age": "0s" }, "sandboxes": { "min_age": "0s" } },
    })
}

#[tokio::test]
async fn gc_waits_for_quiet_pods_and_prints_that_it_waits() {
    let node = Bare::start(ended_just_now(), &quiet());
    for output in ["table", "json"] {
        let plan = node.run(&["plan", "--output", output]).await;
        let told = text(&plan.stderr);
        assert!(
            told.contains("pods.quiet") && told.contains("crisweep gc waits"),
            "{told}"
        );
    }
    assert_eq!(node.sim.calls(), []);
    let output = node.run(&["gc", "--output", "json"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stderr);
    let waits = told.contains("waiting ") && told.contains("finished pods");
    assert!(waits, "{told}");
    assert_eq!(node.sim.calls().len(), 6);
}

#[tokio::test]
async fn gc_waits_for_no_quiet_pods_beyond_its_deadline_and_removes_what_may_go() {
    let crash = PodSpec::new("crash")
        .exited("app", 0, hours(3))
        .exited("app", 1, hours(2))
        .running("app", 2);
    let mut changes = quiet();
    changes["pods"]["quiet"] = json!("1h");
    changes["gc"] = json!({ "deadline": "5s" });
    let node = Bare::start(ended_just_now().pod(crash), &changes);
    let output = node.run(&["gc"]).await;
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("more would go in"), "{told}");
    let calls = node.sim.calls_of(Rpc::RemoveContainer).into_iter();
    let removed: Vec<String> = calls.map(|call| call.subject).collect();
    assert_eq!(removed, ["default/crash/app#0"], "{told}");
}

#[tokio::test]
async fn a_record_that_is_too_young_is_no_wait_for_quiet_pods() {
    let looping = PodSpec::new("loop")
        .exited("app", 0, seconds(5))
        .exited("app", 1, seconds(3));
    let node = nodes::healthy().pods(1, move |_| looping.clone());
    let changes = json!({
        "pods": { "quiet": "2m" },
        "policy": { "containers": { "min_age": "1m" }, "sandboxes": { "min_age": "1m" } },
    });
    let node = Bare::start(node, &changes);
    for command in ["plan", "gc"] {
        let output = node.run(&[command]).await;
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let told = text(&output.stderr);
        assert!(!told.contains("pods.quiet"), "{told}");
    }
}

#[tokio::test]
async fn plan_names_logs_by_path_and_reports_unreachable_ones() {
    let changes = json!({ "policy": { "logs": { "enabled": true } } });
    let node = Bare::start(nodes::litter(1), &changes);
    let dir = node.config.parent().unwrap();
    let own = "log/pods/default_gone_0d5f6a2c-1111-4222-8333-0123456789ab";
    fs::create_dir_all(dir.join(own)).unwrap();
    fs::write(dir.join("log/containers"), "no directory").unwrap();
    let output = node.run(&["plan", "--all"]).await;
    let shown = text(&output.stdout);
    assert!(shown.contains(dir.join(own).to_str().unwrap()), "{shown}");
    let out_of_reach = format!(
        "logs cannot be reached: {}: Not a directory",
        dir.join("log/containers").display()
    );
    assert!(shown.contains(&out_of_reach), "{shown}");
}

#[tokio::test]
async fn plan_shows_a_table_and_removes_nothing() {
    let node = Bare::start(nodes::litter(2), &json!({}));
    let output = node.run(&["plan"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for words in [
        "VERDICT",
        "default/old-0",
        "pod-deleted",
        "containers: remove 2 (pod-deleted 2)",
        "sandboxes: keep 1 (ready 1)",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(!table.contains("default/web"));
    let all = text(&node.run(&["plan", "--all"]).await.stdout);
    assert!(all.contains("default/web"), "{all}");
    assert_eq!(node.sim.calls(), []);
}

#[tokio::test]
async fn a_long_plan_begins_with_its_counts_and_fits_80_columns() {
    let node = Bare::start(nodes::litter(30), &json!({}));
    let args = ["plan", "--target", "containers", "--target", "sandboxes"];
    let output = node.run(&args).await;
    let shown = text(&output.stdout);
    let rows = |shown: &str| {
        shown
            .lines()
            .filter(|line| line.starts_with("  remove "))
            .count()
    };
    assert!(
        shown.starts_with("containers: remove 30 (pod-deleted 30)\n"),
        "{shown}"
    );
    assert_eq!(rows(&shown), 20, "{shown}");
    assert!(
        shown.contains("... and 40 more would be removed: --all shows every object"),
        "{shown}"
    );
    // Each pod has one title, above its objects.
    assert_eq!(
        shown.matches("default/old-0 (deleted)\n").count(),
        1,
        "{shown}"
    );
    let all = text(&node.run(&[&args[..], &["--all"]].concat()).await.stdout);
    assert_eq!(rows(&all), 60, "{all}");
    assert!(all.contains("its state is running"), "{all}");
    for line in shown.lines().chain(all.lines()) {
        // The id is whole where a program may read it.
        let whole_id = |word: &&str| word.len() == 64;
        let id = line.split(' ').next_back().filter(whole_id);
        let columns = line.chars().count() - id.map_or(0, |id| id.len() - 12);
        assert!(columns <= 80 && !line.contains('\x1b'), "{line}");
    }
}

#[tokio::test]
async fn a_command_prints_what_it_waits_for() {
    let node = Bare::start(nodes::litter(1), &json!({ "pods": { "settle": "1s" } }));
    for args in [&["plan"][..], &["gc"]] {
        let output = node.run(args).await;
        let said = text(&output.stderr);
        assert!(
            said.contains("waiting 1 s for the pod list to settle (pods.settle)"),
            "{said}"
        );
        assert!(text(&output.stdout).contains("pod-deleted") || args == ["gc"]);
    }
    assert_eq!(node.sim.calls().len(), 2);
}

#[tokio::test]
async fn a_look_that_takes_longer_than_the_pod_list_settles_is_followed_by_another() {
    let node = Bare::start(nodes::litter(1), &json!({ "pods": { "settle": "1ms" } }));
    let output = node.run(&["plan"]).await;
    let shown = text(&output.stdout);
    assert!(shown.contains("pod-deleted"), "{shown}");
}

#[tokio::test]
async fn plan_reports_that_no_pod_source_is_configured() {
    let changes = json!({ "pods": { "source": "none", "file": null } });
    let node = Bare::start(nodes::litter(2), &changes);
    let said = text(&node.run(&["plan"]).await.stdout);
    assert!(said.contains("only surplus is removed"), "{said}");
    let changes = ["plan", "--assume-finished-after", "1h", "--output", "json"];
    let plan: Value = serde_json::from_slice(&node.run(&changes).await.stdout).unwrap();
    assert_eq!(plan["kept"][0]["pod_state"], "assumed");
}

#[tokio::test]
async fn gc_runs_a_pass_shows_it_and_exits_with_0() {
    let node = Bare::start(nodes::litter(3), &json!({}));
    let output = node.run(&["gc", "--dry-run"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("planned (dry run"));
    assert_eq!(node.sim.calls(), []);
    let output = node.run(&["gc"]).await;
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("PLANNED") && shown.contains("completed"),
        "{shown}"
    );
    let progress = text(&output.stderr);
    assert!(
        progress.contains("containers: batch 1: 3 of 3 gone"),
        "{progress}"
    );
    assert_eq!(node.sim.calls().len(), 6);
    let output = node.run(&["gc", "--output", "json"]).await;
    assert_eq!(output.status.code(), Some(0));
    let pass: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(pass["outcome"], "nothing-to-do");
    assert_eq!(pass["trigger"]["cause"], "command");
}

/// Runs `crisweep gc --dry-run` on a terminal of this kind, and returns what that shows.
async fn on_terminal(kind: &str) -> String {
    let node = Bare::start(nodes::litter(2), &json!({}));
    let crisweep = env!("CARGO_BIN_EXE_crisweep");
    let config = node.config.display();
    let command = format!("{crisweep} gc --dry-run --config.file {config}");
    let mut terminal = tokio::process::Command::new("script");
    terminal.env_clear().env("TERM", kind);
    terminal.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let output = terminal.output().await.unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}");
    shown
}

#[tokio::test]
async fn a_terminal_that_understands_no_control_sequences_gets_none() {
    let shown = on_terminal("xterm").await;
    assert!(shown.contains('\u{1b}'), "{shown}");
    let shown = on_terminal("dumb").await;
    assert!(!shown.contains('\u{1b}'), "{shown}");
    assert!(shown.contains("containers: 2 to remove"), "{shown}");
}

#[tokio::test]
async fn gc_is_held_by_a_pause_unless_it_is_forced() {
    let node = Bare::start(nodes::litter(2), &json!({ "brakes": { "pause": true } }));
    let held = node.run(&["gc"]).await;
    assert_eq!(held.status.code(), Some(1), "{}", text(&held.stdout));
    let told = text(&held.stderr);
    let words = "garbage collection is paused (brakes.pause); --force overrides it";
    assert!(told.contains(words), "{told}");
    let dry = node.run(&["gc", "--dry-run"]).await;
    assert_eq!(dry.status.code(), Some(0), "{}", text(&dry.stderr));
    assert_eq!(node.sim.calls(), []);
    let forced = node.run(&["gc", "--force"]).await;
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
    assert_eq!(node.sim.calls().len(), 4);
}

#[tokio::test]
async fn gc_exits_with_1_when_a_planned_removal_failed() {
    let node = Bare::start(nodes::leaks(4), &json!({}));
    node.sim.set_cni(
        &node.sim.sandbox_id("default/leak-2#0").unwrap(),
        Cni::failing(),
    );
    let output = node.run(&["gc"]).await;
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("partial") && shown.contains("failed to destroy network"),
        "{shown}"
    );
    assert_eq!(node.sim.calls().len(), 4);
}

#[tokio::test]
async fn gc_is_bounded_by_max_removals_and_target() {
    let node = Bare::start(nodes::litter(5), &json!({}));
    let args = [
        "gc",
        "--target",
        "containers",
        "--max-removals",
        "2",
        "--output",
        "json",
    ];
    let output = node.run(&args).await;
    assert_eq!(output.status.code(), Some(1));
    let pass: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(pass["targets"]["containers"]["removed"], 2);
    assert_eq!(node.sim.calls().len(), 2);
}

#[tokio::test]
async fn a_runtime_that_is_down_fails_the_command_with_its_reason() {
    let node = Bare::start(nodes::litter(1), &json!({ "pods": { "settle": "1s" } }));
    node.sim.stop().await;
    for args in [&["plan"][..], &["gc"]] {
        let output = node.run(args).await;
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = text(&output.stderr) + &text(&output.stdout);
        assert!(said.contains("no connection"), "{said}");
        assert!(!said.contains("for the pod list to settle"), "{said}");
    }
}

#[tokio::test]
async fn control_characters_in_names_are_shown_escaped() {
    // As long as the column is wide.
    let name = "\u{1b}\nFORGED";
    let pod = PodSpec::new("old").exited(name, 0, hours(3)).deleted();
    let node = Bare::start(nodes::healthy().pod(pod), &json!({}));
    let fault = Fault::fail(Code::Internal, "refused\nFORGED \u{1b}[2J\u{202e}");
    node.sim.set_fault(Rpc::RemoveContainer, fault);
    for args in [
        &["plan"][..],
        &["plan", "--output", "json"],
        &["gc"],
        &["gc", "--output", "json"],
    ] {
        let output = node.run(args).await;
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(shown.contains("FORGED"), "{args:?}: {shown}");
        assert!(
            !shown.contains(['\u{1b}', '\u{202e}']),
            "{args:?}: {shown:?}"
        );
        let forged = shown.lines().any(|line| line.starts_with("FORGED"));
        assert!(!forged, "{args:?}: {shown}");
    }
}

#[tokio::test]
async fn passes_and_evidence_ask_no_service_where_a_runtime_is_named() {
    let (rig, _dir) = Rig::with_socket(nodes::litter(1), json!({})).await;
    rig.gc("").await;
    for command in ["passes", "evidence"] {
        let output = rig
            .command(&[command, "--runtime-endpoint=/none.sock"])
            .await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(
            said.starts_with("--runtime-endpoint names a runtime: "),
            "{said}"
        );
    }
}
