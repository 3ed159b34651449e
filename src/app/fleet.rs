//! Spawns what asks for the fleet's brakes. The switch is read anew at each reload; a slot is kept over it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::while_set::while_set;
use crate::config::Config;
use crate::fleet::{Fleet, keep_slot, watch_hold, watch_storm};
use crate::model::FleetHold;
use crate::state::Journal;

/// The brakes of this run, held from the beginning if the earlier run was.
pub(super) fn brakes(config: &Config, before: Option<&FleetHold>) -> Fleet {
    let brakes = Fleet::new(&config.fleet, config.pods.api_server());
    if let Some(hold) = before {
        brakes.held_before(hold);
    }
    brakes
}

/// Runs all of it until the service shuts down. `before`: the hold of the earlier run.
pub(super) async fn run(
    settings: watch::Receiver<Arc<Config>>,
    fleet: Fleet,
    (journal, before): (Journal, Option<FleetHold>),
    shutdown: CancellationToken,
) {
    tokio::join!(
        hold(settings.clone(), fleet.clone(), shutdown.clone()),
        watch_storm(fleet.clone(), shutdown.clone()),
        shutdown.run_until_cancelled(keep_hold(&fleet, &journal, before)),
        budget(settings, fleet.clone(), shutdown.clone()),
    );
}

/// Writes the hold down whenever it changes.
async fn keep_hold(fleet: &Fleet, journal: &Journal, mut written: Option<FleetHold>) {
    let mut changes = fleet.changes();
    loop {
        let hold = fleet.hold();
        let words = |it: &FleetHold| (it.place.clone(), it.reason.clone());
        if hold.as_ref().map(words) != written.as_ref().map(words) {
            journal.held(hold.clone());
            written = hold;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// A configuration as it was loaded; another one even if it says the same.
#[derive(Clone)]
struct LoadedConfig(Arc<Config>);

impl PartialEq for LoadedConfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

async fn hold(settings: watch::Receiver<Arc<Config>>, fleet: Fleet, shutdown: CancellationToken) {
    let watching = |LoadedConfig(config), stop| {
        let fleet = fleet.clone();
        async move {
            let server = config.pods.api_server();
            fleet.configure(&config.fleet, server.clone());
            if let (Some(path), Some(server)) = (config.fleet.hold_path(), server) {
                watch_hold(fleet, server, path, stop).await;
            }
        }
    };
    // Each reload reads the switch anew.
    let of = |config: &Arc<Config>| Some(LoadedConfig(Arc::clone(config)));
    while_set(settings, shutdown, of, watching).await;
}

async fn budget(settings: watch::Receiver<Arc<Config>>, fleet: Fleet, shutdown: CancellationToken) {
    let of = |config: &Arc<Config>| {
        let slots = config.fleet.slots(&config.node.name);
        slots.zip(config.pods.api_server())
    };
    let keeping = |(slots, server), stop| keep_slot(fleet.clone(), server, slots, stop);
    while_set(settings, shutdown, of, keeping).await;
}
