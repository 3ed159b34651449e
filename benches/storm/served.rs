//! The target of a storm, in its own process: the real program beside a simulated runtime, or the peer.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, Sim, hours};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::bodies::{NODE_NAME, Situation};
use crate::peer;
use crate::status::Memory;

const DEAD_CONTAINERS: usize = 50;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A small node with some litter.
pub(crate) struct Node {
    sim: Sim,
    situation: Situation,
    directory: tempfile::TempDir,
}

impl Node {
    pub(crate) fn new(situation: Situation) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = Options {
            pods_file: Some(directory.path().join("pods.json")),
            ..Options::default()
        };
        let dead = |number| {
            let pod = PodSpec::new(&format!("old-{number}"));
            pod.exited("app", 0, hours(3)).deleted()
        };
        let node = NodeBuilder::new().pod(PodSpec::new("web").running("app", 0));
        let node = node.pods(DEAD_CONTAINERS, dead).build();
        let sim = Sim::start(directory.path().join("cri.sock"), node, options);
        let sim = sim.expect("a simulated runtime");
        if situation == Situation::Busy {
            sim.set_fault(Rpc::RemoveContainer, Fault::hang());
        }
        Self {
            sim,
            situation,
            directory,
        }
    }

    pub(crate) async fn end(self) {
        self.sim.shutdown().await;
    }
}

/// Resource usage of a process, in total or between two samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) processor: Duration,
    /// KiB resident.
    pub(crate) memory_before: u64,
    pub(crate) memory_after: u64,
    pub(crate) log_lines: u64,
}

impl Usage {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            processor: self.processor.saturating_sub(before.processor),
            memory_before: before.memory_after,
            memory_after: self.memory_after,
            log_lines: self.log_lines - before.log_lines,
        }
    }
}

/// A server in a process of its own.
pub(crate) struct Served {
    pub(crate) address: String,
    child: Child,
    log_lines: Arc<AtomicU64>,
}

impl Served {
    pub(crate) async fn peer() -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg(peer::CHILD)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the peer");
        let out = child.stdout.take().expect("its output");
        let mut lines = BufReader::new(out).lines();
        let line = lines.next_line().await.expect("its output");
        Self {
            address: line.expect("its address"),
            child,
            log_lines: Arc::default(),
        }
    }

    /// Starts the service with its defaults and waits for the situation.
    pub(crate) async fn crisweep(node: &Node) -> Self {
        let endpoint = node.sim.endpoint();
        let directory = node.directory.path();
        let mut child = Command::new(env!("CARGO_BIN_EXE_crisweep"))
            .args(["--web.listen-address", "127.0.0.1:0"])
            .args(["--log.format", "json", "--runtime-endpoint", &endpoint])
            .env("CRISWEEP__NODE__NAME", NODE_NAME)
            .env("CRISWEEP__PODS__SOURCE", "file")
            .env("CRISWEEP__PODS__FILE", directory.join("pods.json"))
            .env("CRISWEEP__PODS__SETTLE", "0s")
            .env("CRISWEEP__RUNTIME__HOST_ROOT", directory)
            .env("CRISWEEP__RUNTIME__REMOVAL_TIMEOUT", "1h")
            .env("CRISWEEP__GC__DEADLINE", "2h")
            .env("CRISWEEP__STATE__DIR", directory.join("state"))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the service");
        let log = child.stderr.take().expect("its log");
        let mut lines = BufReader::new(log).lines();
        let address = loop {
            let line = lines.next_line().await.expect("a log").expect("a line");
            let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = line.get("address").and_then(|it| it.as_str()) {
                break address.to_owned();
            }
        };
        let log_lines = Arc::<AtomicU64>::default();
        let count = Arc::clone(&log_lines);
        // Read the log to its end, or the service would block on it.
        tokio::spawn(async move {
            while let Ok(Some(_)) = lines.next_line().await {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let service = Self {
            address,
            child,
            log_lines,
        };
        service.until_ready(node).await;
        service
    }

    async fn until_ready(&self, node: &Node) {
        // reqwest needs a TLS provider even without TLS; installing it twice fails.
        let _done = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::new();
        let url = |path: &str| format!("http://{}{path}", self.address);
        let is_ready = || async {
            let answer = http.get(url("/-/ready")).send().await;
            answer.is_ok_and(|answer| answer.status().is_success())
        };
        while !is_ready().await {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        if node.situation == Situation::Busy {
            let asked = http.post(url("/gc?target=containers")).send().await;
            assert!(asked.expect("an answer").status().is_success());
            while node.sim.removals_in_flight() == 0 {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory::of(&self.id().to_string())
    }

    pub(crate) fn usage(&self) -> Usage {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("its state");
        // After the program's name: the state is field 3, user and system time are 14 and 15 (`man 5 proc_pid_stat`).
        let (_, fields) = stat.rsplit_once(") ").expect("its name");
        let ticks = fields.split(' ').skip(14 - 3).take(2);
        let ticks: u32 = ticks.map(|it| it.parse::<u32>().expect("ticks")).sum();
        let each = u32::try_from(rustix::param::clock_ticks_per_second()).expect("some hundred");
        Usage {
            processor: Duration::from_secs(1) * ticks / each,
            memory_before: 0,
            memory_after: self.memory().now,
            log_lines: self.log_lines.load(Ordering::Relaxed),
        }
    }

    fn id(&self) -> u32 {
        self.child.id().expect("a running process")
    }

    pub(crate) async fn end(mut self) {
        self.child.kill().await.expect("it ended");
    }
}
