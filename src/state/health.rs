//! Whether state can be written, for the API and the log, and what waits until it can.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tokio::sync::Notify;

use super::ages::ImageAges;
use super::outage::OutageWrite;
use super::passes::History;
use crate::model::FleetHold;

/// The key of errors in the API.
pub(super) const JOURNAL: &str = "journal";

/// The state of the state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StateStatus {
    /// The directory; `None`: nothing is stored, as configured.
    pub dir: Option<PathBuf>,
    /// Whether a second crisweep on this node would be refused.
    pub locked: bool,
    /// Whether the database is open.
    pub journal: bool,
    /// Why nothing can be written now.
    pub errors: BTreeMap<&'static str, String>,
}

/// The health of writing, for the API and the log. Each change is logged once.
#[derive(Debug)]
pub(super) struct WriterHealth {
    /// Failed and dropped writes.
    failures: Counter,
    status: Mutex<StateStatus>,
    /// Image ages that wait to be written: only the newest, so that a hung disk does not accumulate them.
    pub(super) ages: Mutex<Option<ImageAges>>,
    /// Since when an outage lasts, if that waits to be written; only the newest too.
    pub(super) outage: Mutex<Option<OutageWrite>>,
    /// Since when an outage lasts, as the database said when it was opened; taken by the next look.
    pub(super) earlier_outage: Mutex<Option<Timestamp>>,
    /// What earlier runs left, and the hold of all nodes, if the database was opened after the start; taken by the worker.
    pub(super) late: Mutex<Option<(History, Option<FleetHold>)>>,
    /// Wakes the worker for it.
    pub(super) opened_late: Notify,
}

impl WriterHealth {
    pub(super) fn new(failures: Counter, dir: PathBuf) -> Self {
        let status = StateStatus {
            dir: Some(dir),
            ..StateStatus::default()
        };
        Self {
            failures,
            status: Mutex::new(status),
            ages: Mutex::default(),
            outage: Mutex::default(),
            earlier_outage: Mutex::default(),
            late: Mutex::default(),
            opened_late: Notify::new(),
        }
    }

    pub(super) fn status(&self) -> StateStatus {
        self.status.lock().clone()
    }

    pub(super) fn lost(&self, records: usize) {
        let records = u64::try_from(records).unwrap_or(u64::MAX);
        self.failures.inc_by(records);
    }

    pub(super) fn failed(&self, records: usize, error: &str) {
        self.lost(records);
        let known = &self.status;
        let before = known.lock().errors.insert(JOURNAL, error.to_owned());
        if before.is_none() {
            tracing::warn!(error, "state cannot be written; passes go on without it");
        }
    }

    pub(super) fn worked(&self) {
        if self.status.lock().errors.remove(JOURNAL).is_some() {
            tracing::info!("state can be written again");
        }
    }

    pub(super) fn found_late(&self, history: History, hold: Option<FleetHold>) {
        *self.late.lock() = Some((history, hold));
        self.opened_late.notify_one();
    }

    pub(super) fn noted(&self, is_locked: bool, is_open: bool) {
        let mut status = self.status.lock();
        (status.locked, status.journal) = (is_locked, is_open);
    }
}
