//! Reads the entries of both roots.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, FileType, Stat, accessat, readlinkat, statat};
use rustix::io::Errno;

use super::{ENTRIES_MAX, Error, Roots, each_name, modified_at};
use crate::model::{LinkTarget, LinkedContainer, LogLink, Logs, PodLogDir, id_in_link};

/// Reads both roots independently: if one cannot be read, that is reported and none of its entries are. A
/// missing root is empty. Blocks.
pub fn scan(roots: &Roots) -> Logs {
    scan_at_most(roots, ENTRIES_MAX)
}

/// The same with a limit of entries per root.
pub(super) fn scan_at_most(roots: &Roots, entries_max: usize) -> Logs {
    let mut logs = Logs::default();
    let pods_root = open(roots, &roots.pods, &mut logs);
    let containers_root = open(roots, &roots.containers, &mut logs);
    if let Some(root) = &pods_root {
        let dirs = entries(root, &roots.pods, entries_max, &mut logs, |entry| {
            PodLogDir {
                is_dir: entry.is_plain && entry.is(FileType::Directory),
                inode: entry.stat.st_ino,
                modified_at: modified_at(&entry.stat),
                orphan_since: None,
                path: entry.path.into(),
                name: entry.name,
            }
        });
        logs.dirs = dirs.into();
    }
    if let Some(root) = &containers_root {
        let links = entries(root, &roots.containers, entries_max, &mut logs, |entry| {
            let is_link = entry.is_plain && entry.is(FileType::Symlink);
            let target = if is_link && id_in_link(&entry.name).is_some() {
                target(roots, pods_root.as_ref(), root, entry.raw)
            } else {
                LinkTarget::Unknown
            };
            LogLink {
                is_link,
                target,
                container: LinkedContainer::NotAsked,
                modified_at: modified_at(&entry.stat),
                path: entry.path.into(),
                name: entry.name,
            }
        });
        logs.links = links.into();
    }
    logs
}

/// An entry of a root.
struct DirEntry<'a> {
    /// As the kernel has it.
    raw: &'a CStr,
    /// As text, approximated if necessary.
    name: String,
    /// The text equals the name, and has no control characters.
    is_plain: bool,
    path: String,
    stat: Stat,
}

impl DirEntry<'_> {
    fn is(&self, kind: FileType) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == kind
    }
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
    convert: impl Fn(DirEntry<'_>) -> T,
) -> Vec<T> {
    let mut rows = Vec::new();
    let mut too_many = false;
    let mut unclear = None;
    let shown = path.display().to_string();
    let read = each_name(root, |raw| {
        if rows.len() >= entries_max {
            too_many = true;
            return false;
        }
        let (name, is_plain) = text(raw);
        match statat(root, raw, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => rows.push(convert(DirEntry {
                raw,
                is_plain,
                path: [&shown, "/", &name].concat(),
                name,
                stat,
            })),
            // It was removed during the read.
            Err(Errno::NOENT) => {}
            Err(errno) => unclear = Some((name, errno)),
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
    name: &CStr,
) -> LinkTarget {
    // One call instead of three, for nearly all links. It may follow links, because its answer only keeps; what it does
    // not find is looked at without following any.
    let sees_host = roots.host_root == Path::new("/");
    if sees_host && accessat(containers_root, name, Access::EXISTS, AtFlags::EACCESS).is_ok() {
        return LinkTarget::Exists;
    }
    match readlinkat(containers_root, name, Vec::new()) {
        Ok(names) => {
            let names = Path::new(std::ffi::OsStr::from_bytes(names.to_bytes()));
            roots.target(pods_root, names)
        }
        Err(_unclear) => LinkTarget::Unknown,
    }
}
