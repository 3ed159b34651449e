//! An incident that rolls across a simulated fleet: how long litter lies on a node, and what the fleet costs its
//! Prometheus, its Alertmanager, its API server and itself. Asserts no time, prints it. Run by `benches/fleet.sh`;
//! `docs/scale.md` has the figures.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use crisweep_proto::cri::{ContainerState, PodSandboxState};
use crisweep_sim::{Handle, NodeBuilder, Options, PodSpec, Rpc, Sim, hours};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::support::alertmanager::{self, Alertmanager};
use crate::support::crisweep::Crisweep;
use crate::support::daemon::free_port;
use crate::support::prometheus::{Prometheus, shipped_rules_as_they_are};

/// Running pods of a node: most have one container.
const RUNNING: usize = 30;
/// Deleted pods that an incident leaves on a node, each one exited container and one dead sandbox.
const LITTER: usize = 550;
/// Between one node's incident and the next one's.
const ROLLS_EVERY: Duration = Duration::from_secs(2);
/// How long the fleet is watched at rest.
const REST: Duration = Duration::from_secs(180);
/// Longer than the rules wait (5 minutes) and a pass takes.
const AT_MOST: Duration = Duration::from_secs(1500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incident_rolls_across_a_fleet() {
    let nodes = std::env::var("CRISWEEP_FLEET_NODES").unwrap_or_default();
    let nodes: usize = nodes.parse().unwrap_or(200);
    let dir = tempfile::tempdir().unwrap();
    let config = json!({ "route": { "receiver": "people" }, "receivers": [{ "name": "people" }] });
    let alertmanager =
        Alertmanager::start_release(dir.path(), Path::new(alertmanager::program()), &config, &[])
            .await;
    let fleet = Fleet::start(nodes, &alertmanager).await;
    let targets: Vec<String> = fleet
        .nodes
        .iter()
        .map(|node| node.crisweep.address.clone())
        .collect();
    let rules = shipped_rules_as_they_are();
    let prometheus =
        Prometheus::start_every(dir.path(), &targets, &rules, &alertmanager, "15s").await;
    println!(
        "{nodes} nodes, each {RUNNING} running pods; the incident: {LITTER} deleted pods a node"
    );
    // Counters have two samples and the first questions are over.
    sleep(Duration::from_secs(60)).await;

    let costs = Costs {
        fleet: &fleet,
        alertmanager: &alertmanager,
        prometheus: &prometheus,
    };
    let before = costs.read().await;
    sleep(REST).await;
    costs.print("at rest", &before).await;
    let before = costs.read().await;
    let times = incident(&fleet, &prometheus).await;
    costs.print("in the incident", &before).await;
    costs.print_rules().await;

    let all = times.len();
    let span = |from: fn(&Times) -> Option<Instant>, to: fn(&Times) -> Option<Instant>| {
        let mut spans: Vec<f64> = times
            .iter()
            .filter_map(|times| Some((to(times)? - from(times)?).as_secs_f64()))
            .collect();
        spans.sort_by(f64::total_cmp);
        spans
    };
    let rows = [
        ("litter to the alert", span(|t| t.littered, |t| t.fired)),
        ("alert to the first removal", span(|t| t.fired, |t| t.began)),
        ("first removal to clean", span(|t| t.began, |t| t.clean)),
        ("litter to clean", span(|t| t.littered, |t| t.clean)),
    ];
    for (what, spans) in rows {
        assert_eq!(spans.len(), all, "{what}: not every node came so far");
        let at = |share: usize| spans[(spans.len() - 1) * share / 100];
        println!(
            "{what}: shortest {:.1} s, p50 {:.1}, p95 {:.1}, longest {:.1}",
            at(0),
            at(50),
            at(95),
            at(100)
        );
    }
    for node in &fleet.nodes {
        let running = node.sim.count_containers(ContainerState::ContainerRunning);
        assert_eq!(running, RUNNING, "{}", node.name);
    }
}

/// What happened on a node, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    littered: Option<Instant>,
    /// Prometheus has an alert about the node that asks for a pass.
    fired: Option<Instant>,
    began: Option<Instant>,
    clean: Option<Instant>,
}

/// Rolls the incident across the fleet; returns when every node is clean again.
async fn incident(fleet: &Fleet, prometheus: &Prometheus) -> Vec<Times> {
    let started = Instant::now();
    let mut times = vec![Times::default(); fleet.nodes.len()];
    let mut tick = interval(Duration::from_millis(500));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut most_alerts = 0;
    while times.iter().any(|times| times.clean.is_none()) {
        assert!(started.elapsed() < AT_MOST + ROLLS_EVERY * u32::try_from(times.len()).unwrap());
        tick.tick().await;
        let rolled = started.elapsed().as_millis() / ROLLS_EVERY.as_millis();
        let rolled = usize::try_from(rolled).unwrap() + 1;
        let firing = alerting(prometheus).await;
        most_alerts = most_alerts.max(firing.len());
        for (node, times) in fleet.nodes.iter().zip(&mut times).take(rolled) {
            let now = Some(Instant::now());
            if times.littered.is_none() {
                node.litter();
                times.littered = now;
            } else if times.clean.is_none() {
                times.fired = times
                    .fired
                    .or(now.filter(|_| firing.contains_key(&node.name)));
                times.began = times
                    .began
                    .or(now.filter(|_| node.sim.call_count(Rpc::RemoveContainer) > 0));
                times.clean = now.filter(|_| node.is_clean());
            }
        }
    }
    println!("most nodes with an alert at once: {most_alerts}");
    times
}

/// Returns the nodes about which an alert fires that asks for a pass.
async fn alerting(prometheus: &Prometheus) -> BTreeMap<String, f64> {
    let asked = "count by (node) (ALERTS{alertstate=\"firing\",crisweep!=\"\"})";
    let samples = prometheus.query(asked).await.unwrap();
    // CrisweepFleetStorm has no node.
    let node = |labels: &BTreeMap<String, String>| {
        let node = labels.get("node").cloned();
        node.expect("no alert about all nodes")
    };
    samples
        .iter()
        .map(|sample| (node(&sample.labels), sample.value))
        .collect()
}

struct Fleet {
    nodes: Vec<FleetNode>,
    api_server: ApiServer,
}

impl Fleet {
    async fn start(nodes: usize, alertmanager: &Alertmanager) -> Self {
        let api_server = ApiServer::start().await;
        let mut fleet = Self {
            nodes: Vec::new(),
            api_server,
        };
        for number in 0..nodes {
            let node = FleetNode::start(number, &fleet.api_server.url, alertmanager).await;
            fleet.api_server.register(&node);
            fleet.nodes.push(node);
        }
        fleet
    }
}

struct FleetNode {
    name: String,
    sim: Sim,
    crisweep: Crisweep,
    #[expect(dead_code, reason = "held for its end")]
    dir: TempDir,
}

impl FleetNode {
    async fn start(number: usize, api_url: &str, alertmanager: &Alertmanager) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let running = |number: usize| PodSpec::new(&format!("web-{number}")).running("app", 0);
        let node = NodeBuilder::seeded(number as u64)
            .pods(RUNNING, running)
            .build();
        // A file system with room: an alert about a full one would clean the nodes before theirs comes.
        let options = Options {
            mountpoint: Some("/dev/shm".into()),
            ..Options::default()
        };
        let sim = Sim::start(file("cri.sock"), node, options).unwrap();
        let (name, address) = (
            format!("node-{number}"),
            format!("127.0.0.1:{}", free_port()),
        );
        let config = json!({
            "runtime": { "endpoint": format!("unix://{}", file("cri.sock").display()) },
            "node": { "name": name },
            "pods": { "source": "api-server", "api_url": api_url },
            "alertmanager": { "poll": [alertmanager.url("")] },
            // As in the chart.
            "brakes": { "jitter": "1m" },
            // All nodes share this machine's disk: its pressure is not theirs.
            "gc": { "io_pressure_pause_percent": 0 },
            "policy": { "logs": { "enabled": false } },
            "web": { "listen": [address] },
            "state": { "dir": file("state") },
        });
        let crisweep = Crisweep::run(dir.path(), address, &config, &[]).await;
        Self {
            name,
            sim,
            crisweep,
            dir,
        }
    }

    /// Leaves what deleted pods left behind three hours ago.
    fn litter(&self) {
        self.sim.clear_record();
        for number in 0..LITTER {
            let pod = PodSpec::new(&format!("old-{number}"));
            self.sim.add_pod(&pod.exited("app", 0, hours(3)).deleted());
        }
    }

    fn is_clean(&self) -> bool {
        self.sim.count_containers(ContainerState::ContainerExited) == 0
            && self.sim.count_sandboxes(PodSandboxState::SandboxNotready) == 0
    }
}

/// Answers lists of a node's pods as the API server does, and counts.
struct ApiServer {
    url: String,
    state: Arc<ApiState>,
}

#[derive(Default)]
struct ApiState {
    nodes: std::sync::Mutex<BTreeMap<String, Handle>>,
    /// Lists from the watch cache.
    cached: AtomicU64,
    /// Lists from a quorum.
    quorum: AtomicU64,
    bytes: AtomicU64,
}

impl ApiServer {
    async fn start() -> Self {
        let state = Arc::new(ApiState::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/api/v1/pods", axum::routing::get(list_pods))
            .with_state(state.clone());
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { url, state }
    }

    fn register(&self, node: &FleetNode) {
        let mut nodes = self.state.nodes.lock().unwrap();
        nodes.insert(node.name.clone(), node.sim.handle());
    }
}

async fn list_pods(
    State(state): State<Arc<ApiState>>,
    RawQuery(query): RawQuery,
) -> Result<String, StatusCode> {
    let query = query.unwrap_or_default();
    let node = query.strip_prefix("fieldSelector=spec.nodeName%3D");
    let node = node.ok_or(StatusCode::BAD_REQUEST)?;
    let (node, kind) = match node.strip_suffix("&resourceVersion=0") {
        Some(node) => (node, &state.cached),
        None => (node, &state.quorum),
    };
    let node = state.nodes.lock().unwrap().get(node).cloned();
    // A node that has just started is not registered yet.
    let mut pods: serde_json::Value =
        serde_json::from_str(&node.ok_or(StatusCode::SERVICE_UNAVAILABLE)?.pods_json()).unwrap();
    pods["metadata"]["resourceVersion"] = json!("4711");
    let answer = pods.to_string();
    kind.fetch_add(1, Ordering::Relaxed);
    state
        .bytes
        .fetch_add(answer.len() as u64, Ordering::Relaxed);
    Ok(answer)
}

/// Everyone who bears the fleet.
struct Costs<'a> {
    fleet: &'a Fleet,
    alertmanager: &'a Alertmanager,
    prometheus: &'a Prometheus,
}

/// Counters at one time.
struct Counters {
    at: Instant,
    cached: u64,
    quorum: u64,
    bytes: u64,
    alertmanager_cpu: f64,
}

impl Costs<'_> {
    async fn read(&self) -> Counters {
        let api = &self.fleet.api_server.state;
        Counters {
            at: Instant::now(),
            cached: api.cached.load(Ordering::Relaxed),
            quorum: api.quorum.load(Ordering::Relaxed),
            bytes: api.bytes.load(Ordering::Relaxed),
            alertmanager_cpu: self.alertmanager.metric("process_cpu_seconds_total").await,
        }
    }

    /// Prints what each cost a second since `before`.
    async fn print(&self, when: &str, before: &Counters) {
        let now = self.read().await;
        let took = before.at.elapsed();
        let a_second = |count: u64| float(count) / took.as_secs_f64();
        let nodes = float(self.fleet.nodes.len() as u64);
        println!("--- {when}, {:.0} s", took.as_secs_f64());
        println!(
            "API server: {:.1} lists a second from the watch cache, {:.2} from a quorum, {:.0} bytes a second; \
             a node each minute: {:.2} and {:.2}",
            a_second(now.cached - before.cached),
            a_second(now.quorum - before.quorum),
            a_second(now.bytes - before.bytes),
            a_second(now.cached - before.cached) * 60.0 / nodes,
            a_second(now.quorum - before.quorum) * 60.0 / nodes,
        );
        let memory = self
            .alertmanager
            .metric("process_resident_memory_bytes")
            .await;
        println!(
            "Alertmanager: {:.2} ms of processor a second, {:.0} MiB",
            1000.0 * (now.alertmanager_cpu - before.alertmanager_cpu) / took.as_secs_f64(),
            memory / 1_048_576.0,
        );
        let over = format!("{}s", took.as_secs());
        for (what, expression, unit) in figures(&over) {
            let figure = self.prometheus.query_one(&expression).await.unwrap();
            println!("{what}: {figure:.2} {unit}");
        }
    }

    /// Prints how long the groups of rules take.
    async fn print_rules(&self) {
        let groups = self
            .prometheus
            .query("prometheus_rule_group_last_duration_seconds")
            .await;
        for group in groups.unwrap() {
            let name = group.labels["rule_group"]
                .rsplit(';')
                .next()
                .unwrap_or_default();
            println!("rules of {name}: {:.1} ms", group.value * 1000.0);
        }
    }
}

/// Returns what Prometheus knows of the time `over`: its name, its expression, its unit.
fn figures(over: &str) -> [(&'static str, String, &'static str); 10] {
    [
        (
            "crisweep, processor of a node (p50)",
            rate("0.5, ", over),
            "ms a second",
        ),
        (
            "crisweep, processor of a node (p99)",
            rate("0.99, ", over),
            "ms a second",
        ),
        ("crisweep, memory (p50)", memory_of("0.5, ", over), "MiB"),
        ("crisweep, memory (most)", memory_of("1, ", over), "MiB"),
        (
            "questions to Alertmanager",
            format!("sum(rate(crisweep_alertmanager_polls_total[{over}]))"),
            "a second",
        ),
        (
            "Prometheus, processor",
            format!("1000 * rate(process_cpu_seconds_total{{job=\"prometheus\"}}[{over}])"),
            "ms a second",
        ),
        (
            "Prometheus, memory",
            "process_resident_memory_bytes{job=\"prometheus\"} / 2^20".to_owned(),
            "MiB",
        ),
        (
            "Prometheus, series",
            "prometheus_tsdb_head_series".to_owned(),
            "",
        ),
        (
            "samples of a node's page",
            "quantile(0.5, scrape_samples_scraped{job=\"crisweep\"})".to_owned(),
            "",
        ),
        (
            "a scrape (p99)",
            format!(
                "1000 * quantile(0.99, max_over_time(scrape_duration_seconds{{job=\"crisweep\"}}[{over}]))"
            ),
            "ms",
        ),
    ]
}

fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

fn rate(quantile: &str, over: &str) -> String {
    format!(
        "1000 * quantile({quantile}rate(process_cpu_seconds_total{{job=\"crisweep\"}}[{over}]))"
    )
}

fn memory_of(quantile: &str, over: &str) -> String {
    format!(
        "quantile({quantile}max_over_time(process_resident_memory_bytes{{job=\"crisweep\"}}[{over}])) / 2^20"
    )
}
