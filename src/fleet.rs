//! The brakes that hold for all nodes at once, kept where a person reaches them with one command: at the API server.
//!
//! Says whether passes may run; never starts one, never names an object, and never removes. What was not read is
//! unknown, and then passes that no person asked for wait.

mod config;
mod hold;

use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

pub use config::Config;
use hold::Switch;
pub use hold::watch as watch_hold;

/// What the brakes of the fleet ask of this node's passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Why every pass is held but a forced one and a dry run.
    pub held: Option<String>,
    /// Why automatic passes wait: it is not known whether they are held.
    pub unknown: Option<String>,
}

impl Standing {
    /// Returns why automatic passes may not run.
    pub fn stops_automatic(&self) -> Option<&String> {
        self.held.as_ref().or(self.unknown.as_ref())
    }
}

/// The state of the brakes. Cloning shares; without a configuration nothing holds.
#[derive(Clone, Debug)]
pub struct Fleet {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    switch: Mutex<Switch>,
    standing: watch::Sender<Standing>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            inner: Arc::new(Inner {
                switch: Mutex::default(),
                standing: watch::Sender::default(),
            }),
        }
    }
}

impl Fleet {
    /// Returns brakes that know nothing yet.
    pub fn new(config: &Config) -> Self {
        let fleet = Self::default();
        fleet.configure(config);
        fleet
    }

    /// Takes over a configuration. What is known of the same `ConfigMap` stays known.
    pub fn configure(&self, config: &Config) {
        self.inner.switch.lock().configure(config.hold_path());
        self.publish();
    }

    /// Returns what passes must heed now.
    pub fn standing(&self) -> Standing {
        self.inner.standing.borrow().clone()
    }

    /// Returns a receiver that sees every change.
    pub fn changes(&self) -> watch::Receiver<Standing> {
        self.inner.standing.subscribe()
    }

    /// Returns when the switch was last read.
    pub fn hold_read_at(&self) -> Option<Timestamp> {
        self.inner.switch.lock().read_at()
    }

    /// Returns the status.
    pub fn status(&self) -> Value {
        let switch = self.inner.switch.lock();
        json!({ "hold": switch.status(Instant::now()) })
    }

    fn publish(&self) {
        let mut standing = Standing::default();
        self.inner.switch.lock().put_on(&mut standing);
        self.inner.standing.send_if_modified(|known| {
            let is_new = *known != standing;
            *known = standing;
            is_new
        });
    }
}
