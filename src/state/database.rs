//! The SQLite file: opened, bounded, its space claimed, its version raised; set aside if it is damaged. Used by one
//! thread. Does not know what passes write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::files::{self, FileIdentity};
use crate::system::file::is_btrfs;

mod room;

/// The file's name.
pub(super) const NAME: &str = "crisweep.db";
/// `CRSW`: says that a database is crisweep's.
const APPLICATION_ID: i64 = 0x4352_5357;
/// One script for each version; a database gets those that it lacks.
const SCHEMA: [&str; 4] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
];
const PAGE_BYTES: u64 = 4096;
/// Memory for pages, in KiB.
const CACHE_KIB: i64 = 256;
/// Pages in the write-ahead log after which they are moved to the database.
const CHECKPOINT_PAGES: u64 = 256;
/// Size up to which the write-ahead log may grow while another process reads the database.
const LOG_MAX_BYTES: u64 = 16 << 20;
/// How long a write waits for another process that writes.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// Compiled statements that are kept: more than a pass uses.
const STATEMENTS: usize = 32;
/// Room beside the journal: image ages, quarantine, tables and indexes. The largest of them were measured with
/// 1.3 MiB.
const FIXED_BYTES: u64 = 2 << 20;
/// Room for snapshot files; taken as they come.
pub(super) const SNAPSHOTS_BYTES: u64 = 8 << 20;
/// Free room on the disk below which evidence and snapshots take no more of it.
pub(super) const DISK_RESERVE_BYTES: u64 = 64 << 20;
/// Free room below which old rows make way before a write.
const RESERVE_BYTES: u64 = 512 << 10;

/// How much room the database may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseLimits {
    /// Passes and removals: claimed in full, soon after the start.
    pub journal_bytes: u64,
    /// Evidence of removed containers.
    pub evidence_bytes: u64,
}

impl DatabaseLimits {
    /// Most removals in the database: a row takes some 400 bytes.
    pub(super) fn removals_max(self) -> u64 {
        (self.journal_bytes / 4 * 3 / 400).max(1000)
    }

    /// Most passes in the database: a row takes some 2 KiB.
    pub(super) fn passes_max(self) -> u64 {
        (self.journal_bytes / 4 / 2048).max(100)
    }

    fn claimed_bytes(self) -> u64 {
        self.journal_bytes + FIXED_BYTES
    }

    fn max_bytes(self) -> u64 {
        // Pages are not filled to their ends.
        self.claimed_bytes() + RESERVE_BYTES + (SNAPSHOTS_BYTES + self.evidence_bytes) / 8 * 9
    }
}

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or the directory.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
    /// The database. Its text says the cause too.
    #[error("{NAME}: {}", words(.0))]
    Sqlite(rusqlite::Error),
    /// It is not crisweep's, or a later version's.
    #[error("{NAME} {0}")]
    Foreign(String),
    /// An earlier call met damage.
    #[error("{0}")]
    Damaged(String),
    /// Another process reads one state for so long that no space of the write-ahead log can be used again.
    #[error("{NAME}-wal has {0} bytes: another process keeps reading an old state of {NAME}")]
    LogTooLong(u64),
    /// There is no database.
    #[error("the database is not open; /api/v1/status says why (state)")]
    Closed,
    /// A question that the database could not answer.
    #[error("{NAME} cannot be read: {0}")]
    Unreadable(String),
    /// Evidence would take the last room of the disk, or more than all evidence may.
    #[error("there is no room for it")]
    NoRoom,
    /// No answer in time.
    #[error("the disk of {NAME} is too slow")]
    TooSlow,
}

/// SQLite names only `ENOSPC`; other failed writes, such as `EDQUOT`, look alike.
fn words(error: &rusqlite::Error) -> String {
    let failed_write = rusqlite::ffi::SQLITE_IOERR_WRITE;
    match error.sqlite_error() {
        Some(cause) if cause.extended_code == failed_write => {
            format!("{error}: a write failed, or a quota is used up")
        }
        Some(_) | None => error.to_string(),
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Error {
    /// Says whether there is no such file or directory.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(super) fn is_no_room(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        let is_full = matches!(self, Self::File { source, .. } if full.contains(&source.kind()));
        is_full || self.code() == Some(ErrorCode::DiskFull)
    }

    /// Says whether a read met a malformed page.
    pub(super) fn is_malformed(&self) -> bool {
        let codes = [ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase];
        self.code().is_some_and(|code| codes.contains(&code))
    }

    fn code(&self) -> Option<ErrorCode> {
        let Self::Sqlite(error) = self else {
            return None;
        };
        error.sqlite_error_code()
    }

    /// Says whether an opening or a write showed that only another file can help.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
                // The last one: a table or a column is missing.
                self.is_malformed() || error.extended_code == rusqlite::ffi::SQLITE_ERROR
            }
            // The content is not of the type that was written, or not ours.
            Self::Sqlite(_) | Self::Foreign(_) | Self::Damaged(_) => true,
            // A directory or a link in its place.
            Self::File { source, .. } => source.kind() == io::ErrorKind::Other,
            Self::LogTooLong(_)
            | Self::Closed
            | Self::Unreadable(_)
            | Self::NoRoom
            | Self::TooSlow => false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
    file: FileIdentity,
    limits: DatabaseLimits,
    /// Number of this process in the table of processes.
    process: i64,
    /// Claimed beyond what is wanted now, once evidence or snapshots have taken room.
    ahead_bytes: u64,
    /// Until then nothing is written: another process kept the log from being used again.
    refused_until: Option<Instant>,
}

/// Whether a write waits until it is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// Survives a crash of the node.
    Now,
    /// Survives a crash of the process; the next `Now` writes it to disk.
    Later,
}

/// What a write may use.
#[derive(Clone, Copy)]
pub(super) struct Writing<'a> {
    pub(super) sql: &'a Transaction<'a>,
    /// Number of this process in the table of processes.
    pub(super) process: i64,
    pub(super) limits: DatabaseLimits,
}

impl Database {
    /// Opens the file in `dir`, or makes it. Claims no room.
    pub(super) fn open(dir: &Path, limits: DatabaseLimits) -> Result<Self, Error> {
        let path = place(dir)?;
        let file = make(&path)?;
        let log = if is_btrfs(dir) { ROLLBACK } else { WRITE_AHEAD };
        let connection = match connect(&path, log) {
            Err(error) if !error.is_damage() => {
                // Memory that processes share is a file too: on a full disk only this one can use the database.
                connect(&path, ALONE).map_err(|_no_better| error)?
            }
            connected => connected?,
        };
        let mut database = Self {
            connection,
            path,
            file,
            limits,
            process: 0,
            ahead_bytes: 0,
            refused_until: None,
        };
        database.migrate()?;
        let pages = limits.max_bytes() / PAGE_BYTES;
        database.pragma("max_page_count", pages)?;
        // A process before may have ended while it claimed room.
        database.drop_claim()?;
        database.process = database.write(Sync::Now, enter)?;
        Ok(database)
    }

    /// Reads the database of a directory without its lock, beside a process that writes. Changes nothing.
    pub(super) fn peek(dir: &Path) -> Result<Connection, Error> {
        let path = place(dir)?;
        files::check(&path).map_err(at(&path))?;
        let connection =
            Connection::open_with_flags(&path, flags(OpenFlags::SQLITE_OPEN_READ_ONLY))?;
        connection.busy_timeout(BUSY_PATIENCE)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(connection)
    }

    /// Reads beside a process that writes, or without one; changes nothing.
    pub(super) fn read_beside<T>(
        dir: &Path,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let sql = Self::peek(dir)?;
        read(&sql).map_err(|error| match version(&sql) {
            Ok(done) if done != SCHEMA.len() => other_version(done),
            Err(foreign @ Error::Foreign(_)) => foreign,
            Ok(_) | Err(_) => error.into(),
        })
    }

    /// Says whether the path still leads to the open file.
    pub(super) fn is_in_place(&self) -> bool {
        self.file.is_at(&self.path)
    }

    /// Removes a database that was set aside if nothing was written to it since `then`, in milliseconds.
    pub(super) fn remove_aside(&self, then: i64) -> Result<(), Error> {
        files::remove_aside(&self.path, then.div_euclid(1000)).map_err(at(&self.path))
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Writes in one transaction; makes room for it before.
    pub(super) fn write<T>(
        &mut self,
        sync: Sync,
        write: impl FnOnce(&Writing<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        if self.log_bytes() > LOG_MAX_BYTES {
            self.shorten_log()?;
        }
        let free = self.free_bytes()?;
        self.pragma("synchronous", if sync == Sync::Now { 2 } else { 1 })?;
        let (process, limits) = (self.process, self.limits);
        let sql = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        if free < RESERVE_BYTES {
            make_room(&sql)?;
        }
        let value = write(&Writing {
            sql: &sql,
            process,
            limits,
        })?;
        sql.commit()?;
        Ok(value)
    }

    fn migrate(&mut self) -> Result<(), Error> {
        let done = version(&self.connection)?;
        let missing = SCHEMA.get(done..).ok_or_else(|| other_version(done))?;
        if missing.is_empty() {
            return Ok(());
        }
        let sql = self.connection.transaction()?;
        for script in missing {
            sql.execute_batch(script)?;
        }
        sql.pragma_update(None, "application_id", APPLICATION_ID)?;
        sql.pragma_update(None, "user_version", SCHEMA.len())?;
        Ok(sql.commit()?)
    }

    fn count(&self, pragma: &str) -> Result<u64, Error> {
        let mut count = self
            .connection
            .prepare_cached(&format!("PRAGMA {pragma}"))?;
        Ok(count.query_row([], |row| row.get(0))?)
    }

    fn pragma(&self, name: &str, value: u64) -> Result<(), Error> {
        // Some answer with their new value, and some do not.
        let set = format!("PRAGMA {name} = {value}");
        Ok(self.connection.execute_batch(&set)?)
    }
}

/// Returns the version of a database of crisweep's.
fn version(sql: &Connection) -> Result<usize, Error> {
    let number = |question| sql.query_row(question, [], |row| row.get::<_, i64>(0));
    let version = number("PRAGMA user_version")?;
    let is_ours = if version == 0 {
        number("SELECT count(*) FROM sqlite_schema")? == 0
    } else {
        number("PRAGMA application_id")? == APPLICATION_ID
    };
    if !is_ours {
        return Err(Error::Foreign("was not made by crisweep".to_owned()));
    }
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

fn other_version(version: usize) -> Error {
    if version == 0 {
        return Error::Foreign("is empty".to_owned());
    }
    let known = SCHEMA.len();
    Error::Foreign(format!(
        "is of version {version}; this crisweep knows {known}"
    ))
}

fn flags(access: OpenFlags) -> OpenFlags {
    access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW
}

/// Returns where the database of a directory is. The directory may be behind links, which SQLite would refuse.
fn place(dir: &Path) -> Result<PathBuf, Error> {
    let dir = fs::canonicalize(dir).map_err(at(dir))?;
    Ok(dir.join(NAME))
}

/// A write-ahead log, with an index in memory that processes share.
pub(super) const WRITE_AHEAD: &str = "PRAGMA locking_mode = NORMAL; PRAGMA journal_mode = WAL;";
/// A write-ahead log of this process alone.
const ALONE: &str = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;";
/// For btrfs. Each write to shared memory would need free space there, and on a full disk end this process (SIGBUS), so a
/// database that has a write-ahead log gives it up while no other process has it open.
pub(super) const ROLLBACK: &str = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = TRUNCATE; PRAGMA locking_mode = NORMAL;";

/// `log` is one of the constants above.
pub(super) fn connect(path: &Path, log: &str) -> Result<Connection, Error> {
    let connection = Connection::open_with_flags(path, flags(OpenFlags::SQLITE_OPEN_READ_WRITE))?;
    connection.busy_timeout(BUSY_PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // The log keeps its space for the next process.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.execute_batch(&format!(
        "{log} PRAGMA cache_size = -{CACHE_KIB}; PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; PRAGMA user_version;"
    ))?;
    Ok(connection)
}

/// Makes an empty file for its owner alone, if there is none.
fn make(path: &Path) -> Result<FileIdentity, Error> {
    // SQLite opens it next. It must be closed by then: closing it later would end SQLite's locks.
    match files::check(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            for log in files::LOGS {
                drop(fs::remove_file(files::beside(path, log)));
            }
            files::create(path).map_err(at(path))?;
        }
        checked => checked.map_err(at(path))?,
    }
    let there = fs::symlink_metadata(path).map_err(at(path))?;
    Ok(FileIdentity::of(&there))
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::File {
        path: path.to_owned(),
        source,
    }
}

/// Returns the room that all evidence takes.
pub(super) fn evidence_room(sql: &Connection) -> rusqlite::Result<u64> {
    let mut room = sql.prepare_cached("SELECT bytes FROM evidence_room")?;
    let bytes: i64 = room.query_row([], |row| row.get(0))?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Notes this process, and forgets old ones; returns its number.
fn enter(writing: &Writing<'_>) -> rusqlite::Result<i64> {
    let sql = writing.sql;
    sql.execute(
        "INSERT INTO processes (pid, version, opened_at) \
         VALUES (?, ?, CAST(unixepoch('subsec') * 1000 AS INTEGER))",
        (std::process::id(), env!("CARGO_PKG_VERSION")),
    )?;
    let process = sql.last_insert_rowid();
    sql.execute("DELETE FROM processes WHERE number <= ? - 100", [process])?;
    Ok(process)
}

/// Removes a tenth of the removals and passes, the oldest ones.
pub(super) fn make_room(sql: &Transaction<'_>) -> rusqlite::Result<()> {
    for table in ["removals", "passes"] {
        sql.execute(
            &format!(
                "DELETE FROM {table} WHERE number IN (SELECT number FROM {table} ORDER BY number \
                 LIMIT max(1, (SELECT count(*) FROM {table}) / 10))"
            ),
            [],
        )?;
    }
    Ok(())
}
