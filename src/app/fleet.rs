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
    let reloads = settings.clone();
    let of = |config: &Arc<Config>| config.pods.api_server().zip(config.fleet.hold_path());
    let watching = |place, stop| watch_hold(fleet.clone(), place, reloads.clone(), stop);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::runner;
    use crate::system::pulse::Pulses;
    use crate::trigger::Worker;

    #[tokio::test]
    async fn a_reload_changes_all_brakes_at_once() {
        let mut paused = Config::default();
        paused.brakes.pause = true;
        let mut held = Config::default();
        held.fleet.namespace = Some("gc".to_owned());
        held.fleet.hold_config_map = Some("brakes".to_owned());
        let (settings, changes) = watch::channel(Arc::new(paused.clone()));
        let runner = runner(changes.clone(), Some("unix:///none".to_owned()));
        let (runner, fleet) = (runner.await.unwrap(), brakes(&paused, None));
        let stop = CancellationToken::new();
        let worker = Worker::new(runner, changes, fleet.clone(), stop, Pulses::default());
        // No other task has its turn in between.
        worker.reload(&settings, Arc::new(held));
        assert!(!worker.config().brakes.pause);
        assert!(fleet.standing().unknown.is_some());
        worker.reload(&settings, Arc::new(paused));
        assert!(worker.config().brakes.pause);
        assert_eq!(fleet.standing().unknown, None);
    }
}
