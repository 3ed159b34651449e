//! The thread that alone uses the state directory. A hung disk blocks only this thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use rusqlite::Connection;
use serde::Serialize;
use tokio::sync::oneshot;

use super::ages::ImageAges;
use super::database::{Database, Error, Sync, Writing};
use super::lock::{LockHeld, Unusable};
use super::store::{StateDir, Stored};

/// Writes records.
type WriteJob = Box<dyn FnOnce(&Writing<'_>) -> rusqlite::Result<()> + Send>;
/// Keeps a container's evidence: gets the error if the database is not open, and says how it turned out to be damaged.
/// Its caller counts failures.
pub(super) type EvidenceJob =
    Box<dyn FnOnce(Result<&mut Database, Error>) -> Option<String> + Send>;
/// Reads: gets the error if the database cannot be read.
type ReadJob = Box<dyn FnOnce(Result<&Connection, Error>) -> rusqlite::Result<()> + Send>;

/// A job for the thread.
pub(super) enum WriterJob {
    /// Write the records of a pass, and wait for the disk if `Sync` says so.
    Write {
        /// The records.
        write: WriteJob,
        /// Whether to wait for the disk.
        sync: Sync,
        /// Number of records, for the count of those that are lost.
        records: usize,
        /// The phase of the pass in which they are written.
        moment: PassPhase,
    },
    /// Write the pending image ages.
    Ages,
    /// Keep evidence.
    Evidence(EvidenceJob),
    /// Read.
    Read(ReadJob),
    /// Answer when all earlier jobs are done.
    Answer(oneshot::Sender<()>),
    /// Answer whether another crisweep holds the lock; take a lost lock again.
    Lock(oneshot::Sender<Option<LockHeld>>),
}

/// A moment in the life of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassPhase {
    /// It begins: a database that could not be opened before is opened.
    Begins,
    /// It runs.
    Runs,
    /// It is over: there is time to claim room.
    Over,
}

/// The key of errors in the API.
const JOURNAL: &str = "journal";

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
    ages: Mutex<Option<ImageAges>>,
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
        }
    }

    /// Stores image ages to be written, in place of pending ones; says whether none were pending.
    pub(super) fn leave_ages(&self, ages: ImageAges) -> bool {
        self.ages.lock().replace(ages).is_none()
    }

    /// Takes the pending image ages.
    pub(super) fn take_ages(&self) -> Option<ImageAges> {
        self.ages.lock().take()
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

/// Opens the directory, sends the result, and works until every sender is gone.
pub(super) fn run(
    mut store: StateDir,
    jobs: &Receiver<WriterJob>,
    health: &Arc<WriterHealth>,
    opened: oneshot::Sender<Result<Stored, LockHeld>>,
) {
    let found = open(&mut store, health);
    let held = found.is_err();
    // The caller may have timed out; then the next start reports the earlier passes.
    if let Err(Err(held)) = opened.send(found) {
        tracing::error!(%held, "another crisweep holds the lock, and the disk answered too late: this one goes on without lock and state");
        health.failed(1, &held.to_string());
    }
    if held {
        return;
    }
    // Claimed part by part while there is nothing else to do: on a new node it takes longer than the start.
    let mut claims = true;
    loop {
        let job = match (claims, jobs.try_recv()) {
            (_, Ok(job)) => job,
            (_, Err(TryRecvError::Disconnected)) => return,
            (true, Err(TryRecvError::Empty)) => {
                claims = !claim_some(&mut store, health);
                continue;
            }
            (false, Err(TryRecvError::Empty)) => match jobs.recv() {
                Ok(job) => job,
                Err(_) => return,
            },
        };
        let was_open = store.is_open();
        match job {
            WriterJob::Write {
                write,
                sync,
                records,
                moment,
            } => {
                if moment == PassPhase::Begins && !store.is_open() {
                    reopen(&mut store, health);
                }
                let written = store.write(sync, write);
                settle(&store, health, written, records);
                if moment == PassPhase::Over {
                    // The claim meets the same error, and deals with it.
                    claims |= store.is_short().unwrap_or(true);
                }
            }
            WriterJob::Ages => {
                if let Some(ages) = health.take_ages() {
                    let written = store.write(Sync::Now, |writing| ages.write(writing.sql));
                    settle(&store, health, written, 1);
                }
            }
            WriterJob::Evidence(keep) => {
                store.keep(keep);
                health.noted(&store);
            }
            WriterJob::Read(read) => answer(&mut store, health, read),
            WriterJob::Answer(to) => drop(to.send(())),
            WriterJob::Lock(to) => drop(to.send(lock(&mut store, health))),
        }
        claims |= !was_open && store.is_open();
    }
}

/// Claims a part of the room; says whether it is done with it.
fn claim_some(store: &mut StateDir, health: &WriterHealth) -> bool {
    store.claim_some().unwrap_or_else(|error| {
        tracing::warn!(%error, "the room for the state could not be claimed");
        if !store.is_open() {
            reopen(store, health);
        }
        true
    })
}

fn open(store: &mut StateDir, health: &WriterHealth) -> Result<Stored, LockHeld> {
    let result = store.open();
    health.noted(store);
    match result {
        Ok(found) => Ok(found),
        Err(Unusable::Held(held)) => Err(held),
        Err(Unusable::Failed(error)) => {
            let mut error = error.to_string();
            if !store.is_locked() {
                error.push_str("; a second crisweep on this node is not prevented either");
            }
            health.failed(1, &error);
            Ok(Stored::default())
        }
    }
}

/// Tries again: the last pass may have freed space.
fn reopen(store: &mut StateDir, health: &WriterHealth) {
    if let Err(held) = open(store, health) {
        health.failed(1, &held.to_string());
    }
}

fn settle(store: &StateDir, health: &WriterHealth, written: Result<(), Error>, records: usize) {
    match written {
        Ok(()) => health.worked(),
        // The reason is known.
        Err(Error::Closed) => health.lost(records),
        Err(error) => {
            health.failed(records, &error.to_string());
            health.noted(store);
        }
    }
}

fn answer(store: &mut StateDir, health: &WriterHealth, read: ReadJob) {
    if !store.is_open() {
        // Its caller shows the error.
        drop(read(Err(Error::Closed)));
        return;
    }
    if let Err(error) = store.read(|sql| read(Ok(sql))) {
        tracing::warn!(%error, "the state cannot be read");
        health.noted(store);
    }
}

/// Takes the lock if it is not held, and opens the database anew if its file was removed. If that fails for a reason
/// other than another holder, passes go on without lock and state, as after a start without a usable directory.
fn lock(store: &mut StateDir, health: &WriterHealth) -> Option<LockHeld> {
    let was_open = store.is_open();
    if store.release_if_lost() || (was_open && !store.is_open()) {
        health.failed(1, "the state directory was emptied or replaced");
    }
    if store.is_locked() && store.is_open() {
        return None;
    }
    let Err(held) = open(store, health) else {
        return None;
    };
    if store.uses_another_runtime(&held) {
        return None;
    }
    health.failed(1, &held.to_string());
    Some(held)
}
