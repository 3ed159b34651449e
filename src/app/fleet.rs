//! Spawns what asks for the fleet's brakes. The switch is read anew at each reload; a slot is kept over it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

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

async fn hold(
    mut settings: watch::Receiver<Arc<Config>>,
    fleet: Fleet,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        let config = Arc::clone(&settings.borrow_and_update());
        fleet.configure(&config.fleet, config.pods.api_server());
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

async fn budget(
    mut settings: watch::Receiver<Arc<Config>>,
    fleet: Fleet,
    shutdown: CancellationToken,
) {
    let of = |config: &Config| {
        let slots = config.fleet.slots(&config.node.name);
        slots.zip(config.pods.api_server())
    };
    while !shutdown.is_cancelled() {
        let now = of(&settings.borrow_and_update());
        let stop = shutdown.child_token();
        let keeping = async {
            match now.clone() {
                Some((slots, server)) => {
                    keep_slot(fleet.clone(), server, slots, stop.clone()).await;
                }
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
        tokio::join!(keeping, async {
            shutdown.run_until_cancelled(changing).await;
        });
    }
}
