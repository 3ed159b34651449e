//! The journal in its file: laps, torn and flipped bytes, other versions and sizes.

mod failures;
mod fuzz;

use std::fs;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use proptest::prelude::*;

use super::entry::Entry;
use super::history::History;
use super::ring::{BYTES_MIN, Ring};
use super::store::{Found, Store};
use crate::gc::{Removal, Subject};
use crate::model::{
    Cause, FailureClass, NodeFigures, Outcome, Pass, PassState, PodRef, PodUid, PodsReport,
    RemovalOutcome, RemoveReason, Target, TargetReport, TriggerInfo,
};

const START: i64 = 1_790_000_000;

fn pass(number: i64) -> Pass {
    let began = Timestamp::from_second(START + number).unwrap();
    let report = TargetReport {
        planned: 60,
        remaining: 60,
        reasons: [(RemoveReason::PodDeleted, 60)].into(),
        kept: [(crate::model::KeepReason::Newest, 3)].into(),
        ..TargetReport::default()
    };
    Pass {
        id: format!("p-{number}"),
        state: PassState::Running,
        outcome: None,
        dry_run: false,
        trigger: TriggerInfo {
            cause: Cause::Manual,
            by: None,
            alert: None,
            follow_up: false,
        },
        runtime: String::new(),
        merged_triggers: 0,
        not_before: None,
        queued_at: began,
        started_at: Some(began),
        finished_at: None,
        pods: Some(PodsReport {
            source: "kubelet".to_owned(),
            state: "failed".to_owned(),
            detail: Some("no answer".to_owned()),
        }),
        before: Some(NodeFigures {
            exited_containers: Some(9),
            image_fs_used_ratio: Some(0.123_456_789),
            ..NodeFigures::default()
        }),
        after: None,
        targets: [(Target::Containers, report)].into(),
        errors: vec!["one".to_owned()],
    }
}

fn ended(number: i64) -> Pass {
    Pass {
        state: PassState::Done,
        outcome: Some(Outcome::Completed),
        finished_at: Some(Timestamp::from_second(START + number + 1).unwrap()),
        ..pass(number)
    }
}

fn removal(number: u64) -> Removal {
    let pod = PodRef {
        uid: PodUid::new("u").unwrap(),
        namespace: "default".into(),
        name: "web".into(),
    };
    let subject = Subject {
        target: Target::Containers,
        id: format!("{number:064x}").into(),
        name: "app".into(),
        pod: Some(pod.into()),
        pod_state: crate::gc::PodKnowledge::Deleted,
        attempt: 0,
        created_at: Timestamp::from_second(START).unwrap(),
        age_seconds: 9,
        image: None,
    };
    Removal {
        subject,
        reason: RemoveReason::PodDeleted,
        detail: Box::default(),
        expected: crate::gc::Expected::Sandbox,
        superseded_by: Box::default(),
    }
}

fn tried(number: u64, outcome: RemovalOutcome) -> Entry {
    Entry::tried("p-1", &removal(number), outcome, 3)
}

fn intended(number: u64) -> Entry {
    Entry::Intended {
        pass_id: "p-1".to_owned(),
        object: Box::new(super::entry::Object::new(1, &removal(number))),
    }
}

fn begun(pass: Pass) -> Entry {
    Entry::Begun {
        pass: Box::new(pass),
    }
}

fn end(pass: Pass) -> Entry {
    Entry::Ended {
        pass: Box::new(pass),
    }
}

/// One process on a directory: opens, writes, dies.
fn live(dir: &Path, bytes: u64, entries: &[Entry]) -> Found {
    let mut store = Store::new(dir.to_owned(), bytes, "/run/cri.sock".to_owned());
    let found = store.open().unwrap();
    for entry in entries {
        store.write(entry).unwrap();
    }
    found
}

fn journal(dir: &Path) -> PathBuf {
    dir.join("journal")
}

fn history(dir: &Path) -> History {
    live(dir, BYTES_MIN, &[]).history
}

fn ids(passes: &[Pass]) -> Vec<&str> {
    passes.iter().map(|pass| pass.id.as_str()).collect()
}

#[test]
fn entries_read_back_equal_those_written() {
    let failed = RemovalOutcome::Failed {
        class: FailureClass::NetworkTeardown,
        why: "no".to_owned(),
        at: Some(Timestamp::from_second(START).unwrap()),
        failures: Some(3),
    };
    let skipped = RemovalOutcome::Skipped {
        why: "it is ready".to_owned(),
    };
    for entry in [
        begun(pass(1)),
        end(ended(1)),
        intended(4),
        tried(4, RemovalOutcome::REMOVED),
        tried(5, failed),
        tried(6, skipped),
    ] {
        let bytes = entry.encode().unwrap();
        assert_eq!(Entry::decode(&bytes), Some(entry));
        assert_eq!(bytes.split(|byte| *byte == b'\n').count(), 2, "one line");
    }
}

#[test]
fn texts_that_are_too_long_are_cut() {
    let mut long = ended(1);
    long.errors = vec!["é".repeat(50_000); 60];
    let bytes = end(long).encode().unwrap();
    let Some(Entry::Ended { pass }) = Entry::decode(&bytes) else {
        panic!("not read back");
    };
    assert!(pass.errors.len() < 60 && pass.errors[0].starts_with('é'));
    let why = "x".repeat(100_000);
    assert!(
        tried(1, RemovalOutcome::Lost { why })
            .encode()
            .unwrap()
            .len()
            < 1000
    );
}

#[test]
fn passes_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    live(
        dir.path(),
        BYTES_MIN,
        &[begun(pass(1)), end(ended(1)), end(ended(2))],
    );
    let found = history(dir.path());
    assert_eq!(found.ended, [ended(1), ended(2)]);
    assert_eq!(found.interrupted, []);
}

#[test]
fn a_pass_without_an_end_has_its_removals_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut later = pass(1);
    let report = later.targets.get_mut(&Target::Containers).unwrap();
    (report.removed, report.remaining) = (2, 58);
    let failed = RemovalOutcome::Failed {
        class: FailureClass::Busy,
        why: String::new(),
        at: None,
        failures: None,
    };
    let lost = RemovalOutcome::Lost { why: String::new() };
    let entries = [
        begun(pass(1)),
        intended(1),
        intended(2),
        tried(1, RemovalOutcome::REMOVED),
        tried(2, RemovalOutcome::REMOVED),
        // Its counts were already counted.
        Entry::Progress {
            pass: Box::new(later),
        },
        intended(3),
        intended(4),
        intended(5),
        intended(6),
        intended(7),
        tried(3, RemovalOutcome::REMOVED),
        tried(4, RemovalOutcome::AlreadyGone),
        tried(5, failed),
        tried(6, lost),
    ];
    live(dir.path(), BYTES_MIN, &entries);
    let found = history(dir.path());
    assert_eq!(ids(&found.interrupted), ["p-1"]);
    let pass = &found.interrupted[0];
    let report = &pass.targets[&Target::Containers];
    let counts = [
        report.removed,
        report.already_gone,
        report.failed,
        report.remaining,
    ];
    assert_eq!(counts, [3, 1, 1, 56]);
    let told = "the process ended in mid-pass; 2 more removals were about to begin";
    assert!(
        pass.errors.last().unwrap().starts_with(told),
        "{:?}",
        pass.errors
    );
    // Until its end is written, each start reports it in the same way.
    assert_eq!(history(dir.path()), found);
    let mut done = pass.clone();
    super::interrupt(&mut done, Timestamp::from_second(START + 99).unwrap());
    live(dir.path(), BYTES_MIN, &[end(done.clone())]);
    let found = history(dir.path());
    assert_eq!((found.ended, found.interrupted), (vec![done], vec![]));
}

#[test]
fn a_lost_end_is_no_interruption() {
    let dir = tempfile::tempdir().unwrap();
    // The end of the first could not be written; the same process went on.
    live(
        dir.path(),
        BYTES_MIN,
        &[begun(pass(1)), begun(pass(2)), end(ended(2))],
    );
    let found = history(dir.path());
    assert_eq!(
        (ids(&found.ended), ids(&found.interrupted)),
        (vec!["p-2"], vec![])
    );
    // Nor if the next one's beginning is lost as well; but one that never began ends beside it.
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), BYTES_MIN, &[begun(pass(1)), end(ended(2))]);
    assert_eq!(history(dir.path()).interrupted, []);
    let dir = tempfile::tempdir().unwrap();
    let withdrawn = Pass {
        started_at: None,
        ..ended(2)
    };
    live(dir.path(), BYTES_MIN, &[begun(pass(1)), end(withdrawn)]);
    assert_eq!(ids(&history(dir.path()).interrupted), ["p-1"]);
    // Another process does not end the pass of an earlier one.
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), BYTES_MIN, &[begun(pass(1))]);
    live(dir.path(), BYTES_MIN, &[begun(pass(2)), end(ended(2))]);
    let found = history(dir.path());
    assert_eq!(
        (ids(&found.ended), ids(&found.interrupted)),
        (vec!["p-2"], vec!["p-1"])
    );
}

#[test]
fn laps_keep_the_newest_and_the_size() {
    let dir = tempfile::tempdir().unwrap();
    let size = |dir: &Path| fs::metadata(journal(dir)).unwrap().len();
    for start in (0..400).step_by(40) {
        let mut entries = Vec::new();
        for number in start..start + 40 {
            entries.extend([begun(pass(number)), end(ended(number))]);
        }
        live(dir.path(), BYTES_MIN, &entries);
        let found = history(dir.path());
        assert_eq!(size(dir.path()), BYTES_MIN);
        assert_eq!(found.interrupted, [], "after {start}");
        let newest = start + 39;
        assert_eq!(found.ended.last(), Some(&ended(newest)));
        let expected = (0..=newest).rev().take(found.ended.len());
        let expected: Vec<Pass> = expected.map(ended).collect();
        let newest_first: Vec<Pass> = found.ended.iter().rev().cloned().collect();
        assert_eq!(newest_first, expected);
        assert!(found.ended.len() >= 20, "only {}", found.ended.len());
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        3,
        "journal, ages, lock"
    );
}

#[test]
fn a_pass_longer_than_the_ring_still_has_its_counts() {
    let dir = tempfile::tempdir().unwrap();
    let mut now = pass(1);
    let mut entries = vec![begun(now.clone())];
    for batch in 0..40_u64 {
        entries.extend((0..50).map(|n| intended(batch * 50 + n)));
        entries.extend((0..50).map(|n| tried(batch * 50 + n, RemovalOutcome::REMOVED)));
        let report = now.targets.get_mut(&Target::Containers).unwrap();
        report.planned = 2000;
        report.removed += 50;
        report.count_remaining();
        entries.push(Entry::Progress {
            pass: Box::new(now.clone()),
        });
    }
    entries.push(tried(9999, RemovalOutcome::REMOVED));
    live(dir.path(), BYTES_MIN, &entries);
    let found = history(dir.path());
    let report = &found.interrupted[0].targets[&Target::Containers];
    assert_eq!((report.removed, report.remaining), (2001, 0));
}

#[test]
fn a_last_record_that_is_cut_off_anywhere_is_as_if_never_written() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), BYTES_MIN, &[begun(pass(1)), end(ended(1))]);
    let before = fs::read(journal(dir.path())).unwrap();
    let mut ring = Ring::read(
        fs::File::options()
            .read(true)
            .write(true)
            .open(journal(dir.path()))
            .unwrap(),
    )
    .unwrap()
    .unwrap()
    .ring;
    let payload = end(ended(2)).encode().unwrap();
    ring.append(&payload).unwrap();
    let after = fs::read(journal(dir.path())).unwrap();
    let first = before.iter().zip(&after).position(|(a, b)| a != b).unwrap();
    let last = before
        .iter()
        .zip(&after)
        .rposition(|(a, b)| a != b)
        .unwrap();
    assert!(last - first > payload.len());
    let path = dir.path().join("torn");
    for cut in first..=last {
        let mut torn = before.clone();
        torn[first..cut].copy_from_slice(&after[first..cut]);
        fs::write(&path, &torn).unwrap();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let found = Ring::read(file).unwrap().unwrap();
        assert_eq!(found.damage, None, "{cut}");
        let read = super::history::read(&found.records);
        assert_eq!(ids(&read.ended), ["p-1"], "{cut}");
        // The next one overwrites it.
        let mut ring = found.ring;
        ring.append(&payload).unwrap();
        let file = fs::File::open(&path).unwrap();
        let read = super::history::read(&Ring::read(file).unwrap().unwrap().records);
        assert_eq!(read.ended, [ended(1), ended(2)], "{cut}");
    }
}

#[test]
fn damage_in_the_middle_is_set_aside_and_the_rest_kept() {
    let dir = tempfile::tempdir().unwrap();
    live(
        dir.path(),
        BYTES_MIN,
        &[end(ended(1)), end(ended(2)), end(ended(3))],
    );
    let mut bytes = fs::read(journal(dir.path())).unwrap();
    let needle = b"\"id\":\"p-2\"";
    let at = bytes
        .windows(needle.len())
        .position(|window| window == needle)
        .unwrap();
    bytes[at] ^= 4;
    fs::write(journal(dir.path()), &bytes).unwrap();
    let found = live(dir.path(), BYTES_MIN, &[]);
    assert_eq!(ids(&found.history.ended), ["p-1", "p-3"]);
    assert!(found.notes[0].contains("set aside"), "{:?}", found.notes);
    assert_eq!(
        fs::read(dir.path().join("journal.damaged-1")).unwrap(),
        bytes
    );
    let found = live(dir.path(), BYTES_MIN, &[]);
    assert_eq!(ids(&found.history.ended), ["p-1", "p-3"], "carried over");
    assert_eq!(found.notes, [""; 0], "and sound again");
}

#[test]
fn files_that_are_no_journal_are_set_aside() {
    let head = |text: &str| {
        let mut bytes = super::frame::encode(super::frame::Kind::Head, 0, text.as_bytes()).unwrap();
        bytes.resize(65536, 0);
        bytes
    };
    for (bytes, why) in [
        (vec![], "size"),
        (b"hello".to_vec(), "size"),
        (vec![0; 65536], "head is damaged"),
        (vec![0xF5; 65536], "head is damaged"),
        (head("crisweep journal 2\nbytes 65536\n"), "another version"),
        (head("crisweep journal 1\nbytes 12\n"), "has no size"),
        (head("crisweep journal 1\nbytes 131072\n"), "length differs"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(journal(dir.path()), &bytes).unwrap();
        let found = live(dir.path(), BYTES_MIN, &[end(ended(1))]);
        assert!(found.notes[0].contains(why), "{why}: {:?}", found.notes);
        assert_eq!(
            fs::read(dir.path().join("journal.damaged-1")).unwrap(),
            bytes
        );
        assert_eq!(ids(&history(dir.path()).ended), ["p-1"]);
    }
}

#[test]
fn a_directory_in_place_of_a_state_file_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(journal(dir.path())).unwrap();
    fs::create_dir(dir.path().join("ages")).unwrap();
    let found = live(dir.path(), BYTES_MIN, &[end(ended(1))]);
    assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
    assert_eq!(ids(&history(dir.path()).ended), ["p-1"]);
    assert!(dir.path().join("journal.damaged-1").is_dir());
}

#[test]
fn another_size_takes_the_history_along() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), BYTES_MIN, &[end(ended(1)), begun(pass(2))]);
    live(dir.path(), BYTES_MIN, &[begun(pass(3))]);
    for bytes in [4 * BYTES_MIN, BYTES_MIN] {
        let found = live(dir.path(), bytes, &[]);
        assert_eq!(ids(&found.history.ended), ["p-1"]);
        assert_eq!(ids(&found.history.interrupted), ["p-2", "p-3"]);
        assert_eq!(fs::metadata(journal(dir.path())).unwrap().len(), bytes);
        assert!(!dir.path().join("journal.damaged-1").exists());
    }
    assert_eq!(
        history(dir.path()).interrupted[0].errors.len(),
        2,
        "told once"
    );
}

/// Several processes on one directory.
fn worn(dir: &Path) -> Vec<u8> {
    let mut entries = Vec::new();
    for number in 0..90 {
        entries.extend([begun(pass(number)), end(ended(number))]);
    }
    live(dir, BYTES_MIN, &entries);
    fs::read(journal(dir)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn flipped_bits_lose_no_more_than_they_hit(flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4)) {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = worn(dir.path());
        let sound = history(dir.path());
        for (at, bit) in &flips {
            let at = at.index(bytes.len());
            // The head has its own test: without it nothing is believed.
            prop_assume!(at >= 4096);
            bytes[at] ^= 1 << bit;
        }
        fs::write(journal(dir.path()), &bytes).unwrap();
        let found = live(dir.path(), BYTES_MIN, &[end(ended(1000))]).history;
        // Behind a damaged end of a lap there may be older ones.
        let told = |pass: &Pass| (0..90).any(|number| *pass == ended(number));
        prop_assert!(found.ended.iter().all(told));
        prop_assert!(found.ended.len() + flips.len() >= sound.ended.len());
        // At most the last end can be lost, so that its pass seems interrupted.
        prop_assert!(found.interrupted.iter().all(|pass| pass.id == "p-89"));
        prop_assert!(history(dir.path()).ended.contains(&ended(1000)));
    }

    #[test]
    fn any_file_lets_the_process_start(
        mut bytes in prop::collection::vec(any::<u8>(), 0..3000),
        length in prop::sample::select(vec![0_usize, 1, 4096, 65535, 65536, 69632]),
        with_head: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut file = if with_head { worn(dir.path()) } else { Vec::new() };
        file.truncate(if with_head { 4096 + bytes.len() * 8 } else { 0 });
        file.append(&mut bytes);
        file.resize(length.max(file.len().min(65536)), 0x5A);
        for name in ["journal", "ages", "lock"] {
            fs::write(dir.path().join(name), &file).unwrap();
        }
        live(dir.path(), BYTES_MIN, &[end(ended(1000))]);
        prop_assert!(history(dir.path()).ended.contains(&ended(1000)));
    }
}
