//! What outlives the process, and the service's behaviour without usable state.

mod crash;
mod disk;
mod lock;
mod quarantine;

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

/// Counts the rows of a table, beside the service, as an operator would; 0 before there is a database.
pub(crate) fn rows(dir: &Path, table_and_condition: &str) -> i64 {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let Ok(sql) = Connection::open_with_flags(dir.join("crisweep.db"), flags) else {
        return 0;
    };
    let count = format!("SELECT count(*) FROM {table_and_condition}");
    sql.query_row(&count, [], |row| row.get(0)).unwrap_or(0)
}

/// What SQLite says of the whole database.
pub(crate) fn integrity(dir: &Path) -> String {
    let sql = Connection::open(dir.join("crisweep.db")).unwrap();
    let check = "PRAGMA integrity_check";
    sql.query_row(check, [], |row| row.get(0)).unwrap()
}

/// How often the test of kills kills; `CRISWEEP_KILLS` asks for more.
fn kills() -> usize {
    let kills = std::env::var("CRISWEEP_KILLS").ok();
    kills.and_then(|kills| kills.parse().ok()).unwrap_or(12)
}
