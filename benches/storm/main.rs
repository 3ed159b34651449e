//! Storms of webhook calls against the real program, and the same calls against a peer that reads each body
//! and answers 200: an axum server in its own process. Prints calls per second, latency, processor time and
//! memory; `docs/dev/performance.md` has the figures.
//!
//! `cargo bench --bench storm -- flapping` runs one case, `-- sustained` a minute of all of them.

mod bodies;
mod peer;
mod sender;
mod served;
#[path = "../support/status.rs"]
mod status;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bodies::{CASES, Case};
use sender::{Storm, Until};
use served::{Node, Served};
use status::{Memory, mib};

/// Runs all cases in turn.
const SUSTAINED: &str = "sustained";
const SUSTAINED_STEP: Duration = Duration::from_secs(10);
const SUSTAINED_STEPS: usize = 6;

#[tokio::main(worker_threads = 1)]
async fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    // cargo adds it.
    arguments.retain(|argument| argument != "--bench");
    if arguments.first().is_some_and(|word| word == peer::CHILD) {
        peer::serve().await;
        return ExitCode::SUCCESS;
    }
    let wanted = |name: &str| arguments.is_empty() || arguments.iter().any(|word| word == name);
    println!("{}", sender::HEADER);
    for case in CASES.iter().filter(|case| wanted(case.name)) {
        compare(case).await;
    }
    if wanted(SUSTAINED) {
        sustained().await;
    }
    ExitCode::SUCCESS
}

async fn compare(case: &Case) {
    let requests = bodies::requests(case);
    let until = Until::Calls(case.calls);
    let storm = |served: &Served| measure(served, &requests, case.connections, until);
    let peer = Served::peer().await;
    let beside = storm(&peer);
    peer.end().await;
    println!("{:<18} | {:<8} | {beside}", case.name, "peer");
    let node = Node::new(case.situation);
    let service = Served::crisweep(&node).await;
    let storm = storm(&service);
    println!("{:<18} | {:<8} | {storm}", case.name, "crisweep");
    println!(
        "{:<18} | {:<8} | {}",
        case.name,
        "ratio",
        storm.beside(&beside)
    );
    service.end().await;
    node.end().await;
}

fn measure(served: &Served, requests: &[Vec<u8>], connections: usize, until: Until) -> Storm {
    let before = served.usage();
    let mut storm =
        tokio::task::block_in_place(|| sender::send(&served.address, requests, connections, until));
    storm.used = served.usage().since(&before);
    storm
}

/// All cases in turn, without a break.
async fn sustained() {
    let mut requests = Vec::new();
    let each: Vec<_> = CASES.iter().map(bodies::requests).collect();
    for number in 0..each.iter().map(Vec::len).max().unwrap_or_default() {
        let of_each = each.iter().filter_map(|of_case| of_case.get(number));
        requests.extend(of_each.cloned());
    }
    let node = Node::new(bodies::Situation::Busy);
    let service = Served::crisweep(&node).await;
    let shown = |memory: Memory| format!("{:.1} ({:.1})", mib(memory.now), mib(memory.most));
    println!("\n{SUSTAINED}: resident MiB now (and at most)");
    println!("{:>4} s | {:>9} calls | {}", 0, 0, shown(service.memory()));
    let (began, mut calls) = (Instant::now(), 0);
    for _ in 0..SUSTAINED_STEPS {
        let until = Until::Over(SUSTAINED_STEP);
        let storm = measure(&service, &requests, bodies::MANY, until);
        calls += storm.calls;
        let (seconds, memory) = (began.elapsed().as_secs(), shown(service.memory()));
        println!("{seconds:>4} s | {calls:>9} calls | {memory}");
    }
    service.end().await;
    node.end().await;
}
