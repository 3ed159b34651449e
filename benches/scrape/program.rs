//! The two programs that are measured.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crisweep_sim::demo::LogRoots;
use tokio::process::{Child, Command};

use crate::status::Memory;

const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a program does nothing before its idle memory is read.
const REST: Duration = Duration::from_secs(2);
const TICKS_EACH_SECOND: f64 = 100.0;

/// A running program that serves metrics.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    address: String,
    ready: &'static str,
    started: Instant,
    http: reqwest::Client,
}

/// What crisweep watches.
#[derive(Debug)]
pub(crate) struct BenchNode {
    pub(crate) endpoint: String,
    /// The file with its pods.
    pub(crate) pods: PathBuf,
    pub(crate) logs: LogRoots,
}

/// Starts crisweep beside a simulated runtime.
pub(crate) fn crisweep(node: &BenchNode, max_age: &str, has_logs: bool) -> Program {
    let address = free_address();
    let path = std::env::var_os("CRISWEEP").unwrap_or(env!("CARGO_BIN_EXE_crisweep").into());
    let mut command = Command::new(path);
    command
        .args(["--web.listen-address", &address])
        .args(["--runtime-endpoint", &node.endpoint])
        .env("CRISWEEP__COLLECT__MAX_AGE", max_age)
        .env("CRISWEEP__PODS__SOURCE", "file")
        .env("CRISWEEP__PODS__FILE", &node.pods)
        .env("CRISWEEP__POLICY__LOGS__ENABLED", has_logs.to_string())
        .env("CRISWEEP__POLICY__LOGS__PODS_ROOT", &node.logs.pods)
        .env(
            "CRISWEEP__POLICY__LOGS__CONTAINERS_ROOT",
            &node.logs.containers,
        )
        .env("CRISWEEP__STATE__DIR", node.pods.with_file_name("state"))
        .env("CRISWEEP__RUNTIME__MAX_MESSAGE_BYTES", "512MiB");
    Program::start(command, address, "/-/ready")
}

/// Starts `node_exporter` with its defaults.
pub(crate) fn node_exporter() -> Program {
    let path = std::env::var_os("NODE_EXPORTER").unwrap_or("prometheus-node-exporter".into());
    let address = free_address();
    let mut command = Command::new(path);
    command.arg(format!("--web.listen-address={address}"));
    Program::start(command, address, "/")
}

/// Another process may take the port first; then the program does not become ready and the bench says so.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}

impl Program {
    fn start(mut command: Command, address: String, ready: &'static str) -> Self {
        let started = Instant::now();
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("crisweep, and node_exporter by its name or NODE_EXPORTER");
        let http = reqwest::Client::new();
        Self {
            child,
            address,
            ready,
            started,
            http,
        }
    }

    /// Returns how many milliseconds it took from its start until it answered that it is ready.
    pub(crate) async fn until_ready(&self) -> f64 {
        let url = format!("http://{}{}", self.address, self.ready);
        loop {
            let answer = self.http.get(&url).send().await;
            let took = self.started.elapsed();
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return took.as_secs_f64() * 1e3;
            }
            assert!(took < READY_WITHIN, "{url} is not ready");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until crisweep knows every exit time, and then until the program rests.
    pub(crate) async fn until_settled(&self) {
        tokio::time::sleep(REST).await;
        let began = Instant::now();
        while began.elapsed() < READY_WITHIN {
            let page = self.answer("/metrics").await;
            let unknown = page
                .lines()
                .find_map(|line| line.strip_prefix("crisweep_exit_times_unknown "));
            if unknown.is_none_or(|count| count == "0") {
                break;
            }
            tokio::time::sleep(REST).await;
        }
        tokio::time::sleep(REST).await;
    }

    /// Returns the answer of a path.
    pub(crate) async fn answer(&self, path: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        let request = self
            .http
            .get(url)
            .header("x-prometheus-scrape-timeout-seconds", "10");
        let answer = request.send().await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
        answer.text().await.expect("a page")
    }

    pub(crate) async fn scrape(&self) -> Duration {
        let began = Instant::now();
        let page = self.answer("/metrics").await;
        assert!(page.len() > 1_000, "{page}");
        began.elapsed()
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::of(&self.id())
    }

    /// Returns the processor time so far in seconds, of user and system.
    pub(crate) fn processor(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("a process");
        // The name in parentheses may have spaces; user and system time are fields 14 and 15.
        let fields = stat.rsplit(')').next().expect("fields").split_whitespace();
        let ticks = fields
            .skip(11)
            .take(2)
            .map(|it| it.parse::<f64>().expect("ticks"));
        ticks.sum::<f64>() / TICKS_EACH_SECOND
    }

    fn id(&self) -> String {
        self.child.id().expect("a running program").to_string()
    }

    pub(crate) async fn end(&mut self) {
        self.child.kill().await.expect("the program ended");
    }
}
