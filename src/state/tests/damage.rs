//! Files that are damaged, cut off, foreign, or of another version.

use proptest::prelude::*;
use rusqlite::Connection;

use super::*;
use crate::state::database::Error as DatabaseError;

fn log(dir: &Path) -> PathBuf {
    dir.join("crisweep.db-wal")
}

fn aside(dir: &Path) -> PathBuf {
    dir.join("crisweep.db.damaged")
}

/// Moves everything from the log to the database.
fn checkpoint(dir: &Path) {
    let sql = Connection::open(file(dir)).unwrap();
    let done = "PRAGMA wal_checkpoint(TRUNCATE)";
    sql.query_row(done, [], |_| Ok(())).unwrap();
}

/// A directory that a process has used for a while.
fn worn(dir: &Path) {
    let entries = (0..60).flat_map(|number| [at(pass(number)), at(ended(number))]);
    let mut entries: Vec<Entry> = entries.collect();
    entries.extend((0..300).map(Intended));
    live(dir, &entries);
}

/// The process starts, keeps what it writes, and reports only passes that were written.
fn goes_on(dir: &Path) -> History {
    let (mut store, found) = live_with(dir, SMALL, &[]);
    // Damage that only a write meets is mended before the next pass.
    for _ in 0..2 {
        let written = store.write(Sync::Now, |it| put(it, at(ended(1000))));
        if !store.is_open() {
            written.unwrap_err();
            store.open().unwrap();
        }
    }
    drop(store);
    assert!(history(dir).ended.contains(&ended(1000)));
    found.history
}

#[test]
fn an_error_of_the_database_says_its_cause_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(file(dir.path()), vec![0xF5; 4096]).unwrap();
    let ask = || crate::state::read_stored(dir.path());
    let error = ask().unwrap_err();
    assert_eq!(error.to_string(), "crisweep.db: file is not a database");
    assert!(std::error::Error::source(&error).is_none());
    fs::write(file(dir.path()), "").unwrap();
    assert_eq!(ask().unwrap_err().to_string(), "crisweep.db is empty");
}

#[test]
fn a_question_that_another_versions_database_cannot_answer_names_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    worn(dir.path());
    let sql = Connection::open(file(dir.path())).unwrap();
    let ask = || crate::state::read_stored(dir.path());
    for version in [3, 99] {
        sql.pragma_update(None, "user_version", version).unwrap();
        // What a command understands it may show.
        ask().unwrap();
    }
    sql.execute_batch("ALTER TABLE quarantine RENAME TO failures")
        .unwrap();
    for version in [3, 99] {
        sql.pragma_update(None, "user_version", version).unwrap();
        let known = "this crisweep knows 4";
        let words = format!("crisweep.db is of version {version}; {known}");
        assert_eq!(ask().unwrap_err().to_string(), words);
    }
    sql.pragma_update(None, "application_id", 1).unwrap();
    let words = "crisweep.db was not made by crisweep";
    assert_eq!(ask().unwrap_err().to_string(), words);
}

/// SQLite has a code for `ENOSPC` and none for `EDQUOT`.
#[test]
fn a_failed_write_may_be_a_quota() {
    let failed = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_WRITE);
    let error = DatabaseError::from(rusqlite::Error::SqliteFailure(
        failed,
        Some("disk I/O error".to_owned()),
    ));
    let words = "crisweep.db: disk I/O error: a write failed, or a quota is used up";
    assert_eq!(error.to_string(), words);
}

#[test]
fn a_file_that_is_no_database_is_set_aside() {
    for bytes in [b"hello".to_vec(), vec![0; 65536], vec![0xF5; 65536]] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(file(dir.path()), &bytes).unwrap();
        goes_on(dir.path());
        assert_eq!(fs::read(aside(dir.path())).unwrap(), bytes);
    }
}

#[test]
fn a_database_of_another_program_or_a_later_version_is_set_aside() {
    let foreign = |script: &str| {
        let dir = tempfile::tempdir().unwrap();
        worn(dir.path());
        checkpoint(dir.path());
        let sql = Connection::open(file(dir.path())).unwrap();
        sql.execute_batch(script).unwrap();
        drop(sql);
        goes_on(dir.path());
        assert!(aside(dir.path()).exists(), "{script}");
    };
    foreign("PRAGMA application_id = 7");
    foreign("PRAGMA user_version = 99");
    foreign("PRAGMA user_version = 0");
    foreign("DROP TABLE passes");
}

#[test]
fn passes_of_a_later_version_are_taken_over_as_far_as_they_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    worn(dir.path());
    checkpoint(dir.path());
    let sql = Connection::open(file(dir.path())).unwrap();
    sql.pragma_update(None, "user_version", 99).unwrap();
    drop(sql);
    assert_eq!(goes_on(dir.path()).ended.len(), 60);
}

#[test]
fn a_directory_or_a_link_in_place_of_the_file_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(file(dir.path())).unwrap();
    goes_on(dir.path());
    assert!(aside(dir.path()).is_dir());

    let dir = tempfile::tempdir().unwrap();
    let theirs = dir.path().join("theirs");
    fs::write(&theirs, "x").unwrap();
    std::os::unix::fs::symlink(&theirs, file(dir.path())).unwrap();
    goes_on(dir.path());
    assert_eq!(fs::read_to_string(theirs).unwrap(), "x");
}

#[test]
fn a_later_read_that_meets_damage_makes_the_next_start_anew() {
    let dir = tempfile::tempdir().unwrap();
    worn(dir.path());
    checkpoint(dir.path());
    let (mut store, _) = live_with(dir.path(), SMALL, &[]);
    let root: u64 = query(
        &mut store,
        "SELECT rootpage FROM sqlite_schema WHERE name = 'removals'",
    );
    drop(store);
    checkpoint(dir.path());
    let mut bytes = fs::read(file(dir.path())).unwrap();
    let at = usize::try_from((root - 1) * 4096).unwrap();
    bytes[at..at + 4096].fill(0x55);
    fs::write(file(dir.path()), bytes).unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[]);
    store
        .write(Sync::Now, |it| put(it, Intended(1)))
        .unwrap_err();
    assert!(!store.is_open());
    store.open().unwrap();
    store.write(Sync::Now, |it| put(it, Intended(1))).unwrap();
    drop(store);
    assert_eq!(goes_on(dir.path()).ended.len(), 60, "carried over");
    assert!(aside(dir.path()).exists());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn a_log_cut_off_anywhere_loses_the_newest_records_only(cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        live(dir.path(), &[]);
        checkpoint(dir.path());
        live(dir.path(), &(0..40).map(|number| at(ended(number))).collect::<Vec<_>>());
        let mut bytes = fs::read(log(dir.path())).unwrap();
        bytes.truncate(cut.index(bytes.len()));
        fs::write(log(dir.path()), bytes).unwrap();
        let found = goes_on(dir.path());
        let expected: Vec<Pass> = (0..40).take(found.ended.len()).map(ended).collect();
        prop_assert_eq!(found.ended, expected);
        prop_assert!(!aside(dir.path()).exists());
    }

    #[test]
    fn flipped_bits_in_any_file_never_prevent_a_start(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..40),
        in_log: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        worn(dir.path());
        if !in_log {
            checkpoint(dir.path());
        }
        let path = if in_log { log(dir.path()) } else { file(dir.path()) };
        let mut bytes = fs::read(&path).unwrap();
        // Most of the claimed room is empty.
        let used = bytes.len().min(300 << 10);
        for (at, bit) in &flips {
            bytes[at.index(used)] ^= 1 << bit;
        }
        fs::write(path, &bytes).unwrap();
        goes_on(dir.path());
    }

    #[test]
    fn any_files_let_the_process_start(
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
        with_head: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut database = if with_head { b"SQLite format 3\0".to_vec() } else { Vec::new() };
        database.extend(&bytes);
        for name in ["crisweep.db", "crisweep.db-wal", "crisweep.db-shm", "journal", "ages", "lock"] {
            fs::write(dir.path().join(name), &database).unwrap();
        }
        goes_on(dir.path());
    }
}
