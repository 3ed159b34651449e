//! Runs what depends on settings while they are in force, and anew when a reload changes them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::loops::Loops;
use crate::config::Config;
use crate::events::{self, Events};
use crate::fleet::{Fleet, keep_slot, watch_hold, watch_storm};
use crate::http::serve::Stop;
use crate::metrics::Metrics;
use crate::model::FleetHold;
use crate::state::Journal;
use crate::trigger::Worker;
use crate::trigger::poll::{self, PolledAlerts};
use crate::trigger::thresholds::ThresholdWatcher;

/// Evidence goes at most this part of its age late, within the two bounds below.
const LATE_PART: u32 = 8;
/// A clock that is wrong at the start of the node has this long to be set, at the default age.
const SELDOM: Duration = Duration::from_secs(600);
const OFTEN: Duration = Duration::from_secs(1);

/// The settings in force, until the service shuts down.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) settings: watch::Receiver<Arc<Config>>,
    pub(super) shutdown: CancellationToken,
}

impl Live {
    /// Runs all of it beside the service's other loops. `hold`: that of the earlier run.
    pub(super) fn spawn(
        self,
        loops: &mut Loops,
        worker: &Worker,
        hold: Option<FleetHold>,
        stop: &Stop,
    ) {
        let runner = worker.runner();
        let (journal, metrics) = (runner.journal.clone(), runner.metrics.clone());
        let brakes = self
            .clone()
            .brakes(worker.fleet().clone(), (journal.clone(), hold));
        loops.spawn("the fleet's brakes", brakes);
        loops.spawn(
            "the ages of evidence",
            self.clone().evidence(journal, metrics),
        );
        let until_passes_end = Self {
            shutdown: stop.passes_over.clone(),
            ..self.clone()
        };
        let events = until_passes_end.events(runner.events.clone());
        loops.spawn("the writer of Events", events);
        let triggers = self.triggers(worker.clone());
        loops.spawn("the watch over thresholds and Alertmanagers", triggers);
    }

    /// Runs `work` with what `of` takes from the configuration; stops it and begins it anew whenever a reload changes
    /// that. Runs nothing while `of` returns `None`. Work that has nothing to do may end early.
    async fn run<T: Clone + PartialEq, W: Future<Output = ()>>(
        mut self,
        of: impl Fn(&Config) -> Option<T>,
        work: impl Fn(T, CancellationToken) -> W,
    ) {
        while !self.shutdown.is_cancelled() {
            let now = of(&self.settings.borrow_and_update());
            let stop = self.shutdown.child_token();
            let working = now.clone().map(|now| work(now, stop.clone()));
            let changing = async {
                let changed = self.settings.wait_for(|new| of(new) != now).await;
                // The sender of reloads is gone: the service shuts down.
                if changed.map(drop).is_err() {
                    self.shutdown.cancelled().await;
                }
            };
            tokio::join!(OptionFuture::from(working), async {
                self.shutdown.run_until_cancelled(changing).await;
                stop.cancel();
            });
        }
    }

    /// Runs the threshold watcher and the Alertmanager poller.
    async fn triggers(self, worker: Worker) {
        let watched = |config: &Config| Some(config.thresholds.clone()).filter(|it| it.enabled);
        let watching = |thresholds, stop| {
            let worker = worker.clone();
            let watch = ThresholdWatcher { thresholds, worker };
            async move { watch.run(stop).await }
        };
        let polled =
            |config: &Config| Some(config.alertmanager.clone()).filter(|it| !it.poll.is_empty());
        let known = PolledAlerts::default();
        let polling =
            |alertmanager, stop| poll::run(alertmanager, worker.clone(), known.clone(), stop);
        tokio::join!(
            self.clone().run(watched, watching),
            self.clone().run(polled, polling),
        );
    }

    /// Asks for the fleet's brakes. The switch is read anew at each reload; a slot is kept over it. `before`: the hold
    /// of the earlier run.
    async fn brakes(self, fleet: Fleet, (journal, before): (Journal, Option<FleetHold>)) {
        let switch = |config: &Config| config.pods.api_server().zip(config.fleet.hold_path());
        let watching = |place, stop| watch_hold(fleet.clone(), place, self.settings.clone(), stop);
        let slots = |config: &Config| {
            let slots = config.fleet.slots(&config.node.name);
            slots.zip(config.pods.api_server())
        };
        let keeping = |(slots, server), stop| keep_slot(fleet.clone(), server, slots, stop);
        let shutdown = &self.shutdown;
        tokio::join!(
            self.clone().run(switch, watching),
            self.clone().run(slots, keeping),
            watch_storm(fleet.clone(), shutdown.clone()),
            shutdown.run_until_cancelled(keep_hold(&fleet, &journal, before)),
        );
    }

    /// Writes Kubernetes Events while they are switched on.
    async fn events(self, events: Events) {
        let of = |config: &Config| {
            let server = config.pods.api_server().filter(|_| config.events.enabled)?;
            Some((config.events, (server, config.node.name.clone())))
        };
        let writing = |(config, to), stop| events::write(events.clone(), config, to, stop);
        self.run(of, writing).await;
    }

    /// Drops evidence after its age, whether or not more is kept, and shows how much room the rest takes.
    async fn evidence(self, journal: Journal, metrics: Metrics) {
        let (journal, metrics) = (&journal, &metrics);
        let dropping = |max_age: Option<Duration>, stop: CancellationToken| async move {
            let every = max_age.map_or(SELDOM, |age| (age / LATE_PART).clamp(OFTEN, SELDOM));
            let rested = || stop.run_until_cancelled(tokio::time::sleep(every));
            while rested().await.is_some() {
                drop_old(journal, metrics, max_age).await;
            }
        };
        self.run(|config| Some(config.evidence.max_age), dropping)
            .await;
    }
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

async fn drop_old(journal: &Journal, metrics: &Metrics, max_age: Option<Duration>) {
    match journal.drop_old_evidence(max_age).await {
        Ok(room) => {
            metrics.evidence_takes(Some(room.bytes));
            metrics.evidence_dropped.inc_by(room.dropped);
        }
        Err(error) => tracing::debug!(%error, "the age of evidence could not be looked at"),
    }
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
        let (runner, fleet) = (runner.await.unwrap(), Fleet::new(&paused.fleet, None));
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
