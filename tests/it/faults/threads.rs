//! A system that allows no new thread, with a control group of its own, which needs root; or no new file.

use std::time::Duration;

use crisweep_sim::Options;
use serde_json::json;
use tokio::process::Command;

use super::answers;
use crate::support::control_group::ControlGroup;
use crate::support::service::{Service, text};
use crate::support::{Rig, nodes};

/// After a rest of 10 s tokio by itself ends threads for blocking calls.
const REST: Duration = Duration::from_secs(11);
/// What a start needs: the program's own thread and four others.
const TASKS_MIN: u64 = 5;

/// Makes a group of so many threads; `None` without the permission.
fn group(threads: u64) -> Option<ControlGroup> {
    let group = ControlGroup::new("pids")?;
    allow(&group, threads).then_some(group)
}

fn allow(group: &ControlGroup, threads: u64) -> bool {
    group.write("pids.max", &threads.to_string())
}

#[tokio::test]
async fn a_service_that_runs_needs_no_new_thread() {
    let Some(group) = group(100) else { return };
    let mut rig = Rig::unready(nodes::litter(30).build(), Options::default(), json!({})).await;
    rig.kill().await;
    rig.service = Service::start_as(group.program(), &rig.config_file()).await;
    rig.ready().await;
    tokio::time::sleep(REST).await;
    assert!(allow(&group, group.read("pids.current")));
    answers(&rig).await;
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "completed", "{pass:#}");
    rig.kill().await;
}

async fn run(mut command: Command, args: &[&str]) -> (Option<i32>, String, String) {
    command.args(args);
    let running = tokio::time::timeout(Duration::from_secs(30), command.output());
    let output = running.await.expect("it ends").unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, error)
}

#[tokio::test]
async fn a_start_without_room_for_its_threads_says_so_and_check_says_unknown() {
    let Some(group) = group(TASKS_MIN) else {
        return;
    };
    let (code, _, error) = run(group.program(), &["rules"]).await;
    assert_eq!((code, error.as_str()), (Some(0), ""));
    for threads in 1..TASKS_MIN {
        assert!(allow(&group, threads));
        let (code, out, error) = run(group.program(), &["rules"]).await;
        assert_eq!((code, out.as_str()), (Some(1), ""));
        let words = "crisweep: cannot start: no new thread is allowed";
        assert!(error.starts_with(words), "{threads}: {error}");
        let (code, out, _) = run(group.program(), &["check"]).await;
        let line = "UNKNOWN: crisweep cannot start\n";
        assert_eq!((code, out.as_str()), (Some(2), line), "{threads}");
    }
}

#[tokio::test]
async fn a_start_without_room_for_its_files_says_so_and_check_says_unknown() {
    for files in [4, 7, 8] {
        let run = async |command: &str| {
            let script = format!("ulimit -n {files}; exec \"$0\" {command}");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]);
            run(shell, &[env!("CARGO_BIN_EXE_crisweep")]).await
        };
        let (code, out, error) = run("rules").await;
        assert_eq!((code, out.as_str()), (Some(1), ""));
        let words = "crisweep: cannot start: too few files may be open";
        assert!(error.starts_with(words), "{files}: {error}");
        let (code, out, _) = run("check").await;
        let line = "UNKNOWN: crisweep cannot start\n";
        assert_eq!((code, out.as_str()), (Some(2), line), "{files}");
    }
}
