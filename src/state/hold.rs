//! The hold of all nodes that was last read: it stays in force over a restart while the API server is away.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use super::database::Writing;
use crate::model::FleetHold;

pub(super) fn put(writing: &Writing<'_>, hold: Option<&FleetHold>) -> rusqlite::Result<()> {
    writing.sql.execute("DELETE FROM fleet_hold", [])?;
    if let Some(hold) = hold {
        let row = (&hold.place, &hold.reason, hold.read_at.as_millisecond());
        writing
            .sql
            .execute("INSERT INTO fleet_hold VALUES (?, ?, ?)", row)?;
    }
    Ok(())
}

pub(super) fn read(sql: &Connection) -> rusqlite::Result<Option<FleetHold>> {
    let hold = "SELECT place, reason, read_at FROM fleet_hold LIMIT 1";
    let read = sql.query_row(hold, [], |row| {
        let read_at = Timestamp::from_millisecond(row.get(2)?);
        Ok(FleetHold {
            place: row.get(0)?,
            reason: row.get(1)?,
            read_at: read_at.unwrap_or(Timestamp::UNIX_EPOCH),
        })
    });
    read.optional()
}
