//! The thread that alone uses the state directory. A hung disk blocks only this thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::database::{Database, Error, Sync, Writing};
use super::lock::{LockHeld, Unusable};
use super::outage::{self, OutageWrite};
use super::passes::{self, RemovalEnd};
use super::store::{StateDir, Stored};

pub(super) type WriterJob = Box<dyn FnOnce(&mut StateDir) + Send>;

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

impl StateDir {
    /// Opens the directory, sends the result, and works until every sender is gone.
    pub(super) fn run(
        mut self,
        jobs: &Receiver<WriterJob>,
        opened: oneshot::Sender<Result<Stored, LockHeld>>,
    ) {
        // Its caller may wait no longer, or leave in this moment: then it goes on, and each pass that may remove asks for
        // the lock again. A caller that is told of a holder drops the queue.
        let found = self.open_or_go_on();
        self.gave_history = self.is_open();
        match opened.send(found) {
            Err(Err(held)) => {
                tracing::error!(%held, "the state directory answered late: another crisweep holds its lock");
                self.health.failed(1, &held.to_string());
            }
            Err(Ok(found)) => self.health.found_late(found.history, found.hold),
            Ok(()) => {}
        }
        loop {
            let job = match jobs.try_recv() {
                // Claimed part by part: on a new node it takes longer than the start.
                Err(TryRecvError::Empty) if self.claims && self.is_open() => {
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

    pub(super) fn record(
        &mut self,
        phase: PassPhase,
        records: usize,
        write: impl FnOnce(&Writing<'_>) -> rusqlite::Result<()>,
    ) {
        if phase == PassPhase::Begins && !self.is_open() {
            self.reopen();
        }
        match self.write(phase.sync(), write) {
            Ok(()) => self.health.worked(),
            // The failure that closed the database is already logged.
            Err(Error::Closed) => self.health.lost(records),
            Err(error) => self.health.failed(records, &error.to_string()),
        }
        if phase == PassPhase::Over {
            self.claim_what_was_taken();
        }
    }

    pub(super) fn write_ages(&mut self) {
        let ages = self.health.ages.lock().take();
        if let Some(ages) = ages {
            self.record(PassPhase::Outside, 1, |writing| ages.write(writing.sql));
        }
    }

    pub(super) fn write_outage(&mut self) {
        let since = self.health.outage.lock().take();
        if let Some(OutageWrite(since)) = since {
            // No look knows yet of an outage of an earlier run.
            let earlier = *self.health.earlier_outage.lock();
            let since = since.map(|since| earlier.map_or(since, |earlier| earlier.min(since)));
            self.record(PassPhase::Outside, 1, |writing| outage::put(writing, since));
        }
    }

    pub(super) fn write_outcomes(&mut self, waiting: &WaitingOutcomes) {
        let outcomes = std::mem::take(&mut *waiting.lock());
        self.record(PassPhase::Runs, outcomes.len(), |writing| {
            let mut outcomes = outcomes.iter();
            outcomes.try_for_each(|ended| passes::put_outcome(writing, ended))
        });
    }

    /// Claims a part of the room for the records and for the log of writes.
    pub(super) fn claim_some(&mut self) {
        let is_claimed = self.change(Database::claim_some).unwrap_or_else(|error| {
            tracing::warn!(%error, "the room for the state could not be claimed");
            if !self.is_open() {
                self.reopen();
            }
            // Stop claiming until the database is opened anew, or its room was taken.
            true
        });
        self.claims = !is_claimed;
    }

    /// Opens everything that is not open yet; if that fails, goes on without it, unless another crisweep holds the lock.
    fn open_or_go_on(&mut self) -> Result<Stored, LockHeld> {
        match self.open() {
            Ok(found) => {
                if found.outage_since.is_some() {
                    *self.health.earlier_outage.lock() = found.outage_since;
                }
                Ok(found)
            }
            Err(Unusable::Held(held)) => Err(held),
            Err(Unusable::Failed(error)) => {
                let mut error = error.to_string();
                if !self.is_locked() {
                    error.push_str("; a second crisweep on this node is not prevented either");
                }
                self.health.failed(1, &error);
                Ok(Stored::default())
            }
        }
    }

    /// Tries again: the last pass may have freed space. Returns who else holds the lock, if somebody does.
    fn reopen(&mut self) -> Option<LockHeld> {
        match self.open_or_go_on() {
            Ok(found) => {
                if self.is_open() && !std::mem::replace(&mut self.gave_history, true) {
                    self.health.found_late(found.history, found.hold);
                }
                None
            }
            Err(held) => {
                self.health.failed(1, &held.to_string());
                Some(held)
            }
        }
    }

    /// Takes the lock if it is not held, and opens the database anew if its file was removed. If that fails for a reason
    /// other than another holder, passes go on without lock and state, as after a start without a usable directory.
    pub(super) fn lock(&mut self) -> Option<LockHeld> {
        if self.release_lost() {
            self.health
                .failed(1, "the state directory was emptied or replaced");
        }
        if self.is_locked() && self.is_open() {
            return None;
        }
        self.reopen()
    }
}
