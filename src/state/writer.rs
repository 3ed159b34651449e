//! The writer thread. A hung disk blocks only this thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::oneshot;

use super::entry::Entry;
use super::lock::Held;
use super::store::{Found, Store, Unusable};
use prometheus_client::metrics::counter::Counter;

/// A job for the thread.
#[derive(Debug)]
pub(super) enum Job {
    /// Write these, and wait for the disk if `Sync` says so.
    Entries(Vec<Entry>, Sync),
    /// Write the pending image ages.
    Ages,
    /// Answer when all earlier jobs are done.
    Answer(oneshot::Sender<()>),
    /// Answer whether another crisweep holds the lock; take a lost lock again.
    Lock(oneshot::Sender<Option<Held>>),
}

/// Whether a write waits until it is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// Survives a crash of the node.
    Now,
    /// Survives a crash of the process; the next `Now` writes it to disk.
    Later,
}

/// A file of the state, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The journal.
    Journal,
    /// The image ages.
    Ages,
}

/// The state of the state directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The directory; `None`: nothing is stored, as configured.
    pub dir: Option<PathBuf>,
    /// Whether a second crisweep on this node would be refused.
    pub locked: bool,
    /// Whether the journal is open.
    pub journal: bool,
    /// What cannot be written now, and why.
    pub errors: BTreeMap<Part, String>,
}

/// The health of writing, for the API and the log. Each change is logged once.
#[derive(Debug)]
pub(super) struct Health {
    /// Failed and dropped writes.
    failures: Counter,
    status: Mutex<Status>,
    /// Encoded image ages that wait to be written: only the newest, so that a hung disk does not accumulate
    /// them.
    ages: Mutex<Option<Vec<u8>>>,
}

impl Health {
    pub(super) fn new(failures: Counter, dir: PathBuf) -> Self {
        let status = Status {
            dir: Some(dir),
            ..Status::default()
        };
        Self {
            failures,
            status: Mutex::new(status),
            ages: Mutex::default(),
        }
    }

    /// Stores image ages to be written, in place of pending ones; says whether none were pending.
    pub(super) fn leave_ages(&self, ages: Vec<u8>) -> bool {
        self.ages().replace(ages).is_none()
    }

    /// Takes the pending image ages.
    pub(super) fn take_ages(&self) -> Option<Vec<u8>> {
        self.ages().take()
    }

    fn ages(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.ages.lock()
    }

    pub(super) fn status(&self) -> Status {
        self.lock().clone()
    }

    /// Counts failed or dropped writes.
    fn left_out(&self, writes: usize) {
        let writes = u64::try_from(writes).unwrap_or(u64::MAX);
        self.failures.inc_by(writes);
    }

    pub(super) fn failed(&self, part: Part, writes: usize, error: String) {
        self.left_out(writes);
        let mut status = self.lock();
        if !status.errors.contains_key(&part) {
            tracing::warn!(
                ?part,
                error,
                "state cannot be written; passes go on without it"
            );
        }
        status.errors.insert(part, error);
    }

    fn worked(&self, part: Part) {
        if self.lock().errors.remove(&part).is_some() {
            tracing::info!(?part, "state can be written again");
        }
    }

    fn opened(&self, store: &Store) {
        let mut status = self.lock();
        (status.locked, status.journal) = (store.is_locked(), store.has_journal());
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock()
    }
}

/// Opens the directory, sends the result, and writes until every sender is gone.
pub(super) fn run(
    mut store: Store,
    jobs: &Receiver<Job>,
    health: &Arc<Health>,
    opened: oneshot::Sender<Result<Found, Held>>,
) {
    let found = open(&mut store, health);
    let held = found.is_err();
    // The caller may have timed out; then the next start reports the earlier passes.
    if let Err(Err(held)) = opened.send(found) {
        tracing::error!(%held, "another crisweep holds the lock, and the disk answered too late: this one goes on without lock and state");
        health.failed(Part::Journal, 1, held.to_string());
    }
    if held {
        return;
    }
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Entries(entries, sync) => write(&mut store, &entries, sync, health),
            Job::Ages => write_ages(&mut store, health),
            Job::Answer(to) => drop(to.send(())),
            Job::Lock(to) => drop(to.send(lock(&mut store, health))),
        }
    }
}

fn open(store: &mut Store, health: &Arc<Health>) -> Result<Found, Held> {
    let result = store.open();
    health.opened(store);
    match result {
        Ok(found) => {
            for note in &found.notes {
                tracing::warn!("{note}");
            }
            if let Some(error) = &found.no_ages {
                health.failed(Part::Ages, 1, error.clone());
            }
            Ok(found)
        }
        Err(Unusable::Held(held)) => Err(held),
        Err(Unusable::Io(error)) => {
            let error = if store.is_locked() {
                error
            } else {
                format!("{error}; a second crisweep on this node is not prevented either")
            };
            health.failed(Part::Journal, 1, error);
            Ok(Found::default())
        }
    }
}

/// Takes the lock if it is not held. If that fails for a reason other than another holder, passes go on
/// without lock and state, as after a start without a usable directory.
fn lock(store: &mut Store, health: &Arc<Health>) -> Option<Held> {
    let lost = store.release_if_lost();
    if lost {
        let error = "the state directory was emptied or replaced".to_owned();
        health.failed(Part::Journal, 1, error);
    }
    if store.is_locked() {
        return None;
    }
    let held = open(store, health).err()?;
    if store.uses_another_runtime(&held) {
        return None;
    }
    health.failed(Part::Journal, 1, held.to_string());
    Some(held)
}

fn write_ages(store: &mut Store, health: &Health) {
    let Some(ages) = health.take_ages() else {
        return;
    };
    if !store.has_ages() {
        // The reason is already logged.
        health.left_out(1);
        return;
    }
    match store.write_ages(&ages) {
        Ok(()) => health.worked(Part::Ages),
        Err(error) => health.failed(Part::Ages, 1, error.to_string()),
    }
}

fn write(store: &mut Store, entries: &[Entry], sync: Sync, health: &Arc<Health>) {
    let begins = matches!(entries.first(), Some(Entry::Begun { .. }));
    if !store.has_journal() && begins {
        // The last pass may have freed space.
        if let Err(held) = open(store, health) {
            health.failed(Part::Journal, 1, held.to_string());
        }
    }
    if !store.has_journal() {
        // The reason is already logged.
        health.left_out(entries.len());
        return;
    }
    let mut failed = 0;
    let mut last = None;
    for entry in entries {
        if let Err(error) = store.write(entry) {
            failed += 1;
            last = Some(error);
        }
    }
    let due = sync == Sync::Now && failed < entries.len();
    if let Err(error) = if due { store.sync() } else { Ok(()) } {
        failed += 1;
        last = Some(error);
    }
    match last {
        None => health.worked(Part::Journal),
        Some(error) => health.failed(Part::Journal, failed, error.to_string()),
    }
}
