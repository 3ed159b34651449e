//! The node as it was before the last passes that removed something.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::database::{DISK_RESERVE_BYTES, Database, Error, SNAPSHOTS_BYTES, Sync};
use super::filter::Question;
use super::journal::Journal;

impl Journal {
    /// Keeps a snapshot file of the node before a pass, which `file` makes on the thread that writes: `None`, if it
    /// cannot be made. The oldest make way, so that at most `at_most` stay. A file of more than a half of all room is
    /// left out. While the disk owes an answer none is kept: each holds a whole look until it is written.
    pub fn keep_snapshot(
        &self,
        pass_id: &str,
        taken_at: Timestamp,
        at_most: u32,
        file: impl FnOnce() -> Option<Vec<u8>> + Send + 'static,
    ) {
        if self.owes() {
            return;
        }
        let pass_id = pass_id.to_owned();
        self.send(1, move |writer| {
            if !writer.is_open() {
                return;
            }
            // Before the transaction, which keeps other processes from writing.
            let Some(file) = file().filter(|file| file.len() as u64 <= SNAPSHOTS_BYTES / 2) else {
                return;
            };
            let kept = writer.change(|database| {
                keep(database, &pass_id, taken_at, at_most, &file)
            });
            if let Err(error) = kept {
                tracing::warn!(pass.id = pass_id, %error, "the node before the pass could not be kept");
            }
        });
    }
}

/// What the snapshot file of the node before the pass with this id is, if there is one.
#[derive(Clone, Debug)]
pub struct SnapshotBefore(pub String);

impl Question for SnapshotBefore {
    type Answer = Option<Vec<u8>>;

    fn answer(&self, sql: &Connection) -> rusqlite::Result<Option<Vec<u8>>> {
        let file = "SELECT file FROM snapshots WHERE pass_id = ?";
        sql.query_row(file, [&self.0], |row| row.get(0)).optional()
    }
}

fn keep(
    database: &mut Database,
    pass_id: &str,
    taken_at: Timestamp,
    at_most: u32,
    file: &[u8],
) -> Result<(), Error> {
    if database.disk_free() < DISK_RESERVE_BYTES {
        return Err(Error::NoRoom);
    }
    database.write(Sync::Later, |writing| {
        let sql = writing.sql;
        // First, so that the new one finds their room.
        let others = i64::from(at_most) - 1;
        let count = "DELETE FROM snapshots WHERE number NOT IN \
            (SELECT number FROM snapshots ORDER BY number DESC LIMIT ?)";
        sql.execute(count, [others.max(0)])?;
        let size = "DELETE FROM snapshots WHERE number IN (SELECT number FROM \
            (SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS total FROM snapshots) WHERE total + ? > ?)";
        sql.execute(size, [file.len() as u64, SNAPSHOTS_BYTES])?;
        let put =
            "INSERT OR REPLACE INTO snapshots (pass_id, taken_at, bytes, file) VALUES (?, ?, ?, ?)";
        let values = (pass_id, taken_at.as_millisecond(), file.len(), file);
        sql.execute(put, values).map(drop)
    })
}
