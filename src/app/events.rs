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
    let of = |config: &Arc<Config>| {
        let server = config.pods.api_server().filter(|_| config.events.enabled)?;
        Some((config.events, (server, config.node.name.clone())))
    };
    let writing = |(config, to), stop| write(events.clone(), config, to, stop);
    while_set(settings, shutdown, of, writing).await;
}
