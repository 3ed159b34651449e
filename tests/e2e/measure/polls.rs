//! What `alertmanager.poll` of a fleet costs an Alertmanager: the same questions, each node with a connection of its
//! own, at the rate of 3,000 nodes. Asserts no time, prints it. Run by `benches/polls.sh`; `docs/dev/performance.md`
//! has the figures.

use std::sync::Arc;
use std::time::Duration;

use crisweep::outgoing::{HttpClient, HttpClientConfig};
use crisweep::system::blocking::BlockingPool;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::support::alertmanager::Alertmanager;
use crate::support::release::Release;

const NODES: usize = 3000;
/// `alertmanager.interval`, its default.
const EVERY: Duration = Duration::from_secs(30);
const TAKES: Duration = Duration::from_secs(60);
/// Alerts that are active meanwhile, each about a node of its own.
const ACTIVE: [usize; 3] = [0, 100, NODES];
const ANSWER_MAX_BYTES: u64 = 4 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn polls_of_a_fleet() {
    let suites = std::env::var("CRISWEEP_POLLS_SUITES").unwrap_or_default();
    for suite in suites.split_whitespace() {
        let release = match suite {
            "installed" => Some(Release::installed()),
            _ => Release::unpacked(suite),
        };
        let Some(release) = release else { continue };
        for active in ACTIVE {
            measure(&release, active).await;
        }
    }
}

async fn measure(release: &Release, active: usize) {
    let dir = tempfile::tempdir().unwrap();
    let config = json!({ "route": { "receiver": "people" }, "receivers": [{ "name": "people" }] });
    let alertmanager =
        Alertmanager::start_release(dir.path(), &release.program, &config, &[]).await;
    let alerts: Vec<Value> = (0..active).map(alert).collect();
    for some in alerts.chunks(100) {
        alertmanager.post("/api/v2/alerts", &json!(some)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle = alertmanager.metric("process_resident_memory_bytes").await;
    let began = (
        Instant::now(),
        alertmanager.metric("process_cpu_seconds_total").await,
    );
    let answers = ask_all(&alertmanager).await;
    let took = began.0.elapsed().as_secs_f64();
    let cpu = alertmanager.metric("process_cpu_seconds_total").await - began.1;
    let memory = alertmanager.metric("process_resident_memory_bytes").await;
    let limited = "alertmanager_http_concurrency_limit_exceeded_total{method=\"get\"}";
    let limited = alertmanager.metric(limited).await;
    let asked = answers.len();
    let mut times: Vec<Duration> = answers.into_iter().flatten().collect();
    times.sort();
    let failed = asked - times.len();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    let (major, minor) = release.version;
    println!(
        "{major}.{minor}, {active} active: {asked} questions in {took:.1} s, {failed} failed ({limited:.0} by \
         --web.get-concurrency); processor {:.3} s a second, \
         {:.2} ms a question; MiB before {:.0}, after {:.0}; ms p50 {:.1}, p99 {:.1}, longest {:.1}",
        cpu / took,
        1000.0 * cpu / f64::from(u32::try_from(asked).unwrap()),
        idle / 1_048_576.0,
        memory / 1_048_576.0,
        at(50),
        at(99),
        at(100),
    );
}

/// An alert with the labels and annotations of a shipped rule.
fn alert(number: usize) -> Value {
    json!({
        "labels": {
            "alertname": "CrisweepTooManyExitedContainers", "node": format!("node-{number}"),
            "crisweep": "all", "severity": "warning", "cluster": "prod", "job": "crisweep",
            "namespace": "crisweep", "pod": format!("crisweep-{number:05}"),
            "instance": format!("10.{}.{}.7:20950", number / 250, number % 250),
        },
        "annotations": {
            "summary": "300 containers can be removed",
            "description": "A pass would remove 300 exited containers of this node, and the list grows.",
            "runbook_url": "https://example.com/docs/runbooks/CrisweepTooManyExitedContainers.md",
        },
        "startsAt": "2026-01-02T03:04:05.678Z",
        "endsAt": "2999-01-02T03:04:05.678Z",
        "generatorURL": "http://prometheus.example/graph?g0.expr=crisweep_removable+%3E+100&g0.tab=1",
    })
}

/// Asks for every node in turn for [`TAKES`]; returns how long each answer took.
async fn ask_all(alertmanager: &Alertmanager) -> Vec<Option<Duration>> {
    let disk = BlockingPool::new(1);
    let client = |_| {
        let config = HttpClientConfig::default();
        Arc::new(HttpClient::new(
            alertmanager.url(""),
            config,
            ANSWER_MAX_BYTES,
            disk.clone(),
        ))
    };
    let clients: Vec<Arc<HttpClient>> = (0..NODES).map(client).collect();
    let mut tick = interval(EVERY / u32::try_from(NODES).unwrap());
    // Late questions are made up for: the rate is what is measured.
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (began, mut asking) = (Instant::now(), JoinSet::new());
    for (node, client) in clients.iter().enumerate().cycle() {
        if began.elapsed() >= TAKES {
            break;
        }
        tick.tick().await;
        asking.spawn(ask(client.clone(), node));
    }
    asking.join_all().await
}

/// The question of `trigger/poll.rs`; `None` without a good answer.
async fn ask(client: Arc<HttpClient>, node: usize) -> Option<Duration> {
    let began = Instant::now();
    let mut url = client.url("/api/v2/alerts").ok()?;
    url.query_pairs_mut()
        .append_pair("filter", &format!("node=\"node-{node}\""))
        .append_pair("active", "true")
        .append_pair("silenced", "false")
        .append_pair("inhibited", "false");
    let answer = tokio::time::timeout(Duration::from_secs(10), client.get(url)).await;
    let answer = answer.ok()?.ok()?;
    answer.status.is_success().then(|| began.elapsed())
}
