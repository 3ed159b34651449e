//! Spawns the threshold watcher and the Alertmanager poller; restarts them if a reload changes their
//! settings.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::http::Service;
use crate::trigger::poll::{self, Poll, PollContext};
use crate::trigger::thresholds::Watch;

/// Runs both, if configured, until the service shuts down.
pub(super) async fn run(
    mut settings: watch::Receiver<Arc<Config>>,
    service: Service,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        let config = Arc::clone(&settings.borrow_and_update());
        let stop = shutdown.child_token();
        let mut tasks = JoinSet::new();
        spawn(&mut tasks, &config, &service, &stop);
        let is_other = |new: &Arc<Config>| {
            (&new.thresholds, &new.alertmanager) != (&config.thresholds, &config.alertmanager)
        };
        tokio::select! {
            changed = async { settings.wait_for(is_other).await.map(drop) } => {
                // The sender of reloads is gone: the service shuts down.
                if changed.is_err() {
                    shutdown.cancelled().await;
                }
            }
            () = shutdown.cancelled() => {}
        }
        stop.cancel();
        while tasks.join_next().await.is_some() {}
    }
}

fn spawn(tasks: &mut JoinSet<()>, config: &Config, service: &Service, stop: &CancellationToken) {
    if config.thresholds.enabled {
        let watch = Watch {
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
