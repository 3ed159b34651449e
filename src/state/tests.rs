//! The database of one directory: what outlives the process, its bounds, damage, other versions.

mod audit;
mod damage;
mod evidence;
mod failures;
mod outliving;
mod past;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use super::database::{DatabaseLimits, NAME, Sync, Writing, make_room};
use super::health::WriterHealth;
use super::passes::{self, History, RemovalEnd, RemovalIntent};
use super::store::{StateDir, Stored};
use super::writer::WriterJob;
use crate::gc::{Removal, Subject};
use crate::model::{
    Cause, FailureClass, NodeFigures, Outcome, Pass, PassState, PodRef, PodUid, PodsReport,
    RemovalOutcome, RemoveReason, Target, TargetReport,
};

const SMALL: DatabaseLimits = DatabaseLimits {
    evidence_bytes: 0,
    journal_bytes: 64 << 10,
};
/// What a database with the smallest journal may take.
const SMALL_MAX_BYTES: u64 = (64 << 10) + (2 << 20) + (512 << 10);

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
        state: PassState::Running,
        started_at: Some(began),
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
        targets: [(Target::Containers, report)].into(),
        errors: vec!["one".to_owned()],
        ..Pass::queued(format!("p-{number}"), Cause::Manual.into(), [], began)
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

pub(super) fn removal(number: u64) -> Removal {
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
        superseded_by: Arc::default(),
    }
}

/// A record.
#[derive(Clone)]
enum Entry {
    At(Box<Pass>),
    Intended(u64),
    Tried(Target, u64, RemovalOutcome),
}

use Entry::{Intended, Tried};

fn tried(number: u64, outcome: RemovalOutcome) -> Entry {
    Tried(Target::Containers, number, outcome)
}

/// A pass as it is now.
fn at(pass: Pass) -> Entry {
    Entry::At(Box::new(pass))
}

fn put(writing: &Writing<'_>, entry: Entry) -> rusqlite::Result<()> {
    match entry {
        Entry::At(pass) => passes::put(writing, &pass),
        Intended(number) => {
            passes::put_intended(writing, "p-1", &[RemovalIntent::new(1, &removal(number))])
        }
        Tried(target, number, outcome) => {
            let mut removal = removal(number);
            removal.subject.target = target;
            let ended = RemovalEnd::new("p-1", &removal, outcome, Duration::from_millis(3));
            passes::put_outcome(writing, &ended)
        }
    }
}

fn state_dir(dir: &Path, limits: DatabaseLimits) -> StateDir {
    let health = WriterHealth::new(Counter::default(), dir.to_owned());
    StateDir::new(dir.to_owned(), limits, Arc::new(health))
}

/// One process on a directory: opens, writes, dies.
fn live_with(dir: &Path, limits: DatabaseLimits, entries: &[Entry]) -> (StateDir, Stored) {
    let mut store = state_dir(dir, limits);
    let found = store.open().unwrap();
    while store.claims {
        store.claim_some();
    }
    for entry in entries {
        let entry = entry.clone();
        store.write(Sync::Later, |it| put(it, entry)).unwrap();
    }
    (store, found)
}

fn live(dir: &Path, entries: &[Entry]) -> Stored {
    live_with(dir, SMALL, entries).1
}

fn file(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

fn history(dir: &Path) -> History {
    live(dir, &[]).history
}

fn ids(passes: &[Pass]) -> Vec<&str> {
    passes.iter().map(|pass| pass.id.as_str()).collect()
}

fn query<T: rusqlite::types::FromSql>(store: &mut StateDir, sql: &str) -> T {
    store
        .read(|it| it.query_row(sql, [], |row| row.get(0)))
        .unwrap()
}

#[test]
fn passes_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), &[at(pass(1)), at(ended(1)), at(ended(2))]);
    let found = history(dir.path());
    assert_eq!(found.ended, [ended(1), ended(2)]);
    assert_eq!(found.interrupted, []);
}

#[test]
fn a_directory_behind_links_is_used_by_the_service_and_by_commands() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    for dir in [link.clone(), link.join("below")] {
        live(&dir, &[at(ended(1))]);
        assert_eq!(history(&dir).ended, [ended(1)]);
        let filter = super::PassFilter {
            limit: 9,
            ..super::PassFilter::default()
        };
        assert_eq!(super::read_passes(&dir, &filter).unwrap().rows.len(), 1);
    }
}

#[test]
fn a_place_that_is_no_directory_is_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &link).unwrap();
    for place in [file, link] {
        let mut store = state_dir(&place, SMALL);
        let error = format!("{:?}", store.open().unwrap_err());
        assert!(error.contains("it is no directory"), "{error}");
    }
}

#[test]
fn a_pass_without_an_end_has_its_removals_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut later = pass(1);
    let report = later.targets.get_mut(&Target::Containers).unwrap();
    (report.removed, report.remaining) = (2, 58);
    let failed = RemovalOutcome::failed(FailureClass::Busy, String::new());
    let lost = RemovalOutcome::Lost { why: String::new() };
    let mut entries = vec![at(pass(1))];
    entries.extend((1..=2).map(Intended));
    entries.extend((1..=2).map(|number| tried(number, RemovalOutcome::REMOVED)));
    // Its counts were already counted.
    entries.push(at(later));
    entries.extend((3..=7).map(Intended));
    entries.extend([
        tried(3, RemovalOutcome::REMOVED),
        tried(4, RemovalOutcome::AlreadyGone),
        tried(5, failed),
        tried(6, lost),
    ]);
    let filter = super::PassFilter {
        limit: 9,
        ..super::PassFilter::default()
    };
    let read = || super::read_passes(dir.path(), &filter).unwrap().rows;
    let process = live_with(dir.path(), SMALL, &entries);
    assert_eq!(
        (read()[0].state, read()[0].outcome),
        (PassState::Running, None)
    );
    drop(process);
    // A command without a service says what the next start will say.
    let seen = read();
    assert_eq!(
        (seen[0].state, seen[0].outcome, seen[0].finished_at),
        (PassState::Done, Some(Outcome::Interrupted), None)
    );
    let found = history(dir.path());
    assert_eq!(ids(&found.interrupted), ["p-1"]);
    let pass = &found.interrupted[0];
    assert_eq!(
        (&seen[0].targets, &seen[0].errors),
        (&pass.targets, &pass.errors)
    );
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
    live(dir.path(), &[at(done.clone())]);
    let found = history(dir.path());
    assert_eq!((found.ended, found.interrupted), (vec![done], vec![]));
}

#[test]
fn a_lost_end_is_no_interruption() {
    let dir = tempfile::tempdir().unwrap();
    // The end of the first could not be written; the same process went on.
    live(dir.path(), &[at(pass(1)), at(pass(2)), at(ended(2))]);
    let found = history(dir.path());
    assert_eq!(
        (ids(&found.ended), ids(&found.interrupted)),
        (vec!["p-2"], vec![])
    );
    // Nor if the next one's beginning is lost as well; but one that never began ends beside it.
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), &[at(pass(1)), at(ended(2))]);
    assert_eq!(history(dir.path()).interrupted, []);
    let dir = tempfile::tempdir().unwrap();
    let withdrawn = Pass {
        started_at: None,
        ..ended(2)
    };
    live(dir.path(), &[at(pass(1)), at(withdrawn)]);
    assert_eq!(ids(&history(dir.path()).interrupted), ["p-1"]);
    // Another process does not end the pass of an earlier one.
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), &[at(pass(1))]);
    live(dir.path(), &[at(pass(2)), at(ended(2))]);
    let found = history(dir.path());
    assert_eq!(
        (ids(&found.ended), ids(&found.interrupted)),
        (vec!["p-2"], vec!["p-1"])
    );
}

#[test]
fn texts_that_are_too_long_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let mut long = ended(1);
    long.errors = vec!["é".repeat(50_000); 60];
    let why = "x".repeat(100_000);
    let lost = tried(1, RemovalOutcome::Lost { why });
    let (mut store, _) = live_with(dir.path(), SMALL, &[at(long), lost]);
    let report: i64 = query(&mut store, "SELECT max(length(report)) FROM passes");
    let why: i64 = query(&mut store, "SELECT max(length(why)) FROM removals");
    assert!(report < 16 << 10 && why < 2010, "{report} {why}");
    drop(store);
    let errors = &history(dir.path()).ended[0].errors;
    assert!(errors.len() < 60 && errors[0].starts_with('é'));
}

#[test]
fn an_outcome_without_an_intent_is_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[tried(7, RemovalOutcome::REMOVED)]);
    let whole = "SELECT name || reason || result FROM removals";
    let whole: String = query(&mut store, whole);
    assert_eq!(whole, "apppod-deletedremoved");
}

/// A rescue tries again after its rest what failed before it.
#[test]
fn a_result_stays_whatever_is_written_of_the_object_later() {
    let dir = tempfile::tempdir().unwrap();
    let failed = RemovalOutcome::failed(FailureClass::Other, "no".to_owned());
    let twice = [Intended(1), tried(1, failed), Intended(1)];
    let (mut store, _) = live_with(dir.path(), SMALL, &twice);
    let results = "SELECT group_concat(coalesce(result, 'none'), ' ') FROM removals";
    assert_eq!(query::<String>(&mut store, results), "failed none");
    let entry = tried(1, RemovalOutcome::REMOVED);
    store.write(Sync::Later, |it| put(it, entry)).unwrap();
    let object = (Target::Containers, removal(1).subject.id);
    store
        .write(Sync::Later, |it| {
            passes::put_not_begun(it, "p-1", &[object].into())
        })
        .unwrap();
    assert_eq!(query::<String>(&mut store, results), "failed removed");
}

#[test]
fn a_hundred_thousand_removals_stay_within_the_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[]);
    let claimed = size(&file(dir.path()));
    assert!(claimed >= SMALL.journal_bytes, "{claimed}");
    let log = dir.path().join("crisweep.db-wal");
    assert!(size(&log) >= 1 << 20, "{}", size(&log));
    let claimed_log = size(&log);
    for batch in 0..2000 {
        let entries = (0..50).flat_map(|number| {
            let number = batch * 50 + number;
            [Intended(number), tried(number, RemovalOutcome::REMOVED)]
        });
        let entries: Vec<Entry> = entries.collect();
        store
            .write(Sync::Later, |it| {
                entries.into_iter().try_for_each(|entry| put(it, entry))
            })
            .unwrap();
        let number = i64::try_from(batch).unwrap();
        store
            .write(Sync::Later, |it| put(it, at(ended(number))))
            .unwrap();
    }
    assert_eq!(
        size(&file(dir.path())),
        claimed,
        "nothing but the claimed room"
    );
    assert!(size(&log) <= 2 * claimed_log, "{}", size(&log));
    let kept: i64 = query(&mut store, "SELECT count(*) FROM removals");
    assert_eq!(kept, 1000);
    drop(store);
    let found = history(dir.path());
    assert_eq!(found.ended.len(), 100);
    assert_eq!(found.ended.last(), Some(&ended(1999)));
}

#[test]
fn records_that_are_larger_than_expected_make_way_for_new_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[]);
    for number in 0..400 {
        let mut long = ended(number);
        long.errors = vec!["x".repeat(190); 60];
        store.write(Sync::Later, |it| put(it, at(long))).unwrap();
        for number in 0..50 {
            let why = "y".repeat(200);
            let skipped = tried(number, RemovalOutcome::Skipped { why });
            store.write(Sync::Later, |it| put(it, skipped)).unwrap();
        }
    }
    assert!(size(&file(dir.path())) <= SMALL_MAX_BYTES);
    drop(store);
    assert_eq!(history(dir.path()).ended.last().unwrap().id, "p-399");
}

/// The passes of removals stay while others come and go between them and the newest.
#[test]
fn where_room_runs_out_a_tenth_of_the_rows_makes_way_however_old_the_first_is() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[]);
    let fill = |it: &Writing<'_>| {
        for number in 1..=1000 {
            if number <= 40 {
                let id = format!("p-{number}");
                let intent = RemovalIntent::new(1, &removal(number));
                passes::put_intended(it, &id, &[intent])?;
            }
            passes::put(it, &ended(number.cast_signed()))?;
        }
        make_room(it.sql)
    };
    store.write(Sync::Later, fill).unwrap();
    let passes: i64 = query(&mut store, "SELECT count(*) FROM passes");
    let removals: i64 = query(&mut store, "SELECT count(*) FROM removals");
    assert_eq!((passes, removals), (90, 36));
}

#[test]
fn a_later_start_claims_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), &[at(ended(1))]);
    let before = size(&file(dir.path()));
    live(dir.path(), &[at(ended(2))]);
    assert_eq!(size(&file(dir.path())), before);
    // A larger journal has its room from the next start.
    let larger = DatabaseLimits {
        evidence_bytes: 0,
        journal_bytes: 1 << 20,
    };
    live_with(dir.path(), larger, &[]);
    assert!(size(&file(dir.path())) >= before + (900 << 10));
    assert_eq!(history(dir.path()).ended.len(), 2);
}

#[test]
fn another_process_reads_while_one_writes_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[at(pass(1))]);
    let reader = super::database::Database::peek(dir.path()).unwrap();
    let count = || -> i64 {
        let count = "SELECT count(*) FROM passes WHERE is_done";
        reader.query_row(count, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count(), 0);
    store
        .write(Sync::Later, |it| put(it, at(ended(1))))
        .unwrap();
    assert_eq!(count(), 1);
    reader.execute("DELETE FROM passes", []).unwrap_err();
}

#[test]
fn the_log_stays_bounded_while_another_process_keeps_reading() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[at(ended(1))]);
    let reader = super::database::Database::peek(dir.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM passes").unwrap();
    let mut refused = 0;
    for number in 0..3000 {
        let mut long = ended(number);
        long.errors = vec!["x".repeat(190); 60];
        if let Err(error) = store.write(Sync::Later, |it| put(it, at(long))) {
            assert!(error.to_string().contains("keeps reading"), "{error}");
            refused += 1;
            if refused == 3 {
                break;
            }
        }
    }
    assert_eq!(refused, 3, "the log was never refused");
    assert!(size(&dir.path().join("crisweep.db-wal")) < 18 << 20);
    drop(reader);
    // Each try would wait for the reader: for a while nothing is tried.
    let by = std::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = store.write(Sync::Later, |it| put(it, at(ended(9999)))) {
        assert!(std::time::Instant::now() < by, "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_database_whose_file_was_removed_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = live_with(dir.path(), SMALL, &[at(ended(1))]);
    fs::remove_file(file(dir.path())).unwrap();
    assert!(store.release_lost());
    assert!(store.is_locked() && !store.is_open());
    store.open().unwrap();
    store.write(Sync::Now, |it| put(it, at(ended(2)))).unwrap();
    drop(store);
    assert_eq!(ids(&history(dir.path()).ended), ["p-2"]);
}

#[test]
fn a_lock_whose_holder_the_disk_tells_late_stops_passes_until_it_is_free() {
    // Its caller no longer waits, or leaves in the moment of the answer.
    for waits in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (holder, _) = live_with(dir.path(), SMALL, &[]);
        let (queue, jobs) = sync_channel(8);
        let writer = state_dir(dir.path(), SMALL);
        let health = Arc::clone(&writer.health);
        let (opened, caller) = oneshot::channel();
        let _caller = waits.then_some(caller);
        let thread = std::thread::spawn(move || writer.run(&jobs, opened));
        let locked = || {
            let (to, answer) = oneshot::channel();
            let job: WriterJob = Box::new(move |writer| drop(to.send(writer.lock())));
            queue.send(job).unwrap();
            answer.blocking_recv().unwrap()
        };
        let held = locked().unwrap().to_string();
        assert_eq!(health.status().errors["journal"], held);
        drop(holder);
        assert!(locked().is_none());
        assert!(health.status().locked && health.status().journal);
        drop(queue);
        thread.join().unwrap();
    }
}

#[test]
fn what_earlier_runs_left_is_handed_over_late_and_only_once() {
    let dir = tempfile::tempdir().unwrap();
    live(dir.path(), &[at(ended(1))]);
    let (queue, jobs) = sync_channel(8);
    let writer = state_dir(dir.path(), SMALL);
    let health = Arc::clone(&writer.health);
    let path = file(dir.path());
    let reopens: WriterJob = Box::new(move |writer| {
        let (found, _hold) = writer.health.late.lock().take().unwrap();
        assert_eq!(found.ended, [ended(1)]);
        fs::remove_file(path).unwrap();
        assert!(writer.lock().is_none() && writer.is_open());
    });
    queue.send(reopens).unwrap();
    drop(queue);
    // Its caller waits no longer.
    let (opened, _) = oneshot::channel();
    writer.run(&jobs, opened);
    assert!(health.late.lock().is_none());
}

/// On btrfs a write to shared memory on a full disk ends the process.
#[test]
fn on_btrfs_others_read_the_database_without_memory_to_share() {
    use super::database::{Database, ROLLBACK, WRITE_AHEAD, connect};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crisweep.db");
    let index = dir.path().join("crisweep.db-shm");
    fs::write(&path, "").unwrap();
    // The second one finds the write-ahead log of the first, as after an upgrade.
    for (log, shares) in [(WRITE_AHEAD, true), (ROLLBACK, false)] {
        let connection = connect(&path, log).unwrap();
        let write = "CREATE TABLE IF NOT EXISTS it (number); INSERT INTO it VALUES (1)";
        connection.execute_batch(write).unwrap();
        assert_eq!(index.exists(), shares);
        let other = Database::peek(dir.path()).unwrap();
        let count = "SELECT count(*) FROM it";
        let count: usize = other.query_row(count, [], |row| row.get(0)).unwrap();
        assert_eq!(count, if shares { 1 } else { 2 });
        drop((connection, other));
        // Left by a process that ended without closing its database.
        drop(fs::remove_file(&index));
    }
}

#[tokio::test]
async fn the_database_answers_questions_and_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let second = Duration::from_secs(60);
    let open = || super::Journal::open(dir.path().to_owned(), SMALL, Counter::default());
    let journal = open().await.unwrap().journal;
    journal.ended(&ended(1));
    let count = |sql: &rusqlite::Connection| {
        let count = "SELECT count(*) FROM passes";
        sql.query_row(count, [], |row| row.get::<_, i64>(0))
    };
    assert_eq!(journal.read(second, count).await.unwrap(), 1);
    let wrong = |sql: &rusqlite::Connection| sql.execute_batch("SELECT missing FROM passes");
    let error = journal.read(second, wrong).await.unwrap_err();
    assert!(error.to_string().contains("no such column"), "{error}");
    assert_eq!(journal.read(second, count).await.unwrap(), 1, "still open");
    let none = super::Journal::none();
    assert!(none.read(second, count).await.is_err());
}
