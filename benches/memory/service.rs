//! The real program beside a simulated runtime: a start, twenty looks and a pass.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::node;
use crate::status::{Memory, mib};

pub(crate) const HEADER: &str =
    "containers | list      | after start     | after 20 scrapes | after a pass    | removed in s";

/// Each counted scrape gets its own look.
const SCRAPES: usize = 20;
const MAX_AGE: &str = "1s";
const BETWEEN_SCRAPES: Duration = Duration::from_secs(1);

struct Service {
    child: Child,
    address: String,
    http: reqwest::Client,
}

pub(crate) async fn measure(size: usize, streaming: bool) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the service beside it lives in real time"
    )]
    let now = Timestamp::now();
    let served = node::serve(node::node(size, now), streaming);
    let directory = tempfile::tempdir().expect("a directory");
    let pods = directory.path().join("pods.json");
    std::fs::write(&pods, served.sim.pods_json()).expect("the pods written");
    let mut service = Service::start(&served.sim.endpoint(), &pods).await;
    service.until_exits_are_known().await;
    let start = service.memory();
    service.scrape().await;
    let scraped = service.memory();
    let report = service.pass().await;
    let passed = service.memory();
    let shown = |it: Memory| format!("{:>6.1} ({:>6.1})", mib(it.now), mib(it.most));
    let list = if streaming { "streaming" } else { "unary" };
    let (start, scraped, passed) = (shown(start), shown(scraped), shown(passed));
    println!("{size:>10} | {list:<9} | {start} | {scraped}  | {passed} | {report}");
    service.child.kill().await.expect("the service ended");
    served.sim.shutdown().await;
}

impl Service {
    async fn start(endpoint: &str, pods: &std::path::Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_crisweep"))
            .args(["--web.listen-address", "127.0.0.1:0"])
            .args(["--log.format", "json", "--runtime-endpoint", endpoint])
            .env("CRISWEEP__COLLECT__MAX_AGE", MAX_AGE)
            .env("CRISWEEP__PODS__SOURCE", "file")
            .env("CRISWEEP__PODS__FILE", pods)
            .env("CRISWEEP__PODS__SETTLE", "0s")
            // Leave this machine's own logs and state alone.
            .env("CRISWEEP__POLICY__LOGS__ENABLED", "false")
            .env("CRISWEEP__STATE__DIR", pods.with_file_name("state"))
            .env("CRISWEEP__RUNTIME__MAX_MESSAGE_BYTES", "512MiB")
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
        // Read the log to its end, or the service would block on it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        // reqwest needs a TLS provider even without TLS; installing it twice fails.
        let _done = rustls::crypto::ring::default_provider().install_default();
        Self {
            child,
            address,
            http: reqwest::Client::new(),
        }
    }

    fn memory(&self) -> Memory {
        let id = self.child.id().expect("a running service");
        Memory::of(&id.to_string())
    }

    /// Returns one sample of a new page; `None` if it is missing.
    async fn sample(&self, name: &str) -> Option<String> {
        let url = format!("http://{}/metrics", self.address);
        let answer = self.http.get(url).send().await.expect("a page");
        let page = answer.text().await.expect("text");
        let mut values = page.lines().filter_map(|line| line.strip_prefix(name));
        values.next().map(|value| value.trim().to_owned())
    }

    async fn until_exits_are_known(&self) {
        while self.sample("crisweep_exit_times_unknown ").await.as_deref() != Some("0") {
            tokio::time::sleep(BETWEEN_SCRAPES).await;
        }
    }

    async fn scrape(&self) {
        let mut looks = BTreeSet::new();
        while looks.len() < SCRAPES {
            looks.extend(self.sample("crisweep_look_timestamp_seconds ").await);
            tokio::time::sleep(BETWEEN_SCRAPES).await;
        }
    }

    async fn pass(&self) -> String {
        let url = format!("http://{}/gc?wait=30m", self.address);
        let started = std::time::Instant::now();
        let answer = self.http.post(url).send().await.expect("a pass");
        let pass: serde_json::Value = answer.json().await.expect("JSON");
        let text = |path: &str| pass.pointer(path).and_then(|it| it.as_str());
        assert_eq!(text("/outcome"), Some("completed"), "{pass}");
        let count = |path: &str| pass.pointer(path).and_then(serde_json::Value::as_u64);
        let paths = ["/targets/containers/removed", "/targets/sandboxes/removed"];
        let removed: u64 = paths.into_iter().filter_map(count).sum();
        format!("{removed} in {:.1} s", started.elapsed().as_secs_f64())
    }
}
