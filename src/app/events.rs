//! Writes Kubernetes Events while they are switched on, as the configuration in force says.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::events::{Events, write};

/// Writes until the service shuts down.
pub(super) async fn run(
    mut settings: watch::Receiver<Arc<Config>>,
    events: Events,
    shutdown: CancellationToken,
) {
    let of = |config: &Config| {
        let server = config.pods.api_server().filter(|_| config.events.enabled);
        server.map(|server| (config.events, (server, config.node.name.clone())))
    };
    while !shutdown.is_cancelled() {
        let now = of(&settings.borrow_and_update());
        let stop = shutdown.child_token();
        let writing = async {
            match now.clone() {
                Some((config, to)) => write(events.clone(), config, to, stop.clone()).await,
                None => stop.cancelled().await,
            }
        };
        let changing = async {
            let changed = settings
                .wait_for(|config| of(config) != now)
                .await
                .map(drop);
            // The sender of reloads is gone: the service shuts down.
            if changed.is_err() {
                shutdown.cancelled().await;
            }
            stop.cancel();
        };
        tokio::join!(writing, async {
            shutdown.run_until_cancelled(changing).await;
        });
    }
}
