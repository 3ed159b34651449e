//! The configuration while the service runs: what each part follows, and how a reload hands it on.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::{Mutex, watch};

use super::{log_roots, pods, rules};
use crate::config::{Config, Mode};
use crate::http::{self, Live, Service};
use crate::metrics::Metrics;
use crate::model::Cause;
use crate::telemetry;

/// Returns what the HTTP side follows, and shows it in the metrics and the log.
pub(super) fn live(config: &Config, needs_restart: Vec<&'static str>, metrics: &Metrics) -> Live {
    let mode = config.mode.label();
    let (hash, loaded_at) = (config.hash(), clock());
    let modes = Mode::ALL.map(|it| (it.label(), it == config.mode));
    metrics.configured(&modes, &hash, &needs_restart, loaded_at);
    metrics.expect_passes(unattended(config));
    tracing::info!(
        mode,
        config.hash = hash,
        pods.source = config.pods.source.label(),
        "configuration in force"
    );
    Live {
        routes: config.alerts.as_slice().into(),
        mode,
        pod_source: config.pods.source.label(),
        trusted_hosts: config.web.trusted_hosts.clone(),
        max_age: config.collect.max_age,
        thresholds: config.thresholds.clone(),
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
            let kept = config.keep_fixed(&running);
            let needs_restart = kept.map_err(|error| telemetry::chain(&error))?;
            telemetry::set_level(&config.log.level)?;
            service.worker.set_rules(rules(&config), config.brakes);
            service.observer.set_log_roots(log_roots(&config));
            let asked =
                |config: &Config| (config.pods.source(&config.node.name), config.pods.settle);
            if asked(&config) != asked(&running) {
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

#[expect(
    clippy::disallowed_methods,
    reason = "the time of a reload is the wall clock's"
)]
fn clock() -> Timestamp {
    Timestamp::now()
}
