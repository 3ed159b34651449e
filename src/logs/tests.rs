use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

use jiff::SignedDuration;
use tempfile::TempDir;

use super::*;
use crate::model::{LogLink, Logs, PodLogDir, RemovalOutcome};
use crate::system::clock;

mod tail;

const DIR: &str = "default_web_0d5f6a2c-1111-4222-8333-0123456789ab";

/// A host with both roots in a temporary directory.
struct Host {
    dir: TempDir,
    roots: Roots,
}

impl Host {
    /// The roots' paths are the real ones.
    fn plain() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            host_root: "/".into(),
            pods: dir.path().join("var/log/pods"),
            containers: dir.path().join("var/log/containers"),
        };
        Self::new(dir, roots)
    }

    /// The host's files below a directory.
    fn mounted() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            host_root: dir.path().to_owned(),
            pods: "/var/log/pods".into(),
            containers: "/var/log/containers".into(),
        };
        Self::new(dir, roots)
    }

    fn new(dir: TempDir, roots: Roots) -> Self {
        for root in ["pods", "containers"] {
            fs::create_dir_all(dir.path().join("var/log").join(root)).unwrap();
        }
        Self { dir, roots }
    }

    /// The real path of a path below `/var/log`.
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("var/log").join(path)
    }

    fn write(&self, path: &str, bytes: usize) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; bytes]).unwrap();
    }

    /// Makes a link as the kubelet does: with the host's path as text.
    fn link(&self, name: &str, log: &str) {
        symlink(self.roots.pods.join(log), self.at("containers").join(name)).unwrap();
    }

    fn dirs(&self) -> Vec<PodLogDir> {
        let logs = scan(&self.roots);
        assert_eq!(logs.unread, [""; 0]);
        logs.dirs.to_vec()
    }

    fn links(&self) -> Vec<LogLink> {
        scan(&self.roots).links.to_vec()
    }

    /// Removes a pod's directory as a plan of this moment would.
    fn remove_dir(&self, name: &str) -> Result<RemovalOutcome, Error> {
        let dirs = self.dirs();
        let dir = dirs.iter().find(|dir| dir.name == name).unwrap();
        pod_dir(&self.roots, name, dir.inode, dir.modified_at)
    }
}

fn scan(roots: &Roots) -> Logs {
    super::scan(roots, KnownLinks::default()).0
}

fn id() -> String {
    "0123456789abcdef".repeat(4)
}

fn link_name() -> String {
    format!("web_default_app-{}.log", id())
}

fn freed(done: &RemovalOutcome) -> u64 {
    match done {
        RemovalOutcome::Removed { freed_bytes } => freed_bytes.unwrap(),
        RemovalOutcome::AlreadyGone
        | RemovalOutcome::Skipped { .. }
        | RemovalOutcome::Failed { .. }
        | RemovalOutcome::Lost { .. }
        | RemovalOutcome::NotBegun => panic!("{done:?}"),
    }
}

#[test]
fn reads_the_entries_of_the_root_and_nothing_below() {
    for host in [Host::plain(), Host::mounted()] {
        host.write(&format!("pods/{DIR}/app/0.log"), 10);
        host.write("pods/lost+found/x", 1);
        host.write("pods/a-file", 1);
        symlink(host.at(&format!("pods/{DIR}")), host.at("pods/a-link")).unwrap();
        let mut dirs = host.dirs();
        dirs.sort_by(|a, b| a.name.cmp(&b.name));
        let seen: Vec<(&str, bool)> = dirs
            .iter()
            .map(|it| (it.name.as_str(), it.is_dir))
            .collect();
        let wanted = [
            ("a-file", false),
            ("a-link", false),
            (DIR, true),
            ("lost+found", true),
        ];
        assert_eq!(seen, wanted);
        let path = host.roots.pods.join(DIR).display().to_string();
        assert_eq!(dirs[2].path.as_str(), path);
        let mtime = fs::metadata(host.at(&format!("pods/{DIR}"))).unwrap();
        assert_eq!(dirs[2].inode, mtime.ino());
        assert_eq!(dirs[2].modified_at.as_second(), mtime.mtime());
    }
}

#[test]
fn a_missing_root_is_empty_and_a_root_that_is_no_directory_is_reported() {
    let host = Host::plain();
    fs::remove_dir(host.at("pods")).unwrap();
    host.link(&link_name(), &format!("{DIR}/app/0.log"));
    let logs = scan(&host.roots);
    assert_eq!((logs.dirs.len(), logs.unread.len()), (0, 0));
    // Without its root, the log's existence is unknown: the root may not be visible here.
    assert_eq!(logs.links[0].target, LinkTarget::Unknown);
    fs::write(host.at("pods"), "").unwrap();
    let logs = scan(&host.roots);
    assert_eq!(logs.unread.len(), 1, "{:?}", logs.unread);
    assert!(
        logs.unread[0].contains("pods: Not a directory"),
        "{:?}",
        logs.unread
    );
    // The other root is read all the same.
    assert_eq!(logs.links.len(), 1);
}

/// Each change of a known link between two scans, and what the second one tells as the first does of a new link.
#[test]
fn a_known_link_is_told_as_it_is_now() {
    let host = Host::plain();
    let (log, name) = (format!("{DIR}/app/0.log"), link_name());
    let (file, link) = (
        host.at(&format!("pods/{log}")),
        host.at("containers").join(&name),
    );
    host.write(&format!("pods/{log}"), 1);
    host.link(&name, &log);
    let mut known = KnownLinks::default();
    let mut seen = || {
        // Beyond the tick of the kernel's clock, which dates changes.
        std::thread::sleep(Duration::from_millis(20));
        let logs = scan_again(&host, &mut known, LONG_AFTER);
        assert_eq!(logs, scan(&host.roots));
        let links = logs.links.iter().map(|it| (it.is_link, it.target));
        links.collect::<Vec<_>>()
    };
    assert_eq!(seen(), [(true, LinkTarget::Exists)]);
    fs::remove_file(&file).unwrap();
    assert_eq!(seen(), [(true, LinkTarget::Missing)]);
    fs::write(&file, "x").unwrap();
    assert_eq!(seen(), [(true, LinkTarget::Exists)]);
    // Another link, made beside so that it has another inode, and of another age.
    let beside = host.at("beside");
    symlink("/elsewhere/0.log", &beside).unwrap();
    date(&beside, 7);
    fs::rename(&beside, &link).unwrap();
    assert_eq!(seen(), [(true, LinkTarget::Unknown)]);
    fs::remove_file(&link).unwrap();
    fs::write(&link, "").unwrap();
    assert_eq!(seen(), [(false, LinkTarget::Unknown)]);
    fs::remove_file(&link).unwrap();
    // Many file systems give it the inode of the file.
    host.link(&name, &log);
    assert_eq!(seen(), [(true, LinkTarget::Exists)]);
    fs::remove_file(&link).unwrap();
    assert_eq!(seen(), []);
}

/// Only a change of the root makes a scan read it again; that a link's age changed does not, which shows what was read.
#[test]
fn a_root_that_changed_a_moment_ago_is_read_again() {
    let (host, mut known) = (Host::plain(), KnownLinks::default());
    let link = host.at("containers").join(link_name());
    host.link(&link_name(), "a.log");
    let mut age = |second, after| {
        date(&link, second);
        let logs = scan_again(&host, &mut known, after);
        logs.links[0].modified_at.as_second()
    };
    assert_eq!(age(1, LONG_AFTER), 1);
    assert_eq!(age(2, SignedDuration::ZERO), 2);
    assert_eq!(age(3, LONG_AFTER), 3);
    assert_eq!(age(4, LONG_AFTER), 3);
}

const LONG_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Scans as if it were that much later.
fn scan_again(host: &Host, known: &mut KnownLinks, later: SignedDuration) -> Logs {
    let before = std::mem::take(known);
    let (logs, now_known) = scan::scan_at(clock() + later, &host.roots, before, ENTRIES_MAX);
    *known = now_known;
    logs
}

/// Dates a link.
fn date(link: &Path, second: i64) {
    let at = rustix::fs::Timespec {
        tv_sec: second,
        tv_nsec: 0,
    };
    let times = rustix::fs::Timestamps {
        last_access: at,
        last_modification: at,
    };
    rustix::fs::utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn more_entries_than_the_bound_are_reported() {
    let host = Host::plain();
    for number in 0..=10 {
        fs::create_dir(host.at(&format!("pods/{number}"))).unwrap();
    }
    let at_most = |entries| scan::scan_at(clock(), &host.roots, KnownLinks::default(), entries).0;
    let logs = at_most(10);
    assert_eq!(logs.dirs.len(), 10);
    assert_eq!(logs.unread.len(), 1);
    assert!(logs.unread[0].contains("more than 10 entries"));
    let logs = at_most(11);
    assert_eq!((logs.dirs.len(), logs.unread.len()), (11, 0));
}

#[test]
fn names_that_are_no_plain_text_are_foreign() {
    let host = Host::plain();
    let odd = [
        format!("{DIR}\n").into_bytes(),
        b"default_web_\xff".to_vec(),
    ];
    for name in &odd {
        fs::create_dir(host.at("pods").join(OsStr::from_bytes(name))).unwrap();
    }
    symlink(
        "/nowhere",
        host.at("containers").join(format!("a\n-{}.log", id())),
    )
    .unwrap();
    let dirs = host.dirs();
    assert_eq!(dirs.len(), 2);
    assert!(dirs.iter().all(|dir| !dir.is_dir));
    assert!(
        dirs.iter()
            .all(|dir| !dir.path.chars().any(char::is_control))
    );
    assert!(!host.links()[0].is_link);
}

#[test]
fn a_link_is_dead_only_if_its_log_is_known_to_be_gone() {
    for host in [Host::plain(), Host::mounted()] {
        let target = |text: &Path| {
            let path = host.at("containers").join(link_name());
            symlink(text, &path).unwrap();
            let target = host.links()[0].target;
            fs::remove_file(path).unwrap();
            target
        };
        let pods = &host.roots.pods;
        let log = pods.join(DIR).join("app/0.log");
        // An empty root may be a directory in place of the host's.
        assert_eq!(target(&log), LinkTarget::Unknown);
        host.write("pods/other/x", 1);
        assert_eq!(target(&log), LinkTarget::Missing);
        host.write(&format!("pods/{DIR}/app/1.log"), 1);
        assert_eq!(target(&log), LinkTarget::Missing);
        host.write(&format!("pods/{DIR}/app/0.log"), 1);
        assert_eq!(target(&log), LinkTarget::Exists);
        // The runtime's own files need not be visible from here.
        fs::remove_file(host.at(&format!("pods/{DIR}/app/0.log"))).unwrap();
        symlink("/var/lib/x.log", host.at(&format!("pods/{DIR}/app/0.log"))).unwrap();
        assert_eq!(target(&log), LinkTarget::Exists);
        symlink("loop", host.at("pods/loop")).unwrap();
        // The path as we see it ourselves.
        assert_eq!(target(&host.at("pods/nothing.log")), LinkTarget::Missing);
        // A target elsewhere counts as missing only if the host's side is visible.
        let sees_host = host.roots.host_root == Path::new("/");
        let elsewhere = target(Path::new("/var/lib/elsewhere.log"));
        assert_eq!(elsewhere == LinkTarget::Missing, sees_host);
        // The rest may exist, but is never missing.
        for unclear in [
            &host.at("pods"),
            Path::new("/no/such/directory.log"),
            Path::new("../pods/nothing.log"),
            &pods.join("../containers/nothing.log"),
            &pods.join("loop/x.log"),
            pods,
        ] {
            let target = target(unclear);
            assert_ne!(target, LinkTarget::Missing, "{}", unclear.display());
        }
    }
}

#[test]
fn removing_a_directory_removes_its_content_and_reports_the_freed_bytes() {
    for host in [Host::plain(), Host::mounted()] {
        host.write(&format!("pods/{DIR}/app/0.log"), 100_000);
        host.write(&format!("pods/{DIR}/app/0.log.20260101-000000.gz"), 5_000);
        host.write(&format!("pods/{DIR}/a/b/c/d"), 1);
        host.write("outside/keep", 1);
        symlink(host.at("outside"), host.at(&format!("pods/{DIR}/dir-link"))).unwrap();
        symlink(
            host.at("outside/keep"),
            host.at(&format!("pods/{DIR}/app/link")),
        )
        .unwrap();
        symlink("self", host.at(&format!("pods/{DIR}/self"))).unwrap();
        // Another name holds its blocks.
        let linked = host.at(&format!("pods/{DIR}/app/linked"));
        fs::write(&linked, vec![b'x'; 50_000]).unwrap();
        fs::hard_link(&linked, host.at("outside/linked")).unwrap();
        let blocks = |path: &str| fs::metadata(host.at(path)).unwrap().blocks() * 512;
        let wanted = blocks(&format!("pods/{DIR}/app/0.log"))
            + blocks(&format!("pods/{DIR}/app/0.log.20260101-000000.gz"))
            + blocks(&format!("pods/{DIR}/a/b/c/d"));
        assert_eq!(freed(&host.remove_dir(DIR).unwrap()), wanted);
        assert!(wanted >= 105_000);
        assert_eq!(host.dirs(), []);
        assert!(host.at("outside/keep").exists() && host.at("outside/linked").exists());
    }
}

#[test]
fn ten_thousand_files_are_removed() {
    let host = Host::plain();
    host.write(&format!("pods/{DIR}/app/0.log"), 0);
    for number in 1..10_000 {
        fs::write(host.at(&format!("pods/{DIR}/app/{number}.log")), "").unwrap();
    }
    host.remove_dir(DIR).unwrap();
    assert_eq!(host.dirs(), []);
}

#[test]
fn another_directory_than_was_planned_stays() {
    let host = Host::plain();
    host.write(&format!("pods/{DIR}/app/0.log"), 1);
    let planned = host.dirs().remove(0);
    let remove = |it: &PodLogDir| pod_dir(&host.roots, &it.name, it.inode, it.modified_at);
    // Something was made in it.
    host.write(&format!("pods/{DIR}/new"), 1);
    let now = host.dirs().remove(0);
    assert_ne!(now.modified_at, planned.modified_at);
    let changed = RemovalOutcome::skipped("it has changed since the plan");
    assert_eq!(remove(&planned).unwrap(), changed);
    // Another directory, changed at the same moment.
    let other = PodLogDir {
        inode: now.inode + 1,
        ..now.clone()
    };
    assert_eq!(remove(&other).unwrap(), changed);
    // A link or a file was put in its place.
    let elsewhere = host.at("elsewhere");
    fs::rename(host.at(&format!("pods/{DIR}")), &elsewhere).unwrap();
    let not = RemovalOutcome::skipped("it is no longer a directory");
    symlink(&elsewhere, host.at(&format!("pods/{DIR}"))).unwrap();
    assert_eq!(remove(&now).unwrap(), not);
    fs::remove_file(host.at(&format!("pods/{DIR}"))).unwrap();
    fs::write(host.at(&format!("pods/{DIR}")), "").unwrap();
    assert_eq!(remove(&now).unwrap(), not);
    assert!(elsewhere.join("app/0.log").exists());
    fs::remove_file(host.at(&format!("pods/{DIR}"))).unwrap();
    assert_eq!(remove(&now).unwrap(), RemovalOutcome::AlreadyGone);
    fs::remove_dir(host.at("pods")).unwrap();
    assert_eq!(remove(&now).unwrap(), RemovalOutcome::AlreadyGone);
}

#[test]
fn no_name_leads_out_of_the_root() {
    let host = Host::plain();
    host.write("outside/keep", 1);
    host.link(&link_name(), "x");
    let stat = fs::metadata(host.at("outside")).unwrap();
    let moment = Timestamp::new(stat.mtime(), i32::try_from(stat.mtime_nsec()).unwrap()).unwrap();
    symlink(host.at("outside"), host.at("pods/link")).unwrap();
    for name in ["../outside", "link", "link/.", "/etc"] {
        let done = pod_dir(&host.roots, name, stat.ino(), moment);
        assert!(
            !matches!(done, Ok(RemovalOutcome::Removed { .. })),
            "{name}: {done:?}"
        );
    }
    for log in [
        "../outside/keep",
        "link/keep",
        "../../../etc/hostname",
        "..",
    ] {
        let done = container_log(&host.roots, Path::new(log), None);
        assert!(
            !matches!(done, Ok(RemovalOutcome::Removed { .. })),
            "{log}: {done:?}"
        );
    }
    assert!(host.at("outside/keep").exists());
}

#[test]
fn too_deep_a_tree_stays_whole() {
    let host = Host::plain();
    let deep = |depth: usize| format!("pods/{DIR}/{}file", "d/".repeat(depth));
    host.write(&deep(16), 1);
    host.remove_dir(DIR).unwrap();
    host.write(&deep(17), 1);
    host.write(&format!("pods/{DIR}/other"), 1);
    let error = host.remove_dir(DIR).unwrap_err();
    assert!(error.to_string().contains("nested directories"), "{error}");
    assert!(host.at(&format!("pods/{DIR}/other")).exists());
    assert!(host.at(&deep(17)).exists());
}

#[test]
fn a_dead_link_is_removed_and_a_live_one_stays() {
    for host in [Host::plain(), Host::mounted()] {
        let name = link_name();
        assert_eq!(
            dead_link(&host.roots, &name).unwrap(),
            RemovalOutcome::AlreadyGone
        );
        host.link(&name, &format!("{DIR}/app/0.log"));
        host.write(&format!("pods/{DIR}/app/0.log"), 1);
        let there = RemovalOutcome::skipped("its target exists or cannot be checked");
        assert_eq!(dead_link(&host.roots, &name).unwrap(), there);
        fs::remove_file(host.at(&format!("pods/{DIR}/app/0.log"))).unwrap();
        assert_eq!(freed(&dead_link(&host.roots, &name).unwrap()), 0);
        assert_eq!(host.links(), []);
        fs::write(host.at("containers").join(&name), "").unwrap();
        let none = RemovalOutcome::skipped("it is no longer a link");
        assert_eq!(dead_link(&host.roots, &name).unwrap(), none);
    }
}

#[test]
fn removes_a_containers_log_its_rotations_and_its_link_and_nothing_else() {
    for host in [Host::plain(), Host::mounted()] {
        let name = link_name();
        let log = format!("{DIR}/app/0.log");
        host.link(&name, &log);
        for file in [
            "0.log",
            "0.log.20260101-000000",
            "0.log.20260101-000000.gz",
            "0.log.tmp",
        ] {
            host.write(&format!("pods/{DIR}/app/{file}"), 1);
        }
        let others = [
            "1.log",
            "10.log",
            "0.logs",
            "0.lo",
            "x0.log",
            "0.log.d/inside",
        ];
        for file in others {
            host.write(&format!("pods/{DIR}/app/{file}"), 1);
        }
        let done = container_log(&host.roots, Path::new(&log), Some(&name)).unwrap();
        assert!(freed(&done) > 0);
        assert_eq!(host.links(), []);
        let left = fs::read_dir(host.at(&format!("pods/{DIR}/app")))
            .unwrap()
            .count();
        assert_eq!(left, others.len());
        let again = container_log(&host.roots, Path::new(&log), Some(&name)).unwrap();
        assert_eq!(again, RemovalOutcome::AlreadyGone);
        // The log is gone, the link is not: the state after a crash in between.
        host.link(&name, &log);
        let done = container_log(&host.roots, Path::new(&log), Some(&name)).unwrap();
        assert_eq!(freed(&done), 0);
        assert_eq!(host.links(), []);
    }
}

#[test]
fn a_log_removed_with_its_directory_is_not_removed_again_but_its_link_is() {
    for host in [Host::plain(), Host::mounted()] {
        let name = link_name();
        let log = format!("{DIR}/app/0.log");
        host.write(&format!("pods/{log}"), 1);
        host.link(&name, &log);
        assert!(freed(&host.remove_dir(DIR).unwrap()) > 0);
        let done = container_log(&host.roots, Path::new(&log), Some(&name)).unwrap();
        assert_eq!(done, RemovalOutcome::AlreadyGone);
        assert_eq!(host.links(), []);
    }
}

#[test]
fn a_mount_inside_prevents_any_removal() {
    let host = Host::plain();
    host.write(&format!("pods/{DIR}/app/0.log"), 1);
    fs::create_dir(host.at(&format!("pods/{DIR}/zz"))).unwrap();
    let mounted = Mounted::on(&host.at(&format!("pods/{DIR}/zz")));
    let Some(mounted) = mounted else {
        eprintln!("mounting is not allowed here: only root can see this");
        return;
    };
    let error = host.remove_dir(DIR).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("/zz: something is mounted there"),
        "{error}"
    );
    assert!(host.at(&format!("pods/{DIR}/app/0.log")).exists());
    drop(mounted);
    host.remove_dir(DIR).unwrap();
    assert_eq!(host.dirs(), []);
}

#[test]
fn a_read_only_root_is_reported_before_any_removal() {
    let host = Host::plain();
    host.write(&format!("pods/{DIR}/app/0.log"), 1);
    assert_eq!(scan(&host.roots).unwritable, [""; 0]);
    let Some(mounted) = Mounted::read_only(&host.at("pods")) else {
        eprintln!("mounting is not allowed here: only root can see this");
        return;
    };
    let logs = scan(&host.roots);
    assert_eq!(logs.dirs.len(), 1);
    assert_eq!(logs.unwritable.len(), 1);
    assert!(
        logs.unwritable[0].contains("Read-only file system"),
        "{:?}",
        logs.unwritable
    );
    let error = host.remove_dir(DIR).unwrap_err();
    assert!(
        error.to_string().contains("Read-only file system"),
        "{error}"
    );
    assert_eq!(error.class(), FailureClass::Other);
    drop(mounted);
}

/// A mount, until it is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn on(path: &Path) -> Option<Self> {
        Self::mount(path, &["-t", "tmpfs", "tmpfs"])
    }

    fn read_only(path: &Path) -> Option<Self> {
        let from = path.display().to_string();
        Self::mount(path, &["-o", "bind,ro", &from])
    }

    fn mount(path: &Path, how: &[&str]) -> Option<Self> {
        let output = std::process::Command::new("mount")
            .args(how)
            .arg(path)
            .output();
        output
            .is_ok_and(|it| it.status.success())
            .then(|| Self(path.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount").arg(&self.0).status();
        assert!(status.unwrap().success());
    }
}

#[test]
fn failures_have_the_class_that_others_have() {
    let class = |errno| Error::os(Path::new("x"), errno).class();
    assert_eq!(class(Errno::BUSY), FailureClass::Busy);
    assert_eq!(class(Errno::NOTEMPTY), FailureClass::Busy);
    assert_eq!(class(Errno::ACCESS), FailureClass::Other);
    let missing = Error::opening(Path::new("x"), Errno::NOSYS);
    assert!(missing.to_string().contains("Linux 5.6"), "{missing}");
}
