//! The brakes that hold for all nodes at once, kept where a person reaches them with one command: at the API server.
//!
//! Says whether passes may run; never starts one, never names an object, and never removes. What was not read is
//! unknown, and then passes that no person asked for wait.

mod budget;
mod config;
mod hold;
mod storm;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::kubernetes::ApiServer;
use crate::model::{FleetHold, Target};
use crate::system::clock;
use budget::SlotRequest;
pub use budget::keep_slot;
pub use config::Config;
use hold::Switch;
pub use hold::{HoldStatus, watch as watch_hold};
use storm::Storm;
pub use storm::{StormStatus, watch_storm};

/// The brakes of the fleet, as the API shows them.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// The switch (`fleet.hold_config_map`); `null`: there is none.
    pub hold: Option<HoldStatus>,
    /// The alerts that hold automatic passes (`fleet.storm_hold`).
    pub storm: Vec<StormStatus>,
    /// The slot of `fleet.budget`; `null`: no target needs one.
    pub budget: Option<BudgetStatus>,
}

/// The slot for automatic passes.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BudgetStatus {
    /// Whether a pass waits for it or uses it.
    pub wanted: bool,
    /// The slot that this node holds.
    pub slot: Option<u32>,
    /// Why the slots could not be looked at.
    pub error: Option<String>,
}

/// What the brakes of the fleet ask of this node's passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Why every pass is held but a forced one and a dry run.
    pub held: Option<String>,
    /// Why automatic passes wait: it is not known whether they are held.
    pub unknown: Option<String>,
    /// Why automatic passes wait: an alert says that something is wrong with all nodes.
    pub storm: Option<String>,
    /// The targets whose automatic passes need a slot of the budget.
    pub budget: BTreeSet<Target>,
    /// Whether this node holds a slot.
    pub has_slot: bool,
}

impl Standing {
    /// Returns why automatic passes may not run.
    pub fn stops_automatic(&self) -> Option<&String> {
        self.held.as_ref().or(self.waits())
    }

    /// Returns why automatic passes wait, while those of people run.
    pub fn waits(&self) -> Option<&String> {
        self.unknown.as_ref().or(self.storm.as_ref())
    }

    /// Returns why a running automatic pass over these targets must end. `budgeted`: the targets that needed a slot when
    /// it began; a budget that was configured later does not end it.
    pub fn ends(&self, targets: &BTreeSet<Target>, budgeted: &BTreeSet<Target>) -> Option<&str> {
        let lacks_slot = !self.has_slot && !self.budget.is_disjoint(budgeted);
        let lost = lacks_slot.then_some("the slot among all nodes is lost (fleet.budget)");
        let stopped = self.stops_automatic().map(String::as_str);
        stopped.or(lost).filter(|_| !targets.is_empty())
    }
}

/// The state of the brakes. Cloning shares; without a configuration nothing holds.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    inner: Arc<FleetInner>,
}

#[derive(Debug, Default)]
struct FleetInner {
    known: Mutex<KnownBrakes>,
    stormed: Notify,
    /// The present request of a pass for a slot.
    request: watch::Sender<SlotRequest>,
    /// The number of the next request.
    next_request: AtomicU64,
    standing: watch::Sender<Standing>,
}

/// What is known of each brake.
#[derive(Debug, Default)]
struct KnownBrakes {
    switch: Switch,
    storm: Storm,
    slot: Slot,
}

impl KnownBrakes {
    fn standing(&self) -> Standing {
        let mut standing = Standing {
            budget: self.slot.targets.clone(),
            has_slot: self.slot.held.is_some(),
            ..Standing::default()
        };
        self.switch.put_on(&mut standing);
        self.storm.put_on(&mut standing);
        standing
    }
}

/// What is known of this node's slot.
#[derive(Debug, Default)]
struct Slot {
    targets: BTreeSet<Target>,
    held: Option<u32>,
    /// Why no slot could be taken.
    error: Option<String>,
}

impl Fleet {
    /// Returns brakes that know nothing yet.
    pub fn new(config: &Config, server: Option<ApiServer>) -> Self {
        let fleet = Self::default();
        fleet.configure(config, server);
        fleet
    }

    /// Takes over a configuration. What is known of the same `ConfigMap` of the same API server stays known.
    pub fn configure(&self, config: &Config, server: Option<ApiServer>) {
        self.change(|known| {
            let place = config.hold_path().map(|path| (server, path));
            known.switch.configure(place);
            known.slot.targets = config.budgeted();
            known.storm.configure(config.storm_hold);
        });
        self.inner.stormed.notify_one();
    }

    /// Returns what passes must heed now.
    pub fn standing(&self) -> Standing {
        self.inner.standing.borrow().clone()
    }

    /// Returns a receiver that sees every change.
    pub fn changes(&self) -> watch::Receiver<Standing> {
        self.inner.standing.subscribe()
    }

    /// Takes over the hold that an earlier run read, if it is of the same switch. It holds until the switch is read.
    pub fn held_before(&self, hold: &FleetHold) {
        self.change(|known| known.switch.held_before(hold, clock()));
    }

    /// Returns the hold that a restart must not lose.
    pub fn hold(&self) -> Option<FleetHold> {
        self.inner.known.lock().switch.hold()
    }

    /// Returns when the switch was last read.
    pub fn hold_read_at(&self) -> Option<Timestamp> {
        self.inner.known.lock().switch.read_at()
    }

    /// Returns the status.
    pub fn status(&self) -> FleetStatus {
        let known = self.inner.known.lock();
        let slot = &known.slot;
        let now = Instant::now();
        FleetStatus {
            hold: known.switch.status(now),
            storm: known.storm.status(now),
            budget: (!slot.targets.is_empty()).then(|| BudgetStatus {
                wanted: self.inner.request.borrow().is_some(),
                slot: slot.held,
                error: slot.error.clone(),
            }),
        }
    }

    /// Says whether an automatic pass waits for a slot or uses it.
    pub fn want_slot(&self, is_wanted: bool) {
        let is_new = self.inner.request.send_if_modified(|request| {
            let is_new = request.is_some() != is_wanted;
            if is_new {
                *request =
                    is_wanted.then(|| self.inner.next_request.fetch_add(1, Ordering::Relaxed));
            }
            is_new
        });
        if is_new && !is_wanted {
            self.grant(None);
        }
    }

    fn grant(&self, slot: Option<u32>) {
        self.change(|known| known.slot.held = slot);
    }

    /// Notes whether slots could be looked at; says it once in the log.
    fn note_budget(&self, error: Option<&String>) {
        let slot = &mut self.inner.known.lock().slot;
        if let Some(error) = error
            && slot.error.is_none()
        {
            tracing::warn!(error, "no slot for automatic passes can be taken");
        }
        slot.error = error.cloned();
    }

    /// Changes what is known, and tells passes what they must heed now; both under one lock, so that an older standing
    /// never replaces a newer one.
    fn change<T>(&self, change: impl FnOnce(&mut KnownBrakes) -> T) -> T {
        let mut known = self.inner.known.lock();
        let changed = change(&mut known);
        let now = known.standing();
        self.inner.standing.send_if_modified(|before| {
            let is_new = *before != now;
            *before = now;
            is_new
        });
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_that_began_without_a_budget_lacks_no_slot() {
        let images = BTreeSet::from([Target::Images]);
        let none = BTreeSet::new();
        let budget = |targets: &BTreeSet<Target>, has_slot| Standing {
            budget: targets.clone(),
            has_slot,
            ..Standing::default()
        };
        let lost = budget(&images, false);
        assert!(lost.ends(&images, &images).is_some());
        assert_eq!(lost.ends(&images, &none), None);
        assert_eq!(budget(&images, true).ends(&images, &images), None);
        // A reload ended the budget.
        assert_eq!(budget(&none, false).ends(&images, &images), None);
    }
}
