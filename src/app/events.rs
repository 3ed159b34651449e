//! Writes Kubernetes Events while they are switched on, as the configuration in force says.

use std::sync::Arc;

use tokio::sync::watch;

use super::while_set::while_set;
use crate::config::Config;
use crate::events::write;
use crate::http::serve::Stop;
use crate::pass::Runner;

/// Writes until the last pass is over.
pub(super) fn run(
    settings: watch::Receiver<Arc<Config>>,
    runner: &Runner,
    stop: &Stop,
) -> impl Future<Output = ()> + use<> {
    let (events, passes_over) = (runner.events.clone(), stop.passes_over.clone());
    async move {
        let of = |config: &Arc<Config>| {
            let server = config.pods.api_server().filter(|_| config.events.enabled)?;
            Some((config.events, (server, config.node.name.clone())))
        };
        let writing = |(config, to), stop| write(events.clone(), config, to, stop);
        while_set(settings, passes_over, of, writing).await;
    }
}
