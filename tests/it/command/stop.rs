//! Ctrl-C during `crisweep gc`, and its progress on a terminal.

use std::convert::Infallible;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use crisweep_sim::{Disk, Fault, Rpc};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr};

use crate::support::bare::Bare;
use crate::support::service::{program, text};
use crate::support::wait::{PATIENCE, until_true};
use crate::support::{Rig, nodes};

/// A command whose standard error is read line by line.
struct Running {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut command = program();
        command
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, said }
    }

    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    }

    /// Returns the next line that contains the words.
    async fn says(&mut self, words: &str) -> String {
        let mut all = Vec::new();
        let found = async {
            loop {
                let line = self.said.next_line().await.unwrap();
                let line = line.unwrap_or_else(|| panic!("{words}: {all:?}"));
                if line.contains(words) {
                    return line;
                }
                all.push(line);
            }
        };
        tokio::time::timeout(PATIENCE, found)
            .await
            .expect("it says so")
    }

    /// Returns its exit code and its answer.
    async fn ends(self) -> (i32, String) {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait_with_output());
        let output = ended.await.expect("it ends").unwrap();
        (output.status.code().unwrap(), text(&output.stdout))
    }
}

fn slow() -> Disk {
    Disk {
        each: Duration::from_secs(2),
        crowding: Duration::ZERO,
    }
}

fn one_at_a_time() -> serde_json::Value {
    json!({ "gc": { "max_concurrency": 1 } })
}

#[tokio::test]
async fn the_first_ctrl_c_names_what_is_in_flight_and_waits_for_it() {
    let node = Bare::start(nodes::litter(5), &one_at_a_time());
    node.sim.conduct(|it| it.disk = slow());
    let config = node.config.to_str().unwrap();
    let mut running = Running::start(&["--config.file", config, "gc"]);
    until_true("a removal is under way", || {
        node.sim.removals_in_flight() > 0
    })
    .await;
    running.interrupt();
    let line = running.says("stopping: no new removal starts").await;
    assert!(line.contains("In flight: container default/old-"), "{line}");
    assert!(line.contains("Ctrl-C again leaves at once"), "{line}");
    let (code, shown) = running.ends().await;
    assert_eq!(code, 1, "{shown}");
    assert!(shown.starts_with("aborted\n"), "{shown}");
    assert_eq!(node.sim.removals_in_flight(), 0);
}

#[tokio::test]
async fn the_second_ctrl_c_leaves_at_once_and_says_what_is_unknown() {
    let node = Bare::start(nodes::litter(5), &one_at_a_time());
    node.sim.set_fault(Rpc::RemoveContainer, Fault::hang());
    let config = node.config.to_str().unwrap();
    let mut running = Running::start(&["--config.file", config, "gc"]);
    until_true("a removal is under way", || {
        node.sim.removals_in_flight() > 0
    })
    .await;
    running.interrupt();
    running.says("stopping").await;
    running.interrupt();
    let line = running.says("left at once").await;
    assert!(
        line.contains("Unknown whether the runtime still removes: container default/old-"),
        "{line}"
    );
    let (code, shown) = running.ends().await;
    assert_eq!((code, shown.as_str()), (130, ""));
}

#[tokio::test]
async fn ctrl_c_cancels_the_services_pass_that_this_command_started() {
    let rig = Rig::start(nodes::litter(5), one_at_a_time()).await;
    rig.sim.conduct(|it| it.disk = slow());
    let url = format!("http://{}", rig.address);
    let mut running = Running::start(&["gc", "--url", &url]);
    rig.removing().await;
    running.interrupt();
    running
        .says("stopping the pass that this command started")
        .await;
    let (code, shown) = running.ends().await;
    assert_eq!(code, 1, "{shown}");
    assert!(shown.starts_with("aborted\n"), "{shown}");
    assert_eq!(rig.passes().await[0]["outcome"], "aborted");
}

#[tokio::test]
async fn ctrl_c_only_leaves_a_pass_that_others_joined_since() {
    let rig = Rig::start(nodes::litter(3), one_at_a_time()).await;
    rig.sim.conduct(|it| it.disk = slow());
    rig.begin_gc("target=containers").await;
    rig.removing().await;
    let url = format!("http://{}", rig.address);
    let mut running = Running::start(&["gc", "--target", "containers", "--url", &url]);
    let is_queued = async {
        while rig.passes().await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let queued = tokio::time::timeout(PATIENCE, is_queued).await;
    queued.expect("the service has the pass");
    let waiting = rig.begin_gc("target=containers").await;
    running.interrupt();
    let line = running.says("others asked for it too").await;
    assert!(line.contains(&waiting), "{line}");
    let (code, shown) = running.ends().await;
    assert_eq!((code, shown.as_str()), (130, ""));
    assert_ne!(rig.finished(&waiting).await["outcome"], "aborted");
}

#[tokio::test]
async fn ctrl_c_only_leaves_a_pass_that_this_command_joined() {
    let rig = Rig::start(nodes::litter(3), one_at_a_time()).await;
    rig.sim.conduct(|it| it.disk = slow());
    let first = rig.begin_gc("target=containers").await;
    rig.removing().await;
    let waiting = rig.begin_gc("target=containers").await;
    let url = format!("http://{}", rig.address);
    let mut running = Running::start(&["gc", "--target", "containers", "--url", &url]);
    let line = running.says("joined pass").await;
    assert!(line.contains(&waiting), "{line}");
    running.interrupt();
    running.says("stopped watching; the pass goes on").await;
    let (code, shown) = running.ends().await;
    assert_eq!((code, shown.as_str()), (130, ""));
    assert_eq!(rig.finished(&first).await["outcome"], "completed");
    assert_ne!(rig.finished(&waiting).await["outcome"], "aborted");
}

#[tokio::test]
async fn of_a_service_that_is_killed_it_is_not_known_whether_its_pass_goes_on() {
    let mut rig = Rig::start(nodes::litter(3), one_at_a_time()).await;
    rig.sim.conduct(|it| it.disk = slow());
    let url = format!("http://{}", rig.address);
    let mut running = Running::start(&["gc", "--url", &url]);
    rig.removing().await;
    rig.kill().await;
    running
        .says("it is not known whether the pass goes on (crisweep passes ")
        .await;
    assert_eq!(running.ends().await.0, 1);
}

/// A service whose pass lasts for so many questions about it. It answers each with `answer` and the question's number.
async fn service(
    lasts: usize,
    answer: impl Fn(usize) -> Option<Response> + Clone + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let so_far = Arc::clone(&asked);
    let begins = move || {
        let so_far = Arc::clone(&so_far);
        let lines = async move {
            let is_over = || so_far.load(Ordering::Relaxed) >= lasts;
            until_true("the pass is asked about", is_over).await;
            Ok::<_, Infallible>("containers: batch 1 begins\n")
        };
        let body = Body::from_stream(futures_util::stream::once(lines));
        let path = [("location", "/api/v1/passes/p1")];
        std::future::ready((StatusCode::ACCEPTED, path, body))
    };
    let stands = async move || match answer(counter.fetch_add(1, Ordering::Relaxed)) {
        Some(answer) => answer,
        None => std::future::pending().await,
    };
    let router = Router::new()
        .route("/-/healthy", get("crisweep is healthy"))
        .route("/gc", post(begins))
        .route("/api/v1/passes/p1", get(stands));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, asked)
}

#[tokio::test]
async fn a_service_that_hangs_in_mid_pass_holds_no_command() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let never = || Body::from_stream(futures_util::stream::pending::<Result<String, Infallible>>());
    let begins = async move || {
        let path = [("location", "/api/v1/passes/p1")];
        (StatusCode::ACCEPTED, path, never())
    };
    let router = Router::new()
        .route("/-/healthy", get("crisweep is healthy"))
        .route("/gc", post(begins))
        .route("/api/v1/passes/p1", get(std::future::pending::<()>));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let ends = program().args(["gc", "--url", &url]).output();
    let output = tokio::time::timeout(2 * PATIENCE, ends).await;
    let output = output.expect("it ends").unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("crisweep passes p1"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[tokio::test]
async fn ctrl_c_after_the_end_of_a_pass_leaves_a_service_that_does_not_answer() {
    let (url, asked) = service(0, |_| None).await;
    let mut running = Running::start(&["gc", "--url", &url]);
    until_true("the end of the pass is asked for", || {
        asked.load(Ordering::Relaxed) > 0
    })
    .await;
    running.interrupt();
    running
        .says("left at once; the pass is over: crisweep passes p1")
        .await;
    let (code, shown) = running.ends().await;
    assert_eq!((code, shown.as_str()), (130, ""));
}

#[tokio::test]
async fn questions_that_a_busy_service_refuses_end_no_command() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let pass = rig.gc("target=containers").await;
    let mut running = pass.clone();
    running["state"] = json!("running");
    // One is answered in mid-pass; the first one after it is refused too.
    let answer = move |number| {
        Some(match number {
            1 => axum::Json(running.clone()).into_response(),
            0 | 2 | 3 => {
                (StatusCode::SERVICE_UNAVAILABLE, "{\"error\":\"too many\"}").into_response()
            }
            _ => axum::Json(pass.clone()).into_response(),
        })
    };
    let (url, asked) = service(3, answer).await;
    let shown = on_a_terminal(100, &format!("gc --url {url}"), "NO_COLOR=1").await;
    assert!(shown.contains("\rcontainers: 3 of 3"), "{shown:?}");
    assert!(shown.contains("completed"), "{shown:?}");
    assert!(!shown.contains("too many"), "{shown:?}");
    assert!(asked.load(Ordering::Relaxed) > 4);
}

#[tokio::test]
async fn a_refusal_without_its_words_holds_no_command() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // Headers, and then nothing.
    let never = || Body::from_stream(futures_util::stream::pending::<Result<String, Infallible>>());
    let refuses = async move || (StatusCode::CONFLICT, never());
    let router = Router::new()
        .route("/-/healthy", get("crisweep is healthy"))
        .route("/gc", post(refuses));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let mut running = Running::start(&["gc", "--url", &url]);
    let line = running.says("409").await;
    assert!(line.contains(&url), "{line}");
    assert_eq!(running.ends().await.0, 1);
}

/// Runs a command with a terminal of so many columns; returns what it draws.
async fn on_a_terminal(columns: u16, line: &str, variable: &str) -> String {
    let program_path = env!("CARGO_BIN_EXE_crisweep");
    let script = format!("stty cols {columns}; {variable} {program_path} {line}");
    let mut command = tokio::process::Command::new("script");
    command.args(["-qec", &script, "/dev/null"]);
    command
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.stdin(Stdio::null()).output());
    text(&output.await.expect("it ends").unwrap().stdout)
}

#[tokio::test]
async fn on_a_terminal_progress_is_one_line_and_tables_fit() {
    let rig = Rig::start(nodes::litter(30), json!({})).await;
    rig.sim.conduct(|it| {
        it.disk = Disk {
            each: Duration::from_millis(100),
            crowding: Duration::ZERO,
        }
    });
    let url = format!("--url http://{}", rig.address);
    for columns in [80, 200] {
        let shown = on_a_terminal(columns, &format!("plan --all {url}"), "").await;
        assert!(shown.contains("\u{1b}[1m  VERDICT"), "{shown}");
        let plain = on_a_terminal(columns, &format!("plan --all {url}"), "NO_COLOR=1").await;
        assert!(!plain.contains('\u{1b}'), "{plain:?}");
        for line in plain.lines() {
            assert!(line.chars().count() <= usize::from(columns), "{line}");
        }
    }
    let plain = on_a_terminal(80, &format!("plan {url}"), "NO_COLOR=1").await;
    let id = rig.sim.container_id("default/old-0/app#0").unwrap();
    assert!(plain.contains(&id[..12]) && !plain.contains(&id), "{plain}");
    let wide = on_a_terminal(80, &format!("plan --wide --all {url}"), "NO_COLOR=1").await;
    assert!(wide.contains(&id), "{wide}");
    let shown = on_a_terminal(80, &format!("gc {url}"), "").await;
    assert!(
        shown.contains("\rcontainers: ") && shown.contains(" of 30"),
        "{shown:?}"
    );
    assert!(!shown.contains("batch 1"), "{shown:?}");
    assert!(shown.contains("\u{1b}[32mcompleted\u{1b}[0m"), "{shown:?}");
    // Each line is drawn over the one before, and none is left behind.
    assert!(shown.contains("\r\u{1b}[K"), "{shown:?}");
}
