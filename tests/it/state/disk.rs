//! State directories that cannot exist, cannot be written, or are full.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crisweep::state::{DatabaseLimits, ImageAges, Journal};
use crisweep_sim::Options;
use prometheus_client::metrics::counter::Counter;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::service::{Service, program, text};
use crate::support::wait::{PATIENCE, until, until_true};
use crate::support::{Rig, nodes};

const FAILURES: &str = "crisweep_state_write_failures_total";

async fn state(rig: &Rig) -> Value {
    rig.get("/api/v1/status").await.json()["state"].clone()
}

async fn failures(rig: &Rig) -> f64 {
    rig.metrics().await.get(FAILURES).unwrap()
}

/// Asserts that passes run although nothing can be written.
async fn works_without_state(rig: &Rig) {
    let at_start = failures(rig).await;
    assert!(at_start >= 1.0, "{at_start}");
    let now = state(rig).await;
    assert_eq!(now["journal"], false, "{now}");
    assert!(now["errors"]["journal"].is_string(), "{now}");
    assert_eq!(rig.gc("").await["outcome"], "completed");
    assert_eq!(rig.exited_containers(), 0);
    until("the failures are counted", || async {
        (failures(rig).await > at_start).then_some(())
    })
    .await;
    let said = rig
        .logs(1, "state cannot be written; passes go on without it")
        .await;
    assert_eq!(said.len(), 1, "once for each change: {said:?}");
}

#[tokio::test]
async fn without_a_usable_directory_the_service_works_and_reports_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "mine").unwrap();
    // Not even root can make a directory in these.
    for place in [
        file.clone(),
        file.join("below"),
        PathBuf::from("/proc/crisweep"),
    ] {
        let rig = Rig::start(nodes::litter(3), json!({ "state": { "dir": place } })).await;
        works_without_state(&rig).await;
        let now = state(&rig).await;
        assert_eq!(now["locked"], false, "{now}");
        let why = now["errors"]["journal"].as_str().unwrap();
        assert!(
            why.contains("a second crisweep on this node is not prevented"),
            "{why}"
        );
        let url = format!("--url=http://{}", rig.address);
        let shown = text(&rig.command(&["status", &url]).await.stdout);
        assert!(shown.contains("state       not written: "), "{shown}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "mine");
}

#[tokio::test]
async fn a_limit_on_the_size_of_files_ends_no_process() {
    let mut rig = Rig::start(nodes::litter(3), json!({})).await;
    rig.kill().await;
    let dir = tempfile::tempdir().unwrap();
    rig.configure(&json!({ "state": { "dir": dir.path() } }));
    let mut command = tokio::process::Command::new("sh");
    command
        .args(["-c", r#"ulimit -f 128; exec "$0" "$@""#])
        .arg(program().as_std().get_program())
        .env_clear()
        .kill_on_drop(true);
    rig.service = Service::start_as(command, &rig.config_file()).await;
    rig.ready().await;
    works_without_state(&rig).await;
}

#[tokio::test]
async fn a_directory_that_is_missing_is_made_for_the_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a/b");
    let rig = Rig::start(nodes::litter(3), json!({ "state": { "dir": place } })).await;
    rig.gc("").await;
    rig.metrics().await.is(FAILURES, 0.0);
    assert_eq!(
        fs::metadata(&place).unwrap().permissions().mode() & 0o777,
        0o700
    );
    for entry in fs::read_dir(&place).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }
}

/// A small file system that lives as long as this value.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// Mounts one; `None` without the permission.
    fn mount(megabytes: u32) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "crisweep-test"])
            .arg(dir.path())
            .output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(dir));
        }
        eprintln!("skipped: mounting a tmpfs needs root");
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Uses up all free space; returns the file that holds it.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("filler");
        let mut file = File::create(&path).unwrap();
        let chunk = vec![1; 4096];
        while file.write_all(&chunk).is_ok() {}
        assert!(
            File::create(self.path().join("probe"))
                .and_then(|mut f| f.write_all(b"x"))
                .is_err()
        );
        drop(fs::remove_file(self.path().join("probe")));
        path
    }

    fn remount_read_only(&self) {
        let output = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).output());
    }
}

/// Waits until the smallest journal has its room on the disk.
async fn room_is_claimed(dir: &Path) {
    let database = dir.join("crisweep.db");
    let size = || fs::metadata(&database).map_or(0, |file| file.len());
    until_true("the room is claimed", || size() >= (64 << 10) + (2 << 20)).await;
}

#[tokio::test]
async fn a_full_disk_keeps_no_pass_from_being_written_down() {
    let Some(disk) = Tmpfs::mount(8) else { return };
    let dir = disk.path().join("state");
    let mut rig = Rig::start(nodes::litter(60), json!({ "state": { "dir": dir } })).await;
    room_is_claimed(&dir).await;
    disk.fill();
    // More than the smallest journal keeps.
    for round in 0..150 {
        let pass = rig.gc("").await;
        let expected = if round == 0 {
            "completed"
        } else {
            "nothing-to-do"
        };
        assert_eq!(pass["outcome"], expected, "{pass}");
    }
    rig.metrics().await.is(FAILURES, 0.0);
    let before = rig.passes().await;
    rig.crash().await;
    let after = rig.passes().await;
    assert!(after.len() > 20, "{}", after.len());
    // The newest, and the one that removed something.
    let (first, newest) = after.split_last().unwrap();
    assert_eq!(newest, &before[..newest.len()]);
    assert_eq!(first["outcome"], "completed", "{first}");
    // Even a damaged database is replaced.
    rig.kill().await;
    let path = dir.join("crisweep.db");
    let length = fs::metadata(&path).unwrap().len();
    let garbage = vec![0x55; usize::try_from(length).unwrap()];
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&garbage, 0).unwrap();
    rig.begin().await;
    rig.gc("").await;
    rig.metrics().await.is(FAILURES, 0.0);
    rig.crash().await;
    assert_eq!(rig.passes().await.len(), 1);
}

/// Damages the table of removals, which a start does not read.
fn damage_removals(dir: &Path) {
    let path = dir.join("crisweep.db");
    let sql = Connection::open(&path).unwrap();
    let moved = "PRAGMA wal_checkpoint(TRUNCATE)";
    sql.query_row(moved, [], |_| Ok(())).unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'removals'";
    let root: u64 = sql.query_row(root, [], |row| row.get(0)).unwrap();
    drop(sql);
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&[0x55; 4096], (root - 1) * 4096).unwrap();
}

#[tokio::test]
async fn a_database_that_turns_out_to_be_damaged_is_replaced_on_a_full_disk_too() {
    let Some(disk) = Tmpfs::mount(8) else { return };
    let dir = disk.path().join("state");
    let mut rig = Rig::start(nodes::litter(3), json!({ "state": { "dir": dir } })).await;
    room_is_claimed(&dir).await;
    rig.kill().await;
    damage_removals(&dir);
    rig.begin().await;
    let log = || fs::metadata(dir.join("crisweep.db-wal")).map_or(0, |it| it.len());
    until_true("the log's room is claimed", || log() >= 1 << 20).await;
    disk.fill();
    assert_eq!(rig.gc("").await["outcome"], "completed");
    let lost = until("the damage is met", || async {
        let lost = failures(&rig).await;
        (lost > 0.0).then_some(lost)
    })
    .await;
    assert_eq!(state(&rig).await["journal"], false, "{lost}");
    rig.gc("").await;
    assert_eq!(state(&rig).await["journal"], true);
    let newest = rig.passes().await[0].clone();
    rig.crash().await;
    assert_eq!(rig.passes().await[0], newest);
}

#[tokio::test]
async fn state_files_without_space_at_start_are_tried_again_with_each_pass() {
    let Some(disk) = Tmpfs::mount(8) else { return };
    let filler = disk.fill();
    let dir = disk.path().join("state");
    let mut rig = Rig::start(nodes::litter(3), json!({ "state": { "dir": dir } })).await;
    works_without_state(&rig).await;
    fs::remove_file(filler).unwrap();
    rig.gc("").await;
    let now = until("the journal is open", || async {
        let now = state(&rig).await;
        (now["journal"] == true).then_some(now)
    })
    .await;
    assert_eq!((&now["locked"], &now["errors"]), (&json!(true), &json!({})));
    rig.crash().await;
    assert_eq!(rig.passes().await.len(), 1, "the first was never written");
}

#[tokio::test]
async fn an_outage_that_began_before_the_database_could_be_made_is_written_down() {
    let Some(disk) = Tmpfs::mount(8) else { return };
    let filler = disk.fill();
    let dir = disk.path().join("state");
    let options = Options {
        send_limit_bytes: 1000,
        ..Options::default()
    };
    let state_dir = json!({ "state": { "dir": dir } });
    let mut rig = Rig::with(nodes::litter(3).build(), options, state_dir).await;
    works_without_state(&rig).await;
    rig.metrics().await.is("cri_up", 1.0);
    fs::remove_file(filler).unwrap();
    rig.gc("target=images").await;
    until("the journal is open", || async {
        (state(&rig).await["journal"] == true).then_some(())
    })
    .await;
    rig.gc("dry_run=true").await;
    rig.kill().await;
    let database = Connection::open(dir.join("crisweep.db")).unwrap();
    let begun = database.query_row("SELECT count(*) FROM outage", [], |row| row.get(0));
    assert_eq!(begun, Ok(1));
}

#[tokio::test]
async fn a_read_only_disk_still_keeps_a_second_one_off() {
    let Some(disk) = Tmpfs::mount(8) else { return };
    let dir = disk.path().join("state");
    let mut rig = Rig::start(nodes::litter(3), json!({ "state": { "dir": dir } })).await;
    rig.kill().await;
    disk.remount_read_only();
    rig.begin().await;
    works_without_state(&rig).await;
    assert_eq!(state(&rig).await["locked"], true);
}

#[tokio::test]
async fn image_ages_are_written_on_a_full_disk() {
    let Some(disk) = Tmpfs::mount(8) else { return };
    let dir = disk.path().join("state");
    let limits = DatabaseLimits {
        evidence_bytes: 0,
        journal_bytes: 65536,
    };
    let open = |dir| Journal::open(dir, limits, Counter::default());
    let opened = open(dir.clone()).await.unwrap();
    room_is_claimed(&dir).await;
    disk.fill();
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut ages = ImageAges::default();
    for round in 0..10 {
        for image in 0..=round * 100 {
            ages.touch(&format!("sha256:{image:064}"), true, now);
        }
        opened.journal.save_ages(&ages);
    }
    opened.journal.settled(PATIENCE).await;
    assert!(opened.journal.status().errors.is_empty());
    drop(opened);
    let again = until("the lock is free", || async {
        open(dir.clone()).await.ok()
    })
    .await;
    assert_eq!(again.stored.ages, ages);
}
