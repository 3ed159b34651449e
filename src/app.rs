//! Builds each part once, binds, spawns, drains. Contains no logic of its own.

mod live;
mod loops;
mod manager;
mod signals;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::access::{self, Access};
use crate::config::Config;
use crate::events::Events;
use crate::fleet::Fleet;
use crate::http::serve::{Listener, Stop};
use crate::http::{self, Reload, Service};
use crate::metrics::Metrics;
use crate::model::FleetHold;
use crate::pass::quarantine::Quarantine;
use crate::pass::{DiskThreads, Runner};
use crate::runtime::discover::{EndpointSources, discover};
use crate::snapshot::Observer;
use crate::state::{History, Journal, Opened};
use crate::system::blocking::BlockingPool;
use crate::system::memory;
use crate::trigger::Worker;
use crate::{runtime, telemetry};
use live::Live;
use loops::Loops;
use manager::Managed;
use signals::{Signals, stop_asked};
pub(crate) use signals::{StopSignals, outlive_file_size_limit};

/// When the process exits after the stop signal, whatever still hangs. Its waits (removals in flight, open
/// requests, last writes) take less; systemd and the kubelet kill it after 30 s.
const EXIT_WITHIN: Duration = Duration::from_secs(14);

/// Interval of first looks while the runtime does not answer.
const FIRST_LOOK_EVERY: Duration = Duration::from_secs(2);

/// How long the service waits for the last state writes.
pub const LAST_WRITES: Duration = Duration::from_secs(1);

/// Timeout for reading the configuration file.
const CONFIG_TIMEOUT: Duration = Duration::from_secs(5);

/// What a service has before it starts.
#[derive(Debug)]
pub struct Bound {
    /// Where it listens.
    pub listeners: Vec<Listener>,
    signals: Signals,
}

/// Runs the service on the listeners from [`bind`] until a stop signal.
///
/// # Errors
/// If no runtime is found, or another crisweep works on the node.
pub async fn serve(
    config: Config,
    bound: Bound,
    flag: Option<String>,
    reload: Reload,
) -> anyhow::Result<()> {
    let Bound {
        listeners,
        mut signals,
    } = bound;
    let reporting = Managed::of_environment();
    let stop = Stop::default();
    let shutdown = stop.shutdown.clone();
    let (settings, changes) = watch::channel(Arc::new(config.clone()));
    let (manager, pulses) = (reporting.manager.clone(), reporting.pulses.clone());
    let mut loops = Loops::new(pulses.clone());
    let started = async {
        let access = Access::new(&config.web, config.pods.api_server()).await?;
        let mut runner = runner(changes.clone(), flag).await?;
        // The runtime is asked while the disk works.
        let (looking, until) = (first_look(runner.observer.clone()), shutdown.clone());
        loops.spawn_unwatched(async move {
            until.run_until_cancelled(looking).await;
        });
        let past = remember(&config, &mut runner).await?;
        anyhow::Ok((access, runner, past))
    };
    let (access, runner, (history, hold)) = tokio::select! {
        started = started => started?,
        signal = signals.stop.next() => {
            tracing::info!(signal, "stopped before the start was complete");
            return Ok(());
        }
    };
    let brakes = Fleet::new(&config.fleet, config.pods.api_server());
    if let Some(hold) = &hold {
        brakes.held_before(hold);
    }
    let worker = Worker::new(
        runner.clone(),
        changes.clone(),
        brakes,
        shutdown.clone(),
        pulses,
    );
    worker.restore(history);
    let service = Service::new(worker.clone(), reload, settings, access, manager.clone());
    accept(&mut loops, listeners, &service, &stop);
    let live = Live {
        settings: changes,
        shutdown: shutdown.clone(),
    };
    live.spawn(&mut loops, &worker, hold, &stop);
    let working = loops.spawn_apart("the worker", async move { worker.run().await });
    // Ready at once, even if the runtime is down: the service waits for it, and /-/ready says so.
    manager.ready().await;
    loops.spawn_unwatched(reporting.report(shutdown.clone()));
    let name = stop_asked(signals, &service).await;
    tracing::info!(
        signal = name,
        "shutting down: no new pass begins; removals in flight may finish"
    );
    shutdown.cancel();
    let ending = async {
        manager.stopping().await;
        // The pass ends first: clients that wait for it get their answer from the servers.
        if let Err(error) = working.await {
            tracing::error!(%error, "the worker panicked; this is a bug in crisweep");
        }
        stop.passes_over.cancel();
        loops.ended().await;
        runner.observer.save_ages();
        runner.journal.closed(LAST_WRITES).await;
    };
    end_in_time(ending).await;
    Ok(())
}

async fn end_in_time(ending: impl Future<Output = ()>) {
    match tokio::time::timeout(EXIT_WITHIN, ending).await {
        Ok(()) => tracing::info!("down"),
        Err(_elapsed) => {
            tracing::error!("shut down with unfinished work; this is a bug in crisweep");
        }
    }
}

/// Accepts connections of every listener.
fn accept(loops: &mut Loops, listeners: Vec<Listener>, service: &Service, stop: &Stop) {
    let router = http::router(service.clone());
    let connections = http::serve::Connections::default();
    for listener in listeners {
        let serving = http::serve::serve(
            listener,
            router.clone(),
            stop.clone(),
            connections.clone(),
            service.access.clone(),
        );
        loops.spawn("a listener", serving);
    }
}

/// Opens the state and gives it to its users; returns the past passes and the hold of all nodes.
async fn remember(
    config: &Config,
    runner: &mut Runner,
) -> anyhow::Result<(History, Option<FleetHold>)> {
    let Opened { journal, stored } = open_state(config, runner).await?;
    let observer = &runner.observer;
    observer.remember(stored.ages, stored.outage_since, journal.clone());
    runner.journal = journal;
    if let Some(to) = config.state.audit_lines.clone() {
        let failures = runner.metrics.state_write_failures.clone();
        let journal = runner.journal.clone();
        runner.journal = journal.with_lines(to, &config.node.name, failures)?;
    }
    let nothing = config.state.dir.is_none().then_some(0);
    let taken = nothing.or(stored.evidence_bytes);
    runner.metrics.evidence_takes(taken);
    Ok((stored.history, stored.hold))
}

/// Finds the runtime and builds what passes use.
///
/// # Errors
/// If no runtime is found.
pub async fn runner(
    settings: watch::Receiver<Arc<Config>>,
    flag: Option<String>,
) -> anyhow::Result<Runner> {
    let config = Arc::clone(&settings.borrow());
    let client = client(&config, flag).await?;
    let observer = Observer::new(client, settings);
    let metrics = Metrics::new(&config.node.name);
    let quarantine = Arc::new(Mutex::new(Quarantine::default()));
    let counted = metrics.clone();
    let events = Events::new(move |result| counted.events.count(result));
    Ok(Runner {
        observer,
        metrics,
        quarantine,
        failures: Arc::default(),
        left_logs: Arc::default(),
        journal: Journal::none(),
        events,
        disk: DiskThreads::default(),
    })
}

/// Finds the runtime and makes a client of it.
///
/// # Errors
/// If no runtime is found.
pub async fn client(config: &Config, flag: Option<String>) -> anyhow::Result<runtime::Client> {
    let places = EndpointSources {
        config: config.runtime.endpoint.clone().filter(|_| flag.is_none()),
        flag,
        // A text that is not UTF-8 names no socket, and the error says so.
        environment: std::env::var_os(runtime::discover::ENVIRONMENT_VARIABLE)
            .map(|text| text.to_string_lossy().into_owned()),
        ..EndpointSources::usual()
    };
    let found = discover(&places).await?;
    tracing::info!(endpoint = %found.path.display(), why = found.why, "runtime endpoint");
    let image_endpoint = config.runtime.image_endpoint.as_deref();
    let image_endpoint = image_endpoint
        .map(|value| runtime::discover::parse_endpoint(value, "runtime.image_endpoint"))
        .transpose()?;
    let (host_root, logs) = (&config.runtime.host_root, &config.policy.logs);
    Ok(runtime::Client::new(runtime::Settings {
        endpoint: found.path,
        image_endpoint,
        timeout: config.runtime.timeout,
        removal_timeout: config.runtime.removal_timeout,
        max_message_bytes: config.runtime.max_message_bytes,
        log_roots: runtime::LogRoots {
            pods: runtime::below(host_root, &logs.pods_root),
            containers: runtime::below(host_root, &logs.containers_root),
        },
    }))
}

/// Opens the state directory, if one is configured.
///
/// # Errors
/// If another crisweep holds its lock.
pub async fn open_state(config: &Config, runner: &Runner) -> anyhow::Result<Opened> {
    let Some(dir) = config.state.dir.clone() else {
        tracing::info!("no state is kept, and no lock held (state.dir: null)");
        return Ok(Opened::default());
    };
    let limits = config.state.limits(config.evidence.max_bytes);
    let failures = runner.metrics.state_write_failures.clone();
    Ok(Journal::open(dir, limits, failures).await?)
}

/// Listens for signals, then on all addresses or on none.
///
/// # Errors
/// If an address cannot be listened on.
pub fn bind(web: &access::Config) -> anyhow::Result<Bound> {
    // Before the addresses: a process that sees one may send a signal.
    let signals = Signals::new()?;
    let mut listeners = Vec::with_capacity(web.listen.len());
    for listen in &web.listen {
        let listener = http::serve::listen(web, listen).with_context(|| {
            format!("cannot listen on {listen} (web.listen, --web.listen-address)")
        })?;
        listeners.push(listener);
    }
    for listener in &listeners {
        tracing::info!(address = %listener, "listening");
    }
    Ok(Bound { listeners, signals })
}

/// Looks until the runtime answers, and once more when the pod source has settled, so that readiness and the
/// first plan do not wait for a scrape. Most of a start's code is not used again.
async fn first_look(observer: Observer) {
    let mut said = false;
    loop {
        let look = observer.shared(FIRST_LOOK_EVERY).await;
        match look.as_ref().map(|look| look.runtime.as_ref()) {
            Ok(Ok(runtime)) => {
                tracing::info!(
                    runtime = runtime.runtime,
                    version = runtime.version,
                    "the runtime answers"
                );
                break;
            }
            Ok(Err(error)) if !said => {
                tracing::warn!(%error, "the runtime does not answer yet; retrying");
                said = true;
            }
            Ok(Err(_)) => {}
            Err(error) => tracing::error!(%error, "no first look"),
        }
        tokio::time::sleep(FIRST_LOOK_EVERY).await;
    }
    memory::let_go_of_code();
    let unsettled = observer.unsettled_for().await;
    if unsettled.is_zero() {
        return;
    }
    tokio::time::sleep(unsettled).await;
    drop(observer.shared(Duration::ZERO).await);
    memory::let_go_of_code();
}

/// Reads the configuration and sets up the log.
///
/// # Errors
/// If the configuration is refused.
pub async fn set_up(
    file: Option<PathBuf>,
    overrides: crate::config::Overrides,
) -> anyhow::Result<(Config, Reload)> {
    let disk = BlockingPool::new(1);
    let load = Arc::new(move || {
        let env = crate::config::environment();
        Config::load(file.as_deref(), env, &overrides).map_err(|error| telemetry::chain(&error))
    });
    let load = move || -> BoxFuture<'static, Result<Config, String>> {
        let (disk, load) = (disk.clone(), Arc::clone(&load));
        Box::pin(async move {
            let loaded = disk.run(CONFIG_TIMEOUT, move || load()).await;
            loaded.map_err(|error| format!("the configuration cannot be read: {error}"))?
        })
    };
    let config = load().await.map_err(anyhow::Error::msg)?;
    telemetry::init(&config.log).map_err(anyhow::Error::msg)?;
    Ok((config, Arc::new(load)))
}
