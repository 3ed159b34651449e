//! What watching a node costs, beside `prometheus-node-exporter` on the same machine in the same run: processor time of
//! a scrape with a new look and of one that shares a look, the time until the first answer, latency, resident memory.
//! And what a person's question costs.
//!
//! `cargo bench --bench scrape`, or with sizes: `cargo bench --bench scrape -- 1500`. Needs `node_exporter`
//! (`apt install prometheus-node-exporter`, or its path in `NODE_EXPORTER`); `CRISWEEP` names another build of crisweep
//! to measure. Each figure is the median of some rounds
//! in which the programs take turns; on a busy machine read the ratios.

#[path = "../support/node.rs"]
#[expect(dead_code, reason = "other benches use the rest")]
mod node;
mod program;
#[path = "../support/status.rs"]
mod status;

use std::time::{Duration, Instant};

use crisweep_sim::NodeBuilder;
use crisweep_sim::demo::{LogRoots, write_logs};
use jiff::Timestamp;
use program::{BenchNode, Program, crisweep, node_exporter};
use status::mib;

const SIZES: [usize; 2] = [1_500, 10_000];
const ROUNDS: usize = 3;
/// The kernel counts processor time in ticks of 10 ms: so many scrapes make the mean finer than 0.2 ms.
const SCRAPES: u32 = 60;
const LATENCIES: usize = 500;
/// What people ask; each of a service that has just started.
const QUESTIONS: [&str; 4] = ["/", "/api/v1/plan", "/api/v1/status", "/api/v1/doctor"];
const ANSWERS: u32 = 20;
/// As in the memory bench: after so many scrapes memory no longer grows.
const WARM_SCRAPES: usize = 20;

#[tokio::main]
async fn main() {
    let sizes = std::env::args().skip(1).flat_map(|size| size.parse());
    let mut sizes: Vec<usize> = sizes.collect();
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    // reqwest needs a TLS provider even without TLS; installing it twice fails.
    let _done = rustls::crypto::ring::default_provider().install_default();
    println!("Median of {ROUNDS} rounds; node_exporter beside each figure");
    println!(
        "{:<44} | {:>10} | {:>13} | ratio",
        "", "crisweep", "node_exporter"
    );
    for size in sizes {
        measure(size).await;
    }
}

/// The figures of one program in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    ready_ms: f64,
    idle_mib: f64,
    warm_mib: f64,
    scrape_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
}

async fn measure(size: usize) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the service beside it lives in real time"
    )]
    let now = Timestamp::now();
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let logs = LogRoots {
        pods: at("logs"),
        containers: at("links"),
    };
    let builder = NodeBuilder::new().at(now);
    let builder = builder.log_root(&logs.pods.display().to_string());
    let served = node::serve(node::fill(builder, size), false);
    let node = BenchNode {
        endpoint: served.sim.endpoint(),
        pods: at("pods.json"),
        logs,
    };
    std::fs::write(&node.pods, served.sim.pods_json()).expect("the pods written");
    write_logs(&served.sim, &node.logs).expect("the logs written");
    let [mut fresh, mut with_logs, mut shared, mut peer] = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        // With a new look each, a scrape takes as long as the runtime.
        fresh.push(figures(crisweep(&node, "0s", false), 1).await);
        with_logs.push(figures(crisweep(&node, "0s", true), 1).await);
        shared.push(figures(crisweep(&node, "1h", false), LATENCIES).await);
        peer.push(figures(node_exporter(), LATENCIES).await);
    }
    println!("{size} containers");
    let row = |what: &str, ours: &[Figures], of: fn(&Figures) -> f64| {
        let (ours, peers) = (median(ours, of), median(&peer, of));
        println!(
            "{what:<44} | {ours:>10.1} | {peers:>13.1} | {:.2}",
            ours / peers
        );
    };
    row("processor ms of a scrape, a new look each", &fresh, |it| {
        it.scrape_ms
    });
    row(
        "processor ms of the same, on a node with logs",
        &with_logs,
        |it| it.scrape_ms,
    );
    row("processor ms of a scrape, a shared look", &shared, |it| {
        it.scrape_ms
    });
    row("p50 ms of a scrape, a shared look", &shared, |it| it.p50_ms);
    row("p99 ms of a scrape, a shared look", &shared, |it| it.p99_ms);
    row("ms from exec to ready", &shared, |it| it.ready_ms);
    row("MiB resident, idle", &shared, |it| it.idle_mib);
    row(
        "MiB resident after 20 scrapes, a new look each",
        &fresh,
        |it| it.warm_mib,
    );
    for question in QUESTIONS {
        ask(crisweep(&node, "1h", false), question).await;
    }
    served.sim.shutdown().await;
}

async fn ask(mut program: Program, question: &str) {
    program.until_ready().await;
    program.until_settled().await;
    let (idle, before) = (program.memory().now, program.processor());
    let (mut bytes, mut times) = (0, Vec::new());
    for _ in 0..ANSWERS {
        let began = Instant::now();
        bytes = program.answer(question).await.len();
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    let processor_ms = (program.processor() - before) * 1e3 / f64::from(ANSWERS);
    let most = program.memory().most;
    program.end().await;
    times.sort_by(f64::total_cmp);
    println!(
        "GET {question:<15}: {processor_ms:.1} ms of processor, {:.1} ms, {} KiB; {:.1} MiB more than idle, at most",
        at(&times, 50),
        bytes >> 10,
        mib(most.saturating_sub(idle)),
    );
}

async fn figures(mut program: Program, latencies: usize) -> Figures {
    let ready_ms = program.until_ready().await;
    program.until_settled().await;
    let idle_mib = mib(program.memory().now);
    for _ in 0..WARM_SCRAPES {
        program.scrape().await;
    }
    let warm_mib = mib(program.memory().now);
    let before = program.processor();
    for _ in 0..SCRAPES {
        program.scrape().await;
    }
    // What a look drops is given back after the answer.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let scrape_ms = (program.processor() - before) * 1e3 / f64::from(SCRAPES);
    let mut times = Vec::new();
    for _ in 0..latencies {
        times.push(program.scrape().await.as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let (p50_ms, p99_ms) = (at(&times, 50), at(&times, 99));
    program.end().await;
    Figures {
        ready_ms,
        idle_mib,
        warm_mib,
        scrape_ms,
        p50_ms,
        p99_ms,
    }
}

fn median(rounds: &[Figures], of: fn(&Figures) -> f64) -> f64 {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    at(&values, 50)
}

/// Returns a percentile of sorted values.
fn at(values: &[f64], percent: usize) -> f64 {
    let value = values.get(values.len() * percent / 100);
    *value.expect("a value")
}
