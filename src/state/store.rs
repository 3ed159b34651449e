//! The content of the state directory, opened and written by one thread. Replaces files that are damaged or
//! have another version or size; they never prevent a start.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::ages::Ages;
use super::entry::Entry;
use super::files;
use super::history::{self, History};
use super::lock::{Held, Lock, NoLock};
use super::ring::{self, Ring};
use super::slots::Slots;
use crate::model::PastFailure;

/// The journal's name, and its temporary name.
const NAME: &str = "journal";
const NEW_NAME: &str = "journal.new";

/// The content found in the directory.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) history: History,
    pub(super) ages: Ages,
    /// Notes for the operator.
    pub(super) notes: Vec<String>,
    /// Why image ages cannot be written.
    pub(super) no_ages: Option<String>,
}

/// Why nothing is stored.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Another crisweep holds the lock.
    Held(Held),
    /// What failed, and how.
    Io(String),
}

/// The state directory.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    journal_bytes: u64,
    /// The runtime's socket, shown to the next process that finds the lock held.
    runtime: String,
    lock: Option<Lock>,
    ring: Option<Ring>,
    slots: Option<Slots>,
}

impl Store {
    /// Returns a store; touches no file yet.
    pub(super) fn new(dir: PathBuf, journal_bytes: u64, runtime: String) -> Self {
        Self {
            dir,
            journal_bytes,
            runtime,
            lock: None,
            ring: None,
            slots: None,
        }
    }

    /// Says whether the lock is held.
    pub(super) fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    /// Says whether the journal can be written.
    pub(super) fn has_journal(&self) -> bool {
        self.ring.is_some()
    }

    /// Says whether image ages can be written.
    pub(super) fn has_ages(&self) -> bool {
        self.slots.is_some()
    }

    /// Releases everything if the lock file in the directory is not ours any more; says whether it did. If
    /// that cannot be checked, the lock counts as held, because the old file is still locked.
    pub(super) fn release_if_lost(&mut self) -> bool {
        let in_place = |lock: &Lock| lock.is_in_place().unwrap_or(true);
        let lost = self.lock.as_ref().is_some_and(|lock| !in_place(lock));
        if lost {
            (self.lock, self.ring, self.slots) = (None, None, None);
        }
        lost
    }

    /// Says whether the holder of the lock works on another runtime.
    pub(super) fn uses_another_runtime(&self, held: &Held) -> bool {
        held.holder.uses_another_runtime(&self.runtime)
    }

    /// Opens everything that is not open yet. May be called again after a failure.
    pub(super) fn open(&mut self) -> Result<Found, Unusable> {
        let at = |what: &str, path: &Path, error: io::Error| {
            Unusable::Io(format!("{what} {}: {error}", path.display()))
        };
        let mut found = Found::default();
        if self.lock.is_none() {
            files::make_dir(&self.dir).map_err(|error| at("cannot make", &self.dir, error))?;
            self.lock = Some(match Lock::take(&self.dir, &self.runtime) {
                Ok(lock) => lock,
                Err(NoLock::Held(held)) => return Err(Unusable::Held(held)),
                Err(NoLock::Io(error)) => return Err(at("cannot lock", &self.dir, error)),
            });
        }
        if self.slots.is_none() {
            match Slots::open(&self.dir) {
                Ok((slots, ages, note)) => {
                    (self.slots, found.ages) = (Some(slots), ages);
                    let note = note.map(|why| {
                        format!("the image ages could not be read and start anew: {why}")
                    });
                    found.notes.extend(note);
                }
                Err(error) => found.no_ages = Some(error.to_string()),
            }
        }
        if self.ring.is_none() {
            let path = self.dir.join(NAME);
            let (mut ring, history, note) = recover(&self.dir, self.journal_bytes)
                .map_err(|error| at("cannot write", &path, error))?;
            found.notes.extend(note);
            found.history = history;
            mark(&mut ring).map_err(|error| at("cannot write", &path, error))?;
            self.ring = Some(ring);
        }
        Ok(found)
    }

    /// Writes an entry, which may stay in memory until the next [`Self::sync`].
    pub(super) fn write(&mut self, entry: &Entry) -> io::Result<()> {
        append(self.ring()?, entry)
    }

    /// Waits until all entries are on the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.ring()?.sync()
    }

    /// Writes encoded image ages.
    pub(super) fn write_ages(&mut self, ages: &[u8]) -> io::Result<()> {
        let closed = || io::Error::other("the file of image ages is not open");
        self.slots.as_mut().ok_or_else(closed)?.write(ages)
    }

    fn ring(&mut self) -> io::Result<&mut Ring> {
        let closed = || io::Error::other("the journal is not open");
        self.ring.as_mut().ok_or_else(closed)
    }
}

fn append(ring: &mut Ring, entry: &Entry) -> io::Result<()> {
    let bytes = entry.encode();
    ring.append(&bytes.ok_or_else(|| io::Error::other("an entry is too long"))?)
}

/// Notes that a new process starts: earlier unfinished passes will never end.
fn mark(ring: &mut Ring) -> io::Result<()> {
    append(ring, &opened())?;
    ring.sync()
}

fn opened() -> Entry {
    Entry::Opened {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

type Recovered = (Ring, History, Option<String>);

/// Opens the journal, or replaces it with a new one.
fn recover(dir: &Path, bytes: u64) -> io::Result<Recovered> {
    let read = match files::open(&dir.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let ring = renew(dir, bytes, &History::default(), false)?;
            return Ok((ring, History::default(), None));
        }
        opened => opened.and_then(Ring::read),
    };
    let found = match read {
        Ok(Ok(found)) => found,
        Ok(Err(why)) => return begin_anew(dir, bytes, History::default(), why),
        Err(error) => return begin_anew(dir, bytes, History::default(), &error.to_string()),
    };
    let history = history::read(&found.records);
    if let Some(damage) = found.damage {
        return begin_anew(dir, bytes, history, damage);
    }
    if found.ring.size() == ring::size(bytes) {
        return Ok((found.ring, history, None));
    }
    let (ring, note) = match renew(dir, bytes, &history, false) {
        Ok(ring) => (
            ring,
            "the journal was moved to a file of the configured size".to_owned(),
        ),
        Err(error) => {
            let note = format!(
                "the journal keeps its size of {} bytes; no other could be made: {error}",
                found.ring.size()
            );
            (found.ring, note)
        }
    };
    Ok((ring, history, Some(note)))
}

/// Sets a damaged file aside; overwrites it if there is no space for another one.
fn begin_anew(dir: &Path, bytes: u64, history: History, why: &str) -> io::Result<Recovered> {
    let (ring, what) = match renew(dir, bytes, &history, true) {
        Ok(ring) => (ring, "it was set aside"),
        Err(error) => {
            let over = |file: File| Ring::wipe(file).and_then(|ring| carry(ring, &history));
            let ring = files::open(&dir.join(NAME)).and_then(over);
            (
                ring.map_err(|_worse| error)?,
                "it was overwritten, because there was no space for a second file",
            )
        }
    };
    let note = format!(
        "the journal was damaged ({why}) and starts anew with {} passes; {what}",
        history.ended.len() + history.interrupted.len()
    );
    Ok((ring, history, Some(note)))
}

fn renew(dir: &Path, bytes: u64, history: &History, set_aside: bool) -> io::Result<Ring> {
    let ring = Ring::create(&dir.join(NEW_NAME), bytes)?;
    let ring = carry(ring, history)?;
    files::replace(dir, NEW_NAME, NAME, set_aside)?;
    Ok(ring)
}

/// Reads which sandboxes failed, for a command that only shows them: without the lock, beside a service that
/// writes, and without writing. Skips a record that is being written.
///
/// # Errors
/// If there is no journal, or it cannot be read.
pub fn past_failures(dir: &Path) -> io::Result<Vec<PastFailure>> {
    let found = files::open(&dir.join(NAME)).and_then(Ring::read)?;
    let found = found.map_err(io::Error::other)?;
    Ok(history::read(&found.records).failures)
}

/// Writes the known history into a new ring.
fn carry(mut ring: Ring, history: &History) -> io::Result<Ring> {
    for failure in &history.failures {
        append(&mut ring, &Entry::failed_before(failure))?;
    }
    for pass in &history.ended {
        let pass = Box::new(pass.clone());
        append(&mut ring, &Entry::Ended { pass })?;
    }
    for pass in &history.interrupted {
        let pass = Box::new(pass.clone());
        append(&mut ring, &Entry::Progress { pass })?;
        // Without a start record the passes would seem to run on.
        append(&mut ring, &opened())?;
    }
    ring.sync()?;
    Ok(ring)
}
