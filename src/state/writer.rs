//! The thread that alone uses the state directory. A hung disk blocks only this thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use rusqlite::Connection;
use serde::Serialize;
use tokio::sync::oneshot;

use super::ages::ImageAges;
use super::database::{Database, Error, Sync, Writing};
use super::lock::{LockHeld, Unusable};
use super::outage::{self, OutageWrite};
use super::passes::{self, RemovalEnd};
use super::store::{StateDir, Stored};

pub(super) type WriterJob = Box<dyn FnOnce(&mut Writer) + Send>;

/// Outcomes that wait to be written, all in one transaction: on btrfs each transaction waits for the disk.
pub(super) type WaitingOutcomes = Arc<Mutex<Vec<RemovalEnd>>>;

/// When records are written, in the life of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassPhase {
    /// It begins: a database that could not be opened before is opened.
    Begins,
    /// It is about to remove: what it intends must be on the disk first.
    Intends,
    /// It runs: its next intents take these records to the disk.
    Runs,
    /// It is over: there is time to claim room.
    Over,
    /// The records are of no pass.
    Outside,
}

impl PassPhase {
    fn sync(self) -> Sync {
        match self {
            Self::Runs => Sync::Later,
            Self::Begins | Self::Intends | Self::Over | Self::Outside => Sync::Now,
        }
    }
}

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
        }
    }

    pub(super) fn status(&self) -> StateStatus {
        self.status.lock().clone()
    }

    fn lost(&self, records: usize) {
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

    fn worked(&self) {
        if self.status.lock().errors.remove(JOURNAL).is_some() {
            tracing::info!("state can be written again");
        }
    }

    fn noted(&self, store: &StateDir) {
        let mut status = self.status.lock();
        (status.locked, status.journal) = (store.is_locked(), store.is_open());
    }
}

/// What the thread works with.
pub(super) struct Writer {
    pub(super) store: StateDir,
    pub(super) health: Arc<WriterHealth>,
}

impl Writer {
    /// Opens the directory, sends the result, and works until every sender is gone.
    pub(super) fn run(
        mut self,
        jobs: &Receiver<WriterJob>,
        opened: oneshot::Sender<Result<Stored, LockHeld>>,
    ) {
        // Its caller may wait no longer, or leave in this moment: then it goes on, and each pass that may remove asks for
        // the lock again. The next start reports the earlier passes. A caller that is told of a holder drops the queue.
        if let Err(Err(held)) = opened.send(self.open()) {
            tracing::error!(%held, "the state directory answered late: another crisweep holds its lock");
            self.health.failed(1, &held.to_string());
        }
        loop {
            let job = match jobs.try_recv() {
                // Claimed part by part: on a new node it takes longer than the start.
                Err(TryRecvError::Empty) if self.store.has_to_claim() => {
                    self.claim_some();
                    continue;
                }
                Err(TryRecvError::Empty) => jobs.recv().ok(),
                job => job.ok(),
            };
            let Some(job) = job else { return };
            job(&mut self);
        }
    }

    pub(super) fn write(
        &mut self,
        phase: PassPhase,
        records: usize,
        write: impl FnOnce(&Writing<'_>) -> rusqlite::Result<()>,
    ) {
        if phase == PassPhase::Begins && !self.store.is_open() {
            self.reopen();
        }
        match self.store.write(phase.sync(), write) {
            Ok(()) => self.health.worked(),
            // The reason is known.
            Err(Error::Closed) => self.health.lost(records),
            Err(error) => {
                self.health.failed(records, &error.to_string());
                self.health.noted(&self.store);
            }
        }
        if phase == PassPhase::Over {
            self.store.claim_what_was_taken();
        }
    }

    pub(super) fn write_ages(&mut self) {
        let ages = self.health.ages.lock().take();
        if let Some(ages) = ages {
            self.write(PassPhase::Outside, 1, |writing| ages.write(writing.sql));
        }
    }

    pub(super) fn write_outage(&mut self) {
        let since = self.health.outage.lock().take();
        if let Some(OutageWrite(since)) = since {
            // No look has learned of this one yet.
            let earlier = *self.health.earlier_outage.lock();
            let since = since.map(|since| earlier.map_or(since, |earlier| earlier.min(since)));
            self.write(PassPhase::Outside, 1, |writing| outage::put(writing, since));
        }
    }

    pub(super) fn write_outcomes(&mut self, waiting: &WaitingOutcomes) {
        let outcomes = std::mem::take(&mut *waiting.lock());
        self.write(PassPhase::Runs, outcomes.len(), |writing| {
            let mut outcomes = outcomes.iter();
            outcomes.try_for_each(|ended| passes::put_outcome(writing, ended))
        });
    }

    /// Changes evidence or snapshots. Their callers count failures.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Database) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let changed = self.store.change(change);
        self.health.noted(&self.store);
        changed
    }

    pub(super) fn read<T>(
        &mut self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.store.read(read).map_err(|error| {
            let Error::Sqlite(cause) = &error else {
                return error;
            };
            tracing::warn!(%error, "the state cannot be read");
            self.health.noted(&self.store);
            Error::Unreadable(cause.to_string())
        })
    }

    fn claim_some(&mut self) {
        if let Err(error) = self.store.claim_some() {
            tracing::warn!(%error, "the room for the state could not be claimed");
            if !self.store.is_open() {
                self.reopen();
            }
            // Until the database is opened anew, or its room was taken.
            self.store.claims = false;
        }
    }

    fn open(&mut self) -> Result<Stored, LockHeld> {
        let result = self.store.open();
        self.health.noted(&self.store);
        match result {
            Ok(found) => {
                if found.outage_since.is_some() {
                    *self.health.earlier_outage.lock() = found.outage_since;
                }
                Ok(found)
            }
            Err(Unusable::Held(held)) => Err(held),
            Err(Unusable::Failed(error)) => {
                let mut error = error.to_string();
                if !self.store.is_locked() {
                    error.push_str("; a second crisweep on this node is not prevented either");
                }
                self.health.failed(1, &error);
                Ok(Stored::default())
            }
        }
    }

    /// Tries again: the last pass may have freed space.
    fn reopen(&mut self) {
        if let Err(held) = self.open() {
            self.health.failed(1, &held.to_string());
        }
    }

    /// Takes the lock if it is not held, and opens the database anew if its file was removed. If that fails for a reason
    /// other than another holder, passes go on without lock and state, as after a start without a usable directory.
    pub(super) fn lock(&mut self) -> Option<LockHeld> {
        if self.store.release_lost() {
            self.health
                .failed(1, "the state directory was emptied or replaced");
        }
        if self.store.is_locked() && self.store.is_open() {
            return None;
        }
        let held = self.open().err()?;
        self.health.failed(1, &held.to_string());
        Some(held)
    }
}
