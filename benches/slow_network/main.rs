//! The cost of slow and failing network teardowns for healthy sandboxes: 300 leaked sandboxes, a third takes
//! 5 s and a tenth fails, beside the healthy ones alone. Prints when the last healthy one was gone;
//! `docs/dev/performance.md` has the figures.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crisweep::config::Config;
use crisweep::events::Events;
use crisweep::gc::PassOptions;
use crisweep::metrics::Metrics;
use crisweep::model::{Cause, Pass, PassState, Target};
use crisweep::pass::record::PassRecord;
use crisweep::pass::{DiskThreads, Runner};
use crisweep::pods::SourceName;
use crisweep::runtime;
use crisweep::snapshot::Observer;
use crisweep::state::Journal;
use crisweep_sim::{Cni, Disk, NodeBuilder, Options, PodSpec, Sim, hours, seconds};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const SANDBOXES: u64 = 300;
/// As the service's.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Healthy,
    Slow,
    Failing,
}

fn kind(number: u64) -> Kind {
    match number % 30 {
        n if n % 3 == 0 => Kind::Slow,
        1 | 11 | 22 => Kind::Failing,
        _ => Kind::Healthy,
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a tokio runtime");
    for delay in [5, 30] {
        for disk_millis in [5, 50] {
            let disk = Duration::from_millis(disk_millis);
            for kinds in [
                &[Kind::Healthy][..],
                &[Kind::Healthy, Kind::Slow, Kind::Failing],
            ] {
                let (healthy, all) = runtime.block_on(sweep(kinds, disk, seconds(delay)));
                println!(
                    "removal {disk_millis} ms, DEL {delay} s, {}: healthy gone after {healthy:.1} s, \
                     pass over after {all:.1} s",
                    if kinds.len() == 1 {
                        "healthy alone"
                    } else {
                        "with slow and failing ones"
                    },
                );
            }
        }
    }
}

/// Runs a pass over sandboxes of these kinds; returns after how many seconds the last healthy one was gone
/// and the pass ended.
async fn sweep(kinds: &[Kind], disk: Duration, delay: Duration) -> (f64, f64) {
    let dir = tempfile::tempdir().expect("a directory");
    let numbers = || (0..SANDBOXES).filter(|n| kinds.contains(&kind(*n)));
    let live = PodSpec::new("web").running("app", 0);
    let node = numbers().fold(NodeBuilder::new().pod(live), |node, n| {
        let pod = PodSpec::new(&format!("leak-{n}")).without_sandbox();
        // An older sandbox of the same pod is surplus, whatever the pod's state.
        let pod = pod.leaked_sandbox(0, hours(3) + seconds(SANDBOXES - n));
        node.pod(pod.leaked_sandbox(1, hours(1)).deleted())
    });
    let socket = dir.path().join("cri.sock");
    let sim = Sim::start(&socket, node.build(), Options::default()).expect("a simulated runtime");
    sim.conduct(|it| {
        it.disk = Disk {
            each: disk,
            crowding: Duration::ZERO,
        }
    });
    let mut healthy = BTreeSet::new();
    for n in numbers() {
        let id = sim
            .sandbox_id(&format!("default/leak-{n}#0"))
            .expect("a sandbox");
        match kind(n) {
            Kind::Healthy => drop(healthy.insert(id)),
            Kind::Slow => sim.set_cni(&id, Cni::slow(delay)),
            Kind::Failing => sim.set_cni(&id, Cni::failing()),
        }
    }
    let client = runtime::Client::new(runtime::Settings {
        endpoint: socket,
        image_endpoint: None,
        timeout: TIMEOUT,
        removal_timeout: TIMEOUT,
        max_message_bytes: 16 << 20,
        log_roots: runtime::LogRoots::default(),
    });
    let (_, settings) = watch::channel(Arc::new(config()));
    let runner = Runner {
        observer: Observer::new(client, settings),
        metrics: Metrics::new("node"),
        journal: Journal::none(),
        quarantine: Arc::default(),
        failures: Arc::default(),
        left_logs: Arc::default(),
        disk: DiskThreads::default(),
        events: Events::new(|_result| ()),
    };
    let record = PassRecord::new(pass());
    let began = clock();
    let (options, shutdown) = (PassOptions::default(), CancellationToken::new());
    runner.run(&record, &options, config(), &shutdown).await;
    let all = clock().duration_since(began).as_secs_f64();
    let of_healthy = sim
        .calls()
        .into_iter()
        .filter(|call| healthy.contains(&call.id));
    let last = of_healthy.filter_map(|call| Some(call.ended?.at)).max();
    let last = last.map_or(f64::NAN, |at| at.duration_since(began).as_secs_f64());
    (last, all)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the simulated runtime's record has the wall clock's times"
)]
fn clock() -> Timestamp {
    Timestamp::now()
}

/// The service's defaults.
fn config() -> Config {
    let mut config = Config::default();
    config.pods.source = SourceName::None;
    // Leave this machine's own logs alone.
    config.policy.logs.enabled = false;
    config.runtime.host_root = "/nowhere".into();
    config.runtime.removal_timeout = TIMEOUT;
    config.gc.deadline = None;
    config.gc.io_pressure_pause_percent = None;
    config
}

fn pass() -> Pass {
    let (trigger, targets) = (Cause::Manual.into(), [Target::Sandboxes]);
    Pass {
        state: PassState::Running,
        ..Pass::queued("bench".to_owned(), trigger, targets, Timestamp::UNIX_EPOCH)
    }
}
