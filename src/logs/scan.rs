//! Reads the entries of both roots.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, DirEntry, FileType, Stat, accessat, fstat, readlinkat, statat};
use rustix::io::Errno;

use super::{ENTRIES_MAX, Error, Roots, each_entry, modified_at, time};
use crate::model::{LinkTarget, LinkedContainer, LogLink, Logs, PodLogDir, Rows, id_in_link};
use crate::system::clock;

/// The links of the latest scan. While their root does not change, the next one asks only whether their logs exist.
#[derive(Debug, Default)]
pub struct KnownLinks {
    /// The root before it was read; `None`: it must be read again.
    root: Option<RootState>,
    links: Rows<LogLink>,
    /// The log of each of them, if it is a link of the kubelet's to one below the pods' root.
    logs: Vec<Option<Box<Path>>>,
}

/// What changes with every entry that comes or goes.
#[derive(Debug, PartialEq, Eq)]
struct RootState {
    path: PathBuf,
    device: u64,
    inode: u64,
    changed_at: Timestamp,
}

/// File systems round the time of a change down, FAT by up to 2 s: two changes may have one time.
const ROUNDED_BY: SignedDuration = SignedDuration::from_secs(2);

impl RootState {
    /// Returns the state, unless it may be the same after a change from now on.
    fn of(path: &Path, root: &OwnedFd, now: Timestamp) -> Option<Self> {
        let stat = fstat(root).ok()?;
        let changed_at = time(stat.st_ctime, stat.st_ctime_nsec);
        let state = Self {
            path: path.to_owned(),
            device: stat.st_dev,
            inode: stat.st_ino,
            changed_at,
        };
        (now.duration_since(changed_at) > ROUNDED_BY).then_some(state)
    }
}

/// Reads both roots independently: if one cannot be read, that is reported and none of its entries are. A
/// missing root is empty. Blocks.
pub fn scan(roots: &Roots, known: KnownLinks) -> (Logs, KnownLinks) {
    scan_at(clock(), roots, known, ENTRIES_MAX)
}

/// The same at a time of the wall clock and with a limit of entries per root.
pub(super) fn scan_at(
    now: Timestamp,
    roots: &Roots,
    known: KnownLinks,
    entries_max: usize,
) -> (Logs, KnownLinks) {
    let mut logs = Logs::default();
    let pods_root = open(roots, &roots.pods, &mut logs);
    let containers_root = open(roots, &roots.containers, &mut logs);
    if let Some(root) = &pods_root {
        let dirs = entries(root, &roots.pods, entries_max, &mut logs, |entry| {
            let stat = entry.stat(root)?;
            Ok(PodLogDir {
                is_dir: entry.is_plain && is(FileType::Directory, &stat),
                inode: stat.st_ino,
                modified_at: modified_at(&stat),
                orphan_since: None,
                path: entry.path().into(),
                name: entry.name,
            })
        });
        logs.dirs = dirs.into();
    }
    let mut now_known = KnownLinks::default();
    if let Some(root) = &containers_root {
        let state = RootState::of(&roots.containers, root, now);
        let unread = logs.unread.len();
        let (mut links, links_logs) = if state.is_some() && state == known.root {
            (known.links, known.logs)
        } else {
            let found = entries(root, &roots.containers, entries_max, &mut logs, |entry| {
                new_link(roots, root, entry)
            });
            let (links, links_logs): (Vec<_>, _) = found.into_iter().unzip();
            (links.into(), links_logs)
        };
        let target = |(link, log): (&LogLink, &Option<Box<Path>>)| match log {
            Some(log) if has_log(pods_root.as_ref(), log) => LinkTarget::Exists,
            _ if is_the_kubelets(link) => target(roots, pods_root.as_ref(), root, &link.name),
            _ => LinkTarget::Unknown,
        };
        let targets = links.iter().zip(&links_logs).map(target);
        let targets: Vec<LinkTarget> = targets.collect();
        // What did not change stays shared with the last look.
        if links
            .iter()
            .zip(&targets)
            .any(|(link, now)| link.target != *now)
        {
            let both = links.iter_mut().zip(targets);
            both.for_each(|(link, now)| link.target = now);
        }
        logs.links = links.clone();
        let root = state.filter(|_| logs.unread.len() == unread);
        now_known = KnownLinks {
            root,
            links,
            logs: links_logs,
        };
    }
    (logs, now_known)
}

/// Returns an entry of the containers' root, and its log below the pods' root; whether that exists is not known.
fn new_link(
    roots: &Roots,
    root: &OwnedFd,
    entry: FoundEntry<'_>,
) -> Result<(LogLink, Option<Box<Path>>), Errno> {
    let stat = entry.stat(root)?;
    let link = LogLink {
        is_link: entry.is_plain && is(FileType::Symlink, &stat),
        target: LinkTarget::Unknown,
        container: LinkedContainer::NotAsked,
        modified_at: modified_at(&stat),
        path: entry.path().into(),
        name: entry.name.into(),
    };
    let names = is_the_kubelets(&link).then(|| link_text(root, &link.name));
    let log = names
        .flatten()
        .and_then(|it| Some(roots.below_pods(&it)?.into()));
    Ok((link, log))
}

fn is_the_kubelets(link: &LogLink) -> bool {
    link.is_link && id_in_link(&link.name).is_some()
}

/// Says whether a log is there. That may follow links on the way, because its answer only keeps; what it does not find
/// is looked at without following any.
fn has_log(pods_root: Option<&OwnedFd>, log: &Path) -> bool {
    pods_root.is_some_and(|root| statat(root, log, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

/// An entry of a root.
struct FoundEntry<'a> {
    /// As the kernel has it.
    raw: &'a DirEntry,
    /// The root, as text.
    root: &'a str,
    /// As text, approximated if necessary.
    name: String,
    /// The text equals the name, and has no control characters.
    is_plain: bool,
}

impl FoundEntry<'_> {
    fn path(&self) -> String {
        [self.root, "/", &self.name].concat()
    }

    fn stat(&self, root: &OwnedFd) -> Result<Stat, Errno> {
        statat(root, self.raw.file_name(), AtFlags::SYMLINK_NOFOLLOW)
    }
}

fn is(kind: FileType, stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

fn open(roots: &Roots, root: &Path, logs: &mut Logs) -> Option<OwnedFd> {
    match roots.open(root) {
        Ok(opened) => {
            let fd = opened.as_ref()?;
            let access = Access::WRITE_OK | Access::EXEC_OK;
            if let Err(errno) = accessat(fd, ".", access, AtFlags::EACCESS) {
                let error = Error::os(root, errno);
                logs.unwritable.push(error.to_string());
            }
            opened
        }
        Err(error) => {
            logs.unread.push(error.to_string());
            None
        }
    }
}

/// Converts the entries of a root; none if it cannot be read completely.
fn entries<T>(
    root: &OwnedFd,
    path: &Path,
    entries_max: usize,
    logs: &mut Logs,
    convert: impl Fn(FoundEntry<'_>) -> Result<T, Errno>,
) -> Vec<T> {
    let mut rows = Vec::new();
    let mut too_many = false;
    let mut unclear = None;
    let shown = path.display().to_string();
    let read = each_entry(root, |raw| {
        if rows.len() >= entries_max {
            too_many = true;
            return false;
        }
        let (name, is_plain) = text(raw.file_name());
        let entry = FoundEntry {
            raw,
            root: &shown,
            name,
            is_plain,
        };
        match convert(entry) {
            Ok(row) => rows.push(row),
            // It was removed during the read.
            Err(Errno::NOENT) => {}
            Err(errno) => unclear = Some((text(raw.file_name()).0, errno)),
        }
        true
    });
    if let Some((name, errno)) = unclear {
        let error = Error::os(&path.join(name), errno);
        logs.unread.push(error.to_string());
    }
    if too_many {
        let text = format!("{shown}: more than {entries_max} entries; the rest is not read");
        logs.unread.push(text);
    }
    if let Err(errno) = read {
        let error = Error::os(path, errno);
        logs.unread.push(error.to_string());
        rows.clear();
    }
    rows
}

fn text(raw: &CStr) -> (String, bool) {
    match raw.to_str() {
        Ok(name) if is_plain(name) => (name.to_owned(), true),
        Ok(name) => (name.replace(char::is_control, "\u{FFFD}"), false),
        Err(_not_text) => (
            raw.to_string_lossy().replace(char::is_control, "\u{FFFD}"),
            false,
        ),
    }
}

fn is_plain(name: &str) -> bool {
    // The kubelet's names are of such letters alone, and there may be thousands.
    name.bytes().all(|letter| letter.is_ascii_graphic()) || !name.chars().any(char::is_control)
}

/// Says whether the target of the link with this name exists.
pub(super) fn target(
    roots: &Roots,
    pods_root: Option<&OwnedFd>,
    containers_root: &OwnedFd,
    name: &str,
) -> LinkTarget {
    let names = link_text(containers_root, name);
    names.map_or(LinkTarget::Unknown, |names| roots.target(pods_root, &names))
}

/// Returns the path in a link; `None` if it cannot be read.
fn link_text(root: &OwnedFd, name: &str) -> Option<PathBuf> {
    let text = readlinkat(root, name, Vec::new()).ok()?;
    Some(OsString::from_vec(text.into_bytes()).into())
}
