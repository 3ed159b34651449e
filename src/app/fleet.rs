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

async fn hold(settings: watch::Receiver<Arc<Config>>, fleet: Fleet, shutdown: CancellationToken) {
    let watching = |config: Arc<Config>, stop| {
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
    let differ = |old: &Arc<Config>, new: &Arc<Config>| !Arc::ptr_eq(old, new);
    while_set(settings, shutdown, differ, watching).await;
}

async fn budget(settings: watch::Receiver<Arc<Config>>, fleet: Fleet, shutdown: CancellationToken) {
    let of = |config: &Config| {
        let slots = config.fleet.slots(&config.node.name);
        slots.zip(config.pods.api_server())
    };
    let keeping = |config: Arc<Config>, stop| {
        let (now, fleet) = (of(&config), fleet.clone());
        async move {
            if let Some((slots, server)) = now {
                keep_slot(fleet, server, slots, stop).await;
            }
        }
    };
    while_set(settings, shutdown, |old, new| of(old) != of(new), keeping).await;
}
