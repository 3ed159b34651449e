//! Spawns the threshold watcher and the Alertmanager poller; restarts each if a reload changes its settings.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::while_set::while_set;
use crate::config::Config;
use crate::http::Service;
use crate::trigger::poll::{self, Poll, PollContext, PolledAlerts};
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
    let watching = |config: Arc<Config>, stop| async move {
        if config.thresholds.enabled {
            let watch = ThresholdWatcher {
                thresholds: config.thresholds.clone(),
                observer: service.observer.clone(),
                worker: service.worker.clone(),
            };
            watch.run(stop).await;
        }
    };
    let differ = |old: &Arc<Config>, new: &Arc<Config>| old.thresholds != new.thresholds;
    while_set(settings, shutdown, differ, watching).await;
}

async fn polls(
    settings: watch::Receiver<Arc<Config>>,
    service: &Service,
    shutdown: CancellationToken,
) {
    let polled = PolledAlerts::default();
    let polling = |config: Arc<Config>, stop| {
        let polled = polled.clone();
        async move {
            if config.alertmanager.poll.is_empty() {
                return;
            }
            let poll = Poll {
                alertmanager: config.alertmanager.clone(),
                node: config.node.name.clone(),
            };
            let context = PollContext {
                worker: service.worker.clone(),
                metrics: service.metrics.clone(),
            };
            poll::run(poll, context, polled, stop).await;
        }
    };
    let differ = |old: &Arc<Config>, new: &Arc<Config>| old.alertmanager != new.alertmanager;
    while_set(settings, shutdown, differ, polling).await;
}
