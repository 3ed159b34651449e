//! Since when a list has been over its limit: a run that starts in the outage must not count the outage from its start.

use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;

use super::database::Writing;
use crate::model::is_set;

/// Two beginnings that differ by less are one: each look computes it anew.
const SAME: SignedDuration = SignedDuration::from_secs(1);

/// What waits to be written: since when an outage lasts, or that none does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutageWrite(pub(super) Option<Timestamp>);

/// Writes it, unless it is there: most looks cost no flush.
pub(super) fn put(writing: &Writing<'_>, since: Option<Timestamp>) -> rusqlite::Result<()> {
    if let (Some(known), Some(since)) = (read(writing.sql)?, since)
        && since.duration_since(known).abs() < SAME
    {
        return Ok(());
    }
    writing.sql.execute("DELETE FROM outage", [])?;
    if let Some(since) = since {
        let row = [since.as_millisecond()];
        writing.sql.execute("INSERT INTO outage VALUES (?)", row)?;
    }
    Ok(())
}

/// Reads it; a time of a clock that was not set says nothing.
pub(super) fn read(sql: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let since = sql.query_row("SELECT min(since) FROM outage", [], |row| {
        row.get::<_, Option<i64>>(0)
    })?;
    let since = since.and_then(|millis| Timestamp::from_millisecond(millis).ok());
    Ok(since.filter(|since| is_set(*since)))
}
