//! Failed sandboxes over restarts.

use super::*;
use crate::model::PastFailure;

fn of_sandbox(id: &str, outcome: RemovalOutcome) -> Entry {
    let mut removal = removal(0);
    removal.subject.target = Target::Sandboxes;
    removal.subject.id = id.into();
    Entry::tried("p-1", &removal, outcome, 3)
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

fn past(id: &str, error: &str, failures: u32, when: Option<i64>) -> PastFailure {
    PastFailure {
        id: id.to_owned(),
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
        of_sandbox("a", failed("one", Some(1), Some(1))),
        of_sandbox("b", failed("no", Some(1), Some(2))),
        of_sandbox("c", failed("no", Some(1), Some(3))),
        of_sandbox("d", failed("no", Some(1), Some(4))),
        of_sandbox("a", failed("two", Some(2), Some(60))),
        of_sandbox("b", RemovalOutcome::REMOVED),
        of_sandbox("c", RemovalOutcome::AlreadyGone),
        of_sandbox("d", skipped),
        of_sandbox("d", RemovalOutcome::Lost { why: String::new() }),
        // A container is tried again at once.
        tried(7, failed("no", None, Some(5))),
    ];
    live(dir.path(), BYTES_MIN, &entries);
    let wanted = [past("d", "no", 1, Some(4)), past("a", "two", 2, Some(60))];
    assert_eq!(super::super::past_failures(dir.path()).unwrap(), wanted);
    assert_eq!(history(dir.path()).failures, wanted);
    // A journal of another size keeps them.
    let found = live(dir.path(), 2 * BYTES_MIN, &[]);
    assert_eq!(found.history.failures, wanted);
    assert_eq!(history(dir.path()).failures, wanted);
}

#[test]
fn entries_of_earlier_versions_count_without_a_time() {
    let text = br#"{"entry":"tried","pass_id":"p","target":"sandboxes","id":"a","result":"failed","class":"busy","why":"no","duration_ms":3}"#;
    let old = Entry::decode(text).unwrap();
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), BYTES_MIN, &[old.clone(), old]);
    let failures = history(dir.path()).failures;
    assert_eq!((failures[0].failures, failures[0].at), (2, None));
}

#[test]
fn a_lap_of_the_ring_loses_the_first_failures_and_not_their_count() {
    let dir = tempfile::tempdir().unwrap();
    let lap = (0..2000).map(|n| tried(n, RemovalOutcome::REMOVED));
    let mut entries = vec![
        of_sandbox("a", failed("no", Some(1), Some(1))),
        of_sandbox("b", failed("no", Some(1), Some(1))),
    ];
    entries.extend(lap);
    entries.push(of_sandbox("a", failed("no", Some(2), Some(9))));
    live(dir.path(), BYTES_MIN, &entries);
    assert_eq!(history(dir.path()).failures, [past("a", "no", 2, Some(9))]);
}

#[test]
fn never_takes_over_more_than_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let entries: Vec<Entry> = (0..4100)
        .map(|n| of_sandbox(&format!("s{n}"), failed("no", Some(1), Some(n))))
        .collect();
    live(dir.path(), 4 << 20, &entries);
    let failures = live(dir.path(), 4 << 20, &[]).history.failures;
    assert_eq!((failures.len(), failures[0].id.as_str()), (4096, "s4"));
}

#[test]
fn reading_past_failures_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        super::super::past_failures(dir.path()).is_err(),
        "no journal"
    );
    live(
        dir.path(),
        BYTES_MIN,
        &[of_sandbox("a", failed("no", Some(1), Some(1)))],
    );
    let before = fs::read(journal(dir.path())).unwrap();
    assert_eq!(super::super::past_failures(dir.path()).unwrap().len(), 1);
    assert_eq!(fs::read(journal(dir.path())).unwrap(), before);
}
