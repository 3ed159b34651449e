//! Cost of looks and removals while both lists are over the runtime's limit and nothing streams: the real
//! program beside a simulated runtime. Prints calls and seconds; `docs/dev/performance.md` explains them.
//! `cargo bench --bench big_lists -- 10000:8` runs one size, with its limit in MiB.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, Sim, hours};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Dead pods with one container each, and the limit in MiB that both lists exceed, even the dead objects
/// alone.
const SIZES: [(usize, usize); 2] = [(10_000, 8), (17_000, 16)];
/// What shows the records: the list itself, compressed; else what tells names: containerd's own service all ids, links to
/// logs those of containers, log directories the pods.
const TOLD: [&str; 4] = ["all", "ids", "links", "pods"];
const LIVING_PODS: usize = 100;
/// Pods with three dead attempts each, of which two are always surplus.
const CRASHED_PODS: usize = 600;
/// A runtime that takes 4 ms per status: sixteen calls run at a time.
const STATUS: Duration = Duration::from_millis(16 * 4);
/// The same for a filtered list, which costs as much as twelve statuses: four calls run at a time.
const LIST: Duration = Duration::from_millis(4 * 12 * 4);
/// Pause between two questions whether it is ready.
const READY_EVERY: Duration = Duration::from_millis(20);
/// Removals of one pass, containers and sandboxes together.
const REMOVALS: usize = 1_000;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let asked = arguments.iter().filter_map(|argument| {
        let (pods, limit) = argument.split_once(':')?;
        Some((pods.parse().ok()?, limit.parse().ok()?))
    });
    let mut sizes: Vec<(usize, usize)> = asked.collect();
    let lowest = arguments.iter().any(|argument| argument == "lowest");
    if sizes.is_empty() && !lowest {
        sizes = SIZES.to_vec();
    }
    println!("containers | told  | what            | seconds | calls | of them");
    for (pods, limit_mib) in sizes {
        for told in TOLD {
            measure(pods, limit_mib, told).await;
        }
    }
    if lowest || arguments.iter().all(|argument| argument.starts_with('-')) {
        measure_lowest().await;
    }
}

/// The last fallback: no stream, and no service with all ids. Names of log files provide some ids, and each
/// is asked for separately.
async fn measure_lowest() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let options = Options {
        send_limit_bytes: 256 << 10,
        pods_file: Some(root.join("pods.json")),
        ..Options::not_containerd()
    };
    let crashed = |number| {
        let pod = PodSpec::new(&format!("nightly-report-6d4cf56db6-{number:05}"));
        let pod = (0..3).fold(pod, |pod, attempt| {
            pod.exited("report", attempt, hours(5 - u64::from(attempt)))
        });
        if number < LIVING_PODS {
            pod
        } else {
            pod.deleted()
        }
    };
    let node = NodeBuilder::new().pods(CRASHED_PODS, crashed);
    let sim = Sim::start(root.join("cri.sock"), node.build(), options).expect("a runtime");
    write_names(&sim, root);
    write_links(&sim, root);
    for rpc in [Rpc::ContainerStatus, Rpc::PodSandboxStatus] {
        sim.set_fault(rpc, Fault::slow(STATUS));
    }
    for rpc in [Rpc::ListContainers, Rpc::ListPodSandbox] {
        sim.set_fault(rpc, Fault::slow(LIST));
    }
    let containers = 3 * CRASHED_PODS;
    let mut service = Service::start(&sim.endpoint(), root).await;
    let took = service.ready().await;
    print(containers, "links", "first look", took, &sim);
    for what in ["dry run", "second dry run"] {
        sim.clear_record();
        let (took, _) = service.post("/gc?dry_run=true&wait=30m").await;
        print(containers, "links", what, took, &sim);
    }
    sim.clear_record();
    let (took, pass) = service.post("/gc?target=containers&wait=30m").await;
    let removed = pass.pointer("/targets/containers/removed");
    let removed = removed.and_then(Value::as_u64).unwrap_or_default();
    print(
        containers,
        "links",
        &format!("{removed} removals"),
        took,
        &sim,
    );
    println!("{}", pass.pointer("/errors").unwrap_or(&Value::Null));
    service.child.kill().await.expect("the service ended");
    sim.shutdown().await;
}

/// Writes the links that the kubelet makes to containers' logs.
fn write_links(sim: &Sim, root: &std::path::Path) {
    let links = root.join("var/log/containers");
    std::fs::create_dir_all(&links).expect("a directory");
    for record in sim.containers() {
        let link = format!("pod_ns_report-{}.log", record.row.id);
        std::os::unix::fs::symlink("/nowhere", links.join(link)).expect("a link");
    }
}

async fn measure(pods: usize, limit_mib: usize, told: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let pods_file = root.join("pods.json");
    let options = Options {
        send_limit_bytes: limit_mib << 20,
        gzip: (told == "all").then_some(Duration::ZERO),
        containers_service: told == "ids",
        pods_file: Some(pods_file.clone()),
        ..Options::default()
    };
    let dead = |number| {
        let pod = PodSpec::new(&format!("nightly-report-6d4cf56db6-{number:05}"));
        pod.exited("report", 0, hours(3)).deleted()
    };
    let living = |number| PodSpec::new(&format!("web-{number:03}")).running("app", 0);
    let node = NodeBuilder::new()
        .pods(LIVING_PODS, living)
        .pods(pods, dead);
    let sim = Sim::start(root.join("cri.sock"), node.build(), options).expect("a runtime");
    if told == "links" || told == "pods" {
        write_names(&sim, root);
    }
    if told == "links" {
        write_links(&sim, root);
    }
    let mut service = Service::start(&sim.endpoint(), root).await;
    // One look makes it ready; a dry run makes two.
    let took = service.ready().await;
    print(pods, told, "first look", took, &sim);
    for what in ["dry run", "second dry run"] {
        sim.clear_record();
        let (took, _) = service.post("/gc?dry_run=true&wait=30m").await;
        print(pods, told, what, took, &sim);
    }
    sim.clear_record();
    let path = format!("/gc?target=containers&max_removals={REMOVALS}&wait=30m");
    let (took, pass) = service.post(&path).await;
    let removed = pass.pointer("/targets/containers/removed");
    let removed = removed.and_then(Value::as_u64).unwrap_or_default();
    print(pods, told, &format!("{removed} removals"), took, &sim);
    service.child.kill().await.expect("the service ended");
    sim.shutdown().await;
}

/// Writes the names that the kubelet gives to the pods' log directories.
fn write_names(sim: &Sim, root: &std::path::Path) {
    for record in sim.sandboxes() {
        let pod = record.row.metadata.expect("metadata");
        let name = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
        std::fs::create_dir_all(root.join("var/log/pods").join(name)).expect("a directory");
    }
}

fn print(pods: usize, told: &str, what: &str, took: Duration, sim: &Sim) {
    let counts = Rpc::ALL.iter().map(|rpc| (*rpc, sim.call_count(*rpc)));
    let counts: Vec<(Rpc, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    let calls: u64 = counts.iter().map(|(_, count)| count).sum();
    let many = counts.iter().filter(|(_, count)| *count > 9);
    let many: Vec<String> = many
        .map(|(rpc, count)| format!("{rpc:?} {count}"))
        .collect();
    let seconds = took.as_secs_f64();
    let many = many.join(", ");
    println!("{pods:>10} | {told:<5} | {what:<15} | {seconds:>7.1} | {calls:>5} | {many}");
}

struct Service {
    started: Instant,
    child: Child,
    address: String,
    http: reqwest::Client,
}

impl Service {
    async fn start(endpoint: &str, root: &std::path::Path) -> Self {
        let started = Instant::now();
        let built = env!("CARGO_BIN_EXE_crisweep").into();
        let mut child = Command::new(std::env::var_os("CRISWEEP").unwrap_or(built))
            .args(["--web.listen-address", "127.0.0.1:0"])
            .args(["--log.format", "json", "--runtime-endpoint", endpoint])
            .env("CRISWEEP__RUNTIME__HOST_ROOT", root)
            .env("CRISWEEP__PODS__SOURCE", "file")
            .env("CRISWEEP__PODS__FILE", root.join("pods.json"))
            .env("CRISWEEP__PODS__SETTLE", "0s")
            .env("CRISWEEP__POLICY__LOGS__ENABLED", "false")
            .env("CRISWEEP__STATE__DIR", root.join("state"))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the service");
        let log = child.stderr.take().expect("its log");
        let mut lines = BufReader::new(log).lines();
        let address = loop {
            let line = lines.next_line().await.expect("a log").expect("a line");
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = line.get("address").and_then(Value::as_str) {
                break address.to_owned();
            }
        };
        // Read the log to its end, or the service would block on it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        // reqwest needs a TLS provider even without TLS; installing it twice fails.
        let _done = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::new();
        Self {
            started,
            child,
            address,
            http,
        }
    }

    /// Waits for the first look, and returns how long that took from the start of the program on.
    async fn ready(&self) -> Duration {
        let url = format!("http://{}/-/ready", self.address);
        loop {
            let answer = self.http.get(&url).send().await.expect("an answer");
            if answer.status().is_success() {
                return self.started.elapsed();
            }
            tokio::time::sleep(READY_EVERY).await;
        }
    }

    /// Posts, and returns how long the answer took, and the answer.
    async fn post(&mut self, path: &str) -> (Duration, Value) {
        let url = format!("http://{}{path}", self.address);
        let began = Instant::now();
        let answer = self.http.post(url).send().await.expect("an answer");
        let pass = answer.json().await.expect("JSON");
        (began.elapsed(), pass)
    }
}
