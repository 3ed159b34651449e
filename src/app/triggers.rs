//! Spawns the threshold watcher and the Alertmanager poller; restarts them if a reload changes their
//! settings.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::while_set::while_set;
use crate::config::Config;
use crate::http::Service;
use crate::trigger::poll::{self, Poll, PollContext};
use crate::trigger::thresholds::ThresholdWatcher;

/// Runs both, if configured, until the service shuts down.
pub(super) async fn run(
    settings: watch::Receiver<Arc<Config>>,
    service: Service,
    shutdown: CancellationToken,
) {
    let both = |config: Arc<Config>, stop| {
        let mut tasks = JoinSet::new();
        spawn(&mut tasks, &config, &service, &stop);
        async move { while tasks.join_next().await.is_some() {} }
    };
    let differ = |old: &Arc<Config>, new: &Arc<Config>| {
        (&old.thresholds, &old.alertmanager) != (&new.thresholds, &new.alertmanager)
    };
    while_set(settings, shutdown, differ, both).await;
}

fn spawn(tasks: &mut JoinSet<()>, config: &Config, service: &Service, stop: &CancellationToken) {
    if config.thresholds.enabled {
        let watch = ThresholdWatcher {
            thresholds: config.thresholds.clone(),
            observer: service.observer.clone(),
            worker: service.worker.clone(),
        };
        tasks.spawn(watch.run(stop.clone()));
    }
    if !config.alertmanager.poll.is_empty() {
        let poll = Poll {
            alertmanager: config.alertmanager.clone(),
            node: config.node.name.clone(),
        };
        let context = PollContext {
            worker: service.worker.clone(),
            metrics: service.metrics.clone(),
        };
        tasks.spawn(poll::run(poll, context, stop.clone()));
    }
}
