//! Spawns what reads the fleet's brakes; starts it anew at each reload, so that a reload reads them at once.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::fleet::{Fleet, watch_hold};

/// Runs until the service shuts down.
pub(super) async fn run(
    mut settings: watch::Receiver<Arc<Config>>,
    fleet: Fleet,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        let config = Arc::clone(&settings.borrow_and_update());
        fleet.configure(&config.fleet);
        let stop = shutdown.child_token();
        let mut tasks = JoinSet::new();
        if let (Some(path), Some(server)) = (config.fleet.hold_path(), config.pods.api_server()) {
            tasks.spawn(watch_hold(fleet.clone(), server, path, stop.clone()));
        }
        tokio::select! {
            changed = settings.changed() => {
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
