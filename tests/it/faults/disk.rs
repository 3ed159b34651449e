//! Hung disks: every file that crisweep reads is on a file system that never answers. That costs a few
//! threads, and no long waits.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crisweep_sim::Options;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr};
use tokio::time::timeout;

use super::answers;
use crate::support::hung::Hung;
use crate::support::rig::{config, write};
use crate::support::service::{program, run};
use crate::support::wait::PATIENCE;
use crate::support::{Answer, Rig, nodes, until};

/// Threads that a hung disk may cost: one for each kind of call, and four that remove logs.
const THREADS_MAX: usize = 12;

fn threads(rig: &Rig) -> usize {
    let tasks = format!("/proc/{}/task", rig.pid());
    std::fs::read_dir(tasks).unwrap().count()
}

/// Scrapes and asks often enough to use up every thread if each call lost one, and asserts that all are
/// answered; then runs a pass and ends the process.
async fn works_beside(rig: &mut Rig, hung: &[&Path]) {
    let before = threads(rig);
    let hung: Vec<Hung> = hung.iter().map(|dir| Hung::at(dir)).collect();
    for _ in 0..12 {
        let scrape = rig.request("GET", "/metrics");
        let scrape = scrape.header("x-prometheus-scrape-timeout-seconds", "3");
        assert_eq!(Answer::of(scrape).await.status, 200);
    }
    answers(rig).await.is("cri_up", 1.0);
    let began = Instant::now();
    let pass = rig
        .gc("target=containers&target=sandboxes&target=logs")
        .await;
    assert_eq!(pass["state"], "done", "{pass:#}");
    assert!(began.elapsed() < Duration::from_secs(30), "{pass:#}");
    answers(rig).await;
    let lost = threads(rig).saturating_sub(before);
    assert!(lost <= THREADS_MAX, "{lost} threads");
    let began = Instant::now();
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    drop(hung);
}

/// Returns a rig and the directory of the configured paths.
async fn rig(changes: impl FnOnce(&Path) -> Value) -> (Rig, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let changes = changes(dir.path());
    (Rig::start(nodes::litter(3), changes).await, dir)
}

#[tokio::test]
async fn log_roots_that_hang_block_nothing() {
    let (mut rig, dir) = rig(|dir| {
        std::fs::create_dir_all(dir.join("pods")).unwrap();
        std::fs::create_dir_all(dir.join("containers")).unwrap();
        json!({ "policy": { "logs": {
            "enabled": true, "pods_root": dir.join("pods"), "containers_root": dir.join("containers"),
        } } })
    })
    .await;
    works_beside(&mut rig, &[dir.path()]).await;
}

#[tokio::test]
async fn log_roots_that_hang_hold_no_list_over_the_limit() {
    let (mut rig, dir) = rig(|dir| {
        std::fs::create_dir_all(dir.join("pods")).unwrap();
        json!({ "policy": { "logs": { "pods_root": dir.join("pods"), "containers_root": dir.join("containers") } } })
    })
    .await;
    // Not even the exited containers alone fit, so names from the disk are needed.
    rig.sim.conduct(|it| it.send_limit_bytes = 300);
    works_beside(&mut rig, &[dir.path()]).await;
}

#[tokio::test]
async fn a_host_root_that_hangs_blocks_nothing() {
    let (mut rig, dir) = rig(|dir| {
        json!({
            "runtime": { "host_root": dir },
            "policy": { "logs": { "enabled": true } },
            "gc": { "io_pressure_pause_percent": 20 },
        })
    })
    .await;
    works_beside(&mut rig, &[dir.path()]).await;
}

#[tokio::test]
async fn a_pods_file_that_hangs_makes_pods_unknown_and_blocks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pods.json");
    let options = Options::default();
    let changes = json!({ "pods": { "file": file } });
    std::fs::write(
        &file,
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"items\":[]}",
    )
    .unwrap();
    let mut rig = Rig::with(nodes::litter(3).build(), options, changes).await;
    let hung = Hung::at(dir.path());
    until("the status says why", || async {
        let pods = rig.get("/api/v1/status").await.json()["pods"].clone();
        let says = pods["why"].to_string().contains("file system");
        (says && pods["known"] == false).then_some(())
    })
    .await;
    drop(hung);
    works_beside(&mut rig, &[dir.path()]).await;
}

#[tokio::test]
async fn tokens_and_sockets_that_hang_block_nothing() {
    for source in ["auto", "api-server", "kubelet-socket", "kubelet"] {
        let (mut rig, dir) = rig(|dir| {
            for file in ["token", "ca"] {
                std::fs::write(dir.join(file), "x").unwrap();
            }
            let mut pods = json!({ "source": source, "file": null, "settle": null });
            let more = match source {
                "auto" => json!({ "kubelet_socket": dir.join("kubelet.sock"), "settle": "0s" }),
                "kubelet-socket" => json!({ "kubelet_socket": dir.join("kubelet.sock") }),
                "kubelet" => json!({ "kubelet_url": "https://127.0.0.1:1",
                    "kubelet_token_file": dir.join("token"), "kubelet_ca_file": dir.join("ca") }),
                _ => json!({ "api_url": "https://127.0.0.1:1",
                    "api_token_file": dir.join("token"), "api_ca_file": dir.join("ca") }),
            };
            pods.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({ "pods": pods })
        })
        .await;
        works_beside(&mut rig, &[dir.path()]).await;
    }
}

#[tokio::test]
async fn a_state_directory_that_hangs_blocks_nothing() {
    let (mut rig, dir) = rig(|dir| json!({ "state": { "dir": dir } })).await;
    works_beside(&mut rig, &[dir.path()]).await;
}

#[tokio::test]
async fn a_configuration_that_hangs_is_not_reloaded_and_holds_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    let file = dir.path().join("crisweep.yaml");
    std::fs::copy(rig.config_file(), &file).unwrap();
    rig.kill().await;
    rig.service = crate::support::service::Service::start(&file).await;
    rig.ready().await;
    let hung = Hung::at(dir.path());
    for _ in 0..3 {
        let answer = rig.post("/-/reload").await;
        assert!(answer.status >= 400, "{}", answer.text);
        assert!(answer.text.contains("file system"), "{}", answer.text);
        rig.service.signal(Signal::HUP);
    }
    answers(&rig).await;
    rig.service.signal(Signal::TERM);
    let exit = rig.service.exited().await;
    drop(hung);
    assert_eq!(exit.code(), Some(0));
}

/// A pipe in place of the file: opening it for reading would wait for a writer for ever.
#[tokio::test]
async fn a_configuration_that_is_a_pipe_without_a_writer_is_not_reloaded_and_blocks_nothing() {
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    let file = rig.config_file();
    std::fs::remove_file(&file).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, kind, mode, 0).unwrap();
    for _ in 0..2 {
        let answer = rig.post("/-/reload").await;
        answer.refused(400, "is not a regular file");
        rig.service.signal(Signal::HUP);
    }
    answers(&rig).await;
    assert_eq!(rig.gc("").await["outcome"], "completed");
    rig.service.signal(Signal::TERM);
    assert_eq!(rig.service.exited().await.code(), Some(0));
    let output = run(&["--config.file", file.to_str().unwrap()]).await;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && words.contains("is not a regular file"),
        "{words}"
    );
}

#[tokio::test]
async fn the_command_ends_beside_disks_that_hang() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let mut rig = Rig::start(nodes::litter(3), json!({ "state": { "dir": state } })).await;
    // Where two processes look up one name, the kernel lets the second wait for the first, even when it
    // was killed. So the command is alone.
    rig.kill().await;
    let hung = Hung::at(dir.path());
    let config = rig.config_file();
    let output = run(&["--config.file", config.to_str().unwrap(), "plan"]).await;
    drop(hung);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}");
}

/// Starts `crisweep evidence` with a state directory that hangs, and returns it with its standard error, which says
/// by then that it reads.
async fn waits_for_evidence(dir: &Path) -> (Hung, Child, Lines<BufReader<ChildStderr>>) {
    let state = dir.join("hung/state");
    std::fs::create_dir_all(&state).unwrap();
    let config = write(dir, &config(dir, &json!({ "state": { "dir": state } })));
    let hung = Hung::at(&dir.join("hung"));
    let mut command = program();
    command.arg("--config.file").arg(config).arg("evidence");
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("this command reads the database") {
                return;
            }
        }
        panic!("it says nothing");
    };
    timeout(PATIENCE, told).await.unwrap();
    (hung, child, lines)
}

#[tokio::test]
async fn a_command_that_reads_a_state_directory_that_hangs_ends() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (mut one, mut other) = tokio::join!(
        waits_for_evidence(dirs[0].path()),
        waits_for_evidence(dirs[1].path())
    );
    let id = Pid::from_raw(one.1.id().unwrap().cast_signed()).unwrap();
    kill_process(id, Signal::INT).unwrap();
    let status = timeout(Duration::from_secs(5), one.1.wait()).await;
    assert_eq!(status.unwrap().unwrap().signal(), Some(2));
    let ended = timeout(PATIENCE, other.1.wait()).await.unwrap().unwrap();
    assert_eq!(ended.code(), Some(1));
    let line = other.2.next_line().await.unwrap().unwrap();
    assert!(line.contains("the disk of state.dir"), "{line}");
}
