//! Spawns the threshold watcher and the Alertmanager poller; restarts each if a reload changes its settings.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::while_set::while_set;
use crate::config::Config;
use crate::http::Service;
use crate::trigger::poll::{self, PolledAlerts};
use crate::trigger::thresholds::ThresholdWatcher;

/// Runs both, if configured, until the service shuts down.
pub(super) async fn run(
    settings: watch::Receiver<Arc<Config>>,
    service: Service,
    shutdown: CancellationToken,
) {
    tokio::join!(
        thresholds(settings.clone(), &service, shutdown.clone()),
        polls(settings, &service, shutdown),
    );
}

async fn thresholds(
    settings: watch::Receiver<Arc<Config>>,
    service: &Service,
    shutdown: CancellationToken,
) {
    let of = |config: &Arc<Config>| Some(config.thresholds.clone()).filter(|it| it.enabled);
    let watching = |thresholds, stop| {
        let watch = ThresholdWatcher {
            thresholds,
            worker: service.worker.clone(),
        };
        async move { watch.run(stop).await }
    };
    while_set(settings, shutdown, of, watching).await;
}

async fn polls(
    settings: watch::Receiver<Arc<Config>>,
    service: &Service,
    shutdown: CancellationToken,
) {
    let polled = PolledAlerts::default();
    let of =
        |config: &Arc<Config>| Some(config.alertmanager.clone()).filter(|it| !it.poll.is_empty());
    let polling =
        |alertmanager, stop| poll::run(alertmanager, service.worker.clone(), polled.clone(), stop);
    while_set(settings, shutdown, of, polling).await;
}
