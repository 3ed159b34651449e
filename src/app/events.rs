//! Writes Kubernetes Events while they are switched on, as the configuration in force says.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::while_set::while_set;
use crate::config::Config;
use crate::events::{Events, write};

/// Writes until the service shuts down.
pub(super) async fn run(
    settings: watch::Receiver<Arc<Config>>,
    events: Events,
    shutdown: CancellationToken,
) {
    let of = |config: &Config| {
        let server = config.pods.api_server().filter(|_| config.events.enabled);
        server.map(|server| (config.events, (server, config.node.name.clone())))
    };
    let writing = |config: Arc<Config>, stop| {
        let (now, events) = (of(&config), events.clone());
        async move {
            if let Some((config, to)) = now {
                write(events, config, to, stop).await;
            }
        }
    };
    while_set(settings, shutdown, |old, new| of(old) != of(new), writing).await;
}
