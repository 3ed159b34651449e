//! The room of the database on the disk: claimed beforehand, measured, given back.

use std::fs;
use std::time::{Duration, Instant};

use super::{Database, Error, LOG_MAX_BYTES, PAGE_BYTES, evidence_room};
use crate::state::files;

/// Space claimed at a time.
const CLAIM_BYTES: u64 = 1 << 20;
/// Space claimed beyond what evidence and snapshots have taken.
const CLAIM_AHEAD_BYTES: u64 = 4 << 20;
/// How long writes are refused after the log was found too long: each try waits for the process that reads.
const REFUSED_FOR: Duration = Duration::from_secs(5);

impl Database {
    /// Claims a part of the space of the journal and of the write-ahead log, so that both can be written on a full disk:
    /// pages that were written once and are free again. Says whether all is claimed. On a disk that is full already the
    /// database takes what it needs as it goes.
    pub(in crate::state) fn claim_some(&mut self) -> Result<bool, Error> {
        match self.claim_pages() {
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "the room for the state cannot be claimed: on a full disk records may be lost");
            }
        }
        self.drop_claim()?;
        Ok(true)
    }

    /// Frees the pages that are claimed so far.
    pub(super) fn drop_claim(&self) -> Result<(), Error> {
        let sql = "DROP TABLE IF EXISTS claim";
        Ok(self.connection.execute_batch(sql)?)
    }

    /// Says whether evidence or snapshots took some of the journal's space, so that it must be claimed anew: between
    /// passes and in large amounts, because each part waits for the disk.
    pub(in crate::state) fn is_short(&mut self) -> Result<bool, Error> {
        let is_short = self.size()? < self.wanted_bytes()?;
        if is_short {
            self.ahead_bytes = CLAIM_AHEAD_BYTES;
        }
        Ok(is_short)
    }

    fn wanted_bytes(&self) -> Result<u64, Error> {
        let snapshots = "SELECT coalesce(sum(bytes), 0) FROM snapshots";
        let snapshots: i64 = self.connection.query_row(snapshots, [], |row| row.get(0))?;
        let snapshots = u64::try_from(snapshots).unwrap_or(0) / 8 * 9;
        Ok(self.limits.claimed_bytes() + evidence_room(&self.connection)? + snapshots)
    }

    /// Returns what is free on the disk; all, if that cannot be told.
    pub(in crate::state) fn disk_free(&self) -> u64 {
        let free = rustix::fs::statvfs(&self.path);
        free.map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize))
    }

    fn claim_pages(&mut self) -> Result<bool, Error> {
        let wanted = self.wanted_bytes()? + self.ahead_bytes;
        let missing = wanted
            .min(self.limits.max_bytes())
            .saturating_sub(self.size()?);
        if missing > 0 {
            self.write_zeros(missing.min(CLAIM_BYTES))?;
            return Ok(false);
        }
        if self.log_bytes() < CLAIM_BYTES {
            // Free pages of the database are written to the log first.
            self.drop_claim()?;
            self.write_zeros(CLAIM_BYTES)?;
        }
        self.checkpoint("PASSIVE")?;
        Ok(true)
    }

    /// Moves the log's pages to the database, as far as other processes allow.
    fn checkpoint(&self, how: &str) -> Result<(), Error> {
        let sql = format!("PRAGMA wal_checkpoint({how})");
        Ok(self.connection.query_row(&sql, [], |_| Ok(()))?)
    }

    fn write_zeros(&mut self, bytes: u64) -> Result<(), Error> {
        let sql = self.connection.transaction()?;
        sql.execute_batch("CREATE TABLE IF NOT EXISTS claim (zeros BLOB)")?;
        sql.execute("INSERT INTO claim VALUES (zeroblob(?))", [bytes])?;
        Ok(sql.commit()?)
    }

    /// Gives back a log that grew while another process read, if that has ended.
    pub(super) fn shorten_log(&mut self) -> Result<(), Error> {
        let log = self.log_bytes();
        if self
            .refused_until
            .is_some_and(|until| Instant::now() < until)
        {
            return Err(Error::LogTooLong(log));
        }
        self.checkpoint("TRUNCATE")?;
        if self.log_bytes() > LOG_MAX_BYTES {
            self.refused_until = Some(Instant::now() + REFUSED_FOR);
            return Err(Error::LogTooLong(log));
        }
        self.refused_until = None;
        while !self.claim_some()? {}
        Ok(())
    }

    /// Size of the database in bytes, free pages included.
    pub(super) fn size(&self) -> Result<u64, Error> {
        Ok(self.count("page_count")? * PAGE_BYTES)
    }

    /// Bytes that rows may still take.
    pub(super) fn free_bytes(&self) -> Result<u64, Error> {
        let unclaimed = self.limits.max_bytes().saturating_sub(self.size()?);
        Ok(unclaimed + self.count("freelist_count")? * PAGE_BYTES)
    }

    pub(super) fn log_bytes(&self) -> u64 {
        let path = files::beside(&self.path, "-wal");
        fs::symlink_metadata(path).map_or(0, |log| log.len())
    }
}
