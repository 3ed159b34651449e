//! The state directory: its lock and its database. Opened, closed and used by one thread; damage never prevents a
//! start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::Connection;

use super::ages::ImageAges;
use super::database::{Database, DatabaseLimits, Error, NAME, Sync, Writing, evidence_room};
use super::health::WriterHealth;
use super::lock::{Lock, Unusable};
use super::passes::{self, History};
use super::{files, hold, outage};
use crate::model::FleetHold;

/// The content found in the database.
#[derive(Debug, Default)]
pub struct Stored {
    /// The passes.
    pub history: History,
    /// When images were first seen and last used.
    pub ages: ImageAges,
    /// The hold of all nodes that was last read.
    pub hold: Option<FleetHold>,
    /// Since when a list was over its limit at the latest look.
    pub outage_since: Option<Timestamp>,
    /// Room that all evidence takes; `None`: there is no database, or it was open already.
    pub evidence_bytes: Option<u64>,
}

impl Stored {
    fn read(sql: &Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            history: passes::history(sql)?,
            ages: ImageAges::read(sql)?,
            hold: hold::read(sql)?,
            outage_since: outage::read(sql)?,
            evidence_bytes: Some(evidence_room(sql)?),
        })
    }
}

/// The state directory.
#[derive(Debug)]
pub(super) struct StateDir {
    dir: PathBuf,
    limits: DatabaseLimits,
    pub(super) health: Arc<WriterHealth>,
    lock: Option<Lock>,
    database: Option<Database>,
    /// Damage that a later call met: what the next opening sets aside.
    damage: Option<String>,
    /// Not all of the room is claimed.
    pub(super) claims: bool,
    /// The history of earlier runs is handed over: a later opening would find this run's own passes too.
    pub(super) gave_history: bool,
}

impl StateDir {
    /// Returns a store; touches no file yet.
    pub(super) fn new(dir: PathBuf, limits: DatabaseLimits, health: Arc<WriterHealth>) -> Self {
        Self {
            dir,
            limits,
            health,
            lock: None,
            database: None,
            damage: None,
            claims: true,
            gave_history: false,
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    pub(super) fn is_open(&self) -> bool {
        self.database.is_some()
    }

    /// Releases what is no longer in its place in the directory, and the database without its lock; says whether anything
    /// was lost. If that cannot be checked, the lock counts as held, because the old file is still locked.
    pub(super) fn release_lost(&mut self) -> bool {
        let lock = self.lock.take_if(|lock| !lock.is_in_place());
        let is_lost = |it: &mut Database| lock.is_some() || !it.is_in_place();
        let database = self.database.take_if(is_lost);
        lock.is_some() || database.is_some()
    }

    /// Opens everything that is not open yet. May be called again after a failure.
    pub(super) fn open(&mut self) -> Result<Stored, Unusable> {
        let opened = self.open_missing();
        self.health.noted(self.is_locked(), self.is_open());
        opened
    }

    fn open_missing(&mut self) -> Result<Stored, Unusable> {
        if self.lock.is_none() {
            self.lock = Some(Lock::take(&self.dir)?);
        }
        if self.database.is_some() {
            return Ok(Stored::default());
        }
        let opened = match self.damage.take() {
            None => self.open_database(),
            Some(why) => Err(Error::Damaged(why)),
        };
        match opened {
            Err(error) if error.is_damage() => self.begin_anew(&error),
            opened => opened,
        }
        .map_err(Unusable::Failed)
    }

    fn open_database(&mut self) -> Result<Stored, Error> {
        let database = Database::open(&self.dir, self.limits)?;
        let found = Stored::read(database.connection())?;
        self.begin_with(database);
        Ok(found)
    }

    fn begin_with(&mut self, database: Database) {
        self.database = Some(database);
        self.claims = true;
    }

    /// Sets a damaged file aside, and writes what of it could be read into a new one. If there is no space for both,
    /// the damaged one goes.
    fn begin_anew(&mut self, damage: &Error) -> Result<Stored, Error> {
        let path = self.dir.join(NAME);
        let found =
            Database::peek(&self.dir).map_or_else(|_| Stored::default(), |sql| salvage(&sql));
        let at = |source| Error::File {
            path: path.clone(),
            source,
        };
        files::set_aside(&path).map_err(at)?;
        let mut what = "it was set aside as crisweep.db.damaged, from which \
                        `sqlite3 crisweep.db.damaged .recover` may save removals and evidence";
        let is_later = matches!(damage, Error::Foreign(_));
        let opened = Database::open(&self.dir, self.limits).or_else(|error| {
            // A later version's file may be wanted again.
            if is_later || !error.is_no_room() {
                return Err(error);
            }
            what = "it was removed, because there was no space for a second file";
            files::remove_both(&path).map_err(at)?;
            Database::open(&self.dir, self.limits)
        });
        let mut database = opened?;
        database.write(Sync::Now, |writing| carry(writing, &found))?;
        self.begin_with(database);
        tracing::warn!(
            "the database cannot be used ({damage}) and starts anew with {} passes; {what}",
            found.history.ended.len() + found.history.interrupted.len()
        );
        Ok(found)
    }

    pub(super) fn write<T>(
        &mut self,
        sync: Sync,
        write: impl FnOnce(&Writing<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.change(|database| database.write(sync, write))
    }

    /// Changes the database; closes it if that shows that it is damaged.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Database) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let changed = self.database.as_mut().ok_or(Error::Closed).and_then(change);
        if let Err(error) = &changed
            && error.is_damage()
        {
            self.distrust(error.to_string());
        }
        changed
    }

    /// Has the room claimed anew that evidence or snapshots took from the records.
    pub(super) fn claim_what_was_taken(&mut self) {
        if let Some(database) = &mut self.database {
            // The claim meets the same error, and deals with it.
            self.claims |= database.is_short().unwrap_or(true);
        }
    }

    pub(super) fn read<T>(
        &mut self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let database = self.database.as_ref().ok_or(Error::Closed)?;
        read(database.connection()).map_err(|cause| {
            let why = cause.to_string();
            let error = Error::from(cause);
            tracing::warn!(%error, "the state cannot be read");
            if error.is_malformed() {
                self.distrust(error.to_string());
            }
            Error::Unreadable(why)
        })
    }

    /// Closes a database that turns out to be damaged; the next opening sets it aside.
    fn distrust(&mut self, why: String) {
        self.damage = Some(why);
        self.database = None;
        self.health.noted(self.is_locked(), false);
    }
}

/// What can be read of a damaged database.
fn salvage(sql: &Connection) -> Stored {
    Stored {
        history: passes::history(sql).unwrap_or_else(|_| History {
            failures: passes::failures(sql).unwrap_or_default(),
            ..History::default()
        }),
        ages: ImageAges::read(sql).unwrap_or_default(),
        hold: hold::read(sql).unwrap_or_default(),
        outage_since: outage::read(sql).unwrap_or_default(),
        // It stays in the damaged file.
        evidence_bytes: Some(0),
    }
}

fn carry(writing: &Writing<'_>, found: &Stored) -> rusqlite::Result<()> {
    // An unfinished pass ended with the process before.
    let before = Writing {
        process: writing.process - 1,
        ..*writing
    };
    let History {
        ended, interrupted, ..
    } = &found.history;
    for pass in ended.iter().chain(interrupted) {
        passes::put(&before, pass)?;
    }
    for failure in &found.history.failures {
        passes::put_failure(&before, failure)?;
    }
    hold::put(writing, found.hold.as_ref())?;
    outage::put(writing, found.outage_since)?;
    found.ages.write(writing.sql)
}

/// Reads all that a start would find, beside a service that may be writing; nothing if there is no database.
///
/// # Errors
/// If it cannot be read.
pub fn read_stored(dir: &Path) -> Result<Stored, Error> {
    match Database::read_beside(dir, Stored::read) {
        Err(error) if error.is_missing() => Ok(Stored::default()),
        read => read,
    }
}
