//! A pass whose runtime goes away meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crisweep::config::{BackOff, Config};
use crisweep::events::Events;
use crisweep::gc::PassOptions;
use crisweep::metrics::Metrics;
use crisweep::model::{Cause, Outcome, Pass, PassState, Target};
use crisweep::pass::record::PassRecord;
use crisweep::pass::{DiskThreads, Runner};
use crisweep::pods::SourceName;
use crisweep::runtime;
use crisweep::snapshot::Observer;
use crisweep::state::Journal;
use crisweep_sim::{ContainerSpec, Fault, NodeBuilder, Options, PodSpec, Rpc, Sim};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Code;

const PATIENCE: Duration = Duration::from_secs(10);

fn runner(socket: &Path) -> Runner {
    let client = runtime::Client::new(runtime::Settings {
        endpoint: socket.to_owned(),
        image_endpoint: None,
        timeout: PATIENCE,
        removal_timeout: PATIENCE,
        max_message_bytes: 16 << 20,
        log_roots: runtime::LogRoots::default(),
    });
    let (_, settings) = watch::channel(Arc::new(config()));
    Runner {
        observer: Observer::new(client, settings),
        metrics: Metrics::new("node"),
        journal: Journal::none(),
        quarantine: Arc::default(),
        failures: Arc::default(),
        left_logs: Arc::default(),
        disk: DiskThreads::default(),
        events: Events::new(|_result| ()),
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.pods.source = SourceName::None;
    // This machine's own logs.
    config.policy.logs.enabled = false;
    config.gc.deadline = None;
    config.gc.io_pressure_pause_percent = None;
    config.gc.failure_ratio = None;
    config.quarantine = BackOff {
        base: PATIENCE,
        max: PATIENCE,
    };
    config.runtime.removal_timeout = PATIENCE;
    config.collect.max_age = PATIENCE;
    config
}

#[expect(clippy::disallowed_methods, reason = "passes carry the clock's time")]
fn record() -> PassRecord {
    let now = jiff::Timestamp::now();
    PassRecord::new(Pass {
        state: PassState::Running,
        ..Pass::queued("1".into(), Cause::Manual.into(), Target::ALL, now)
    })
}

async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{what}");
}

#[tokio::test]
async fn a_runtime_that_is_away_at_a_later_look_is_waited_for() {
    let hour = Duration::from_secs(3600);
    let pod = PodSpec::new("web")
        .age(5 * hour)
        .sandbox(1)
        .age(5 * hour)
        .container(ContainerSpec::exited("app", 0, 4 * hour))
        .container(ContainerSpec::exited("app", 1, 3 * hour))
        .container(ContainerSpec::running("app", 2, hour));
    let directory = tempfile::tempdir().unwrap();
    let node = NodeBuilder::new().pod(pod).build();
    let sim = Sim::start(directory.path().join("cri.sock"), node, Options::default()).unwrap();
    sim.set_fault(Rpc::RemoveContainer, Fault::hang());

    let (runner, record, shutdown) = (runner(sim.socket()), record(), CancellationToken::new());
    let options = PassOptions::default();
    let pass = runner.run(&record, &options, config(), &shutdown);
    let meddle = async {
        eventually("a removal in flight", || sim.removals_in_flight() == 1).await;
        let away = Fault::fail(Code::Unknown, "server is not initialized yet").times(2);
        sim.set_fault(Rpc::ListPodSandbox, away);
        sim.clear_fault(Rpc::RemoveContainer);
    };
    let (ran, ()) = tokio::join!(pass, meddle);
    let pass = record.pass();
    assert_eq!(ran.outcome, Outcome::Completed, "{:?}", pass.errors);
    let removed: BTreeMap<Target, u64> =
        pass.targets.iter().map(|(t, r)| (*t, r.removed)).collect();
    assert_eq!(
        removed,
        [
            (Target::Containers, 1),
            (Target::Sandboxes, 1),
            (Target::Logs, 0),
            (Target::Images, 0),
        ]
        .into()
    );
    assert!(sim.harmful_calls().is_empty());
}

#[tokio::test]
async fn a_runtime_that_goes_away_again_and_again_ends_the_pass_with_these_words() {
    let hour = Duration::from_secs(3600);
    let pod = PodSpec::new("web").age(30 * hour);
    let pod = (0..12).fold(pod, |pod, attempt| {
        let exit = (20 - attempt) * hour;
        pod.container(ContainerSpec::exited("app", attempt, exit))
    });
    let directory = tempfile::tempdir().unwrap();
    let node = NodeBuilder::new().pod(pod).build();
    let sim = Sim::start(directory.path().join("cri.sock"), node, Options::default()).unwrap();
    let away = Fault::fail(Code::Unknown, "server is not initialized yet");
    sim.set_fault(Rpc::RemoveContainer, away);

    let (runner, record, shutdown) = (runner(sim.socket()), record(), CancellationToken::new());
    let options = PassOptions::default();
    let ran = runner.run(&record, &options, config(), &shutdown).await;
    let pass = record.pass();
    assert_eq!(ran.outcome, Outcome::Partial);
    assert!(
        pass.errors
            .iter()
            .any(|it| it == "the runtime went away 6 times"),
        "{:?}",
        pass.errors
    );
}
