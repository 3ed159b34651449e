//! Failed sandboxes.

use super::super::read_stored;
use super::*;
use crate::model::PastFailure;

fn of_sandbox(number: u64, outcome: RemovalOutcome) -> Entry {
    Tried(Target::Sandboxes, number, outcome)
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(START + seconds).unwrap()
}

fn failed(why: &str, failures: Option<u32>, when: Option<i64>) -> RemovalOutcome {
    RemovalOutcome::Failed {
        class: FailureClass::NetworkTeardown,
        why: why.to_owned(),
        at: when.map(at),
        failures,
    }
}

fn past(number: u64, error: &str, failures: u32, when: Option<i64>) -> PastFailure {
    PastFailure {
        id: format!("{number:064x}"),
        failures,
        class: FailureClass::NetworkTeardown,
        error: error.to_owned(),
        at: when.map(at),
    }
}

#[test]
fn the_last_failure_of_each_is_reported_until_its_removal() {
    let dir = tempfile::tempdir().unwrap();
    let skipped = RemovalOutcome::Skipped { why: String::new() };
    let entries = [
        of_sandbox(1, failed("one", Some(1), Some(1))),
        of_sandbox(2, failed("no", Some(1), Some(2))),
        of_sandbox(3, failed("no", Some(1), Some(3))),
        of_sandbox(4, failed("no", Some(1), Some(4))),
        of_sandbox(1, failed("two", Some(2), Some(60))),
        of_sandbox(2, RemovalOutcome::REMOVED),
        of_sandbox(3, RemovalOutcome::AlreadyGone),
        of_sandbox(4, skipped),
        of_sandbox(4, RemovalOutcome::Lost { why: String::new() }),
        // A container is tried again at once.
        tried(7, failed("no", None, Some(5))),
    ];
    live(dir.path(), &entries);
    let wanted = [past(4, "no", 1, Some(4)), past(1, "two", 2, Some(60))];
    let beside = read_stored(dir.path()).unwrap();
    assert_eq!(beside.history.failures, wanted);
    assert_eq!(history(dir.path()).failures, wanted);
}

#[test]
fn never_keeps_more_than_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[]);
    store
        .write(Sync::Later, |it| {
            (0..4100).try_for_each(|number| {
                let when = i64::try_from(number).ok();
                put(it, of_sandbox(number, failed("no", Some(1), when)))
            })
        })
        .unwrap();
    drop(store);
    let failures = history(dir.path()).failures;
    assert_eq!(
        (failures.len(), &failures[0]),
        (4096, &past(4, "no", 1, Some(4)))
    );
}

#[test]
fn without_a_database_nothing_is_read_or_made() {
    let dir = tempfile::tempdir().unwrap();
    let stored = read_stored(dir.path()).unwrap();
    assert!(stored.history.failures.is_empty() && stored.ages.is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}
