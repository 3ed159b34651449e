//! The configuration while the service runs: what each part follows, and how a reload hands it on.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{Mutex, watch};

use super::{gate_brakes, log_roots, pod_source, pods, rules, triggers};
use crate::config::{Config, Mode};
use crate::http::{self, Live, Service};
use crate::metrics::Metrics;
use crate::model::Cause;
use crate::telemetry;
use crate::trigger::alert::Route;

/// Returns what the HTTP side follows, and shows it in the metrics and the log.
pub(super) fn live(config: &Config, needs_restart: Vec<&'static str>, metrics: &Metrics) -> Live {
    let routes = config.alerts.iter().map(|route| Route {
        matches: route.matches.clone(),
        targets: route.targets.clone(),
    });
    let mode = word(config.mode);
    let (hash, loaded_at) = (config.hash(), clock());
    let modes = [Mode::Enforce, Mode::Observe].map(|it| (word(it), it == config.mode));
    metrics.configured(&modes, &hash, &needs_restart, loaded_at);
    metrics.expect_passes(unattended(config));
    tracing::info!(
        mode,
        config.hash = hash,
        pods.source = pod_source::word(&config.pods.source),
        "configuration in force"
    );
    Live {
        routes: routes.collect(),
        mode,
        pod_source: pod_source::word(&config.pods.source),
        trusted_hosts: config.web.trusted_hosts.clone(),
        max_age: config.collect.max_age,
        marks: triggers::marks(config),
        hash,
        loaded_at,
        needs_restart,
    }
}

/// Returns what reads the configuration again and hands it on. What is refused changes nothing.
pub(super) fn reload(read: super::Reload, settings: watch::Sender<Arc<Config>>) -> http::Reload {
    // Held throughout: two reloads at a time would mix.
    let settings = Arc::new(Mutex::new(settings));
    Box::new(move |service: Service| {
        let (read, settings) = (Arc::clone(&read), Arc::clone(&settings));
        Box::pin(async move {
            let settings = settings.lock().await;
            let mut config = read().await?;
            let running = Arc::clone(&settings.borrow());
            let needs_restart = config.keep_fixed(&running);
            telemetry::set_level(&config.log.level)?;
            service
                .worker
                .set_rules(rules(&config), gate_brakes(&config));
            service.observer.set_log_roots(log_roots(&config));
            let settle = |config: &Config| config.policy.pods.settle;
            if config.pods != running.pods || settle(&config) != settle(&running) {
                // It settles anew: nothing that the source before it said counts for it.
                service.observer.set_pods(pods(&config));
            }
            service.set_live(live(&config, needs_restart.clone(), &service.metrics));
            settings.send_replace(Arc::new(config));
            Ok(needs_restart)
        })
    })
}

/// Returns what asks for passes without a person.
fn unattended(config: &Config) -> impl Iterator<Item = Cause> {
    let polls = !config.alertmanager.poll.is_empty();
    let causes = [
        (Cause::Alert, true),
        (Cause::Poll, polls),
        (Cause::Threshold, config.thresholds.enabled),
    ];
    causes
        .into_iter()
        .filter_map(|(cause, on)| on.then_some(cause))
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time of a reload is the wall clock's"
)]
fn clock() -> Timestamp {
    Timestamp::now()
}
