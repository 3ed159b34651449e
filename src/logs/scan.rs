//! Reads the entries of both roots.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{Access, AtFlags, DirEntry, FileType, Stat, accessat, readlinkat, statat};
use rustix::io::Errno;

use super::{ENTRIES_MAX, Error, Roots, each_entry, modified_at};
use crate::model::{LinkTarget, LinkedContainer, LogLink, Logs, PodLogDir, Text, id_in_link};
use crate::system::maps::IdMap;

/// The links of the latest scan by name, with their inodes: the next one asks only whether their logs exist.
#[derive(Debug, Default)]
pub struct KnownLinks(IdMap<Text, (u64, LogLink)>);

impl KnownLinks {
    /// Returns the link, unless it is another one by now. One that has another one's name and inode differs in its age alone.
    fn get(&self, entry: &FoundEntry<'_>) -> Option<&LogLink> {
        if !entry.is_plain || entry.raw.file_type() != FileType::Symlink {
            return None;
        }
        let (inode, link) = self.0.get(entry.name.as_str())?;
        (*inode == entry.raw.ino() && link.path.starts_with(entry.root)).then_some(link)
    }
}

/// Reads both roots independently: if one cannot be read, that is reported and none of its entries are. A
/// missing root is empty. Blocks.
pub fn scan(roots: &Roots, known: &KnownLinks) -> (Logs, KnownLinks) {
    scan_at_most(roots, known, ENTRIES_MAX)
}

/// The same with a limit of entries per root.
pub(super) fn scan_at_most(
    roots: &Roots,
    known: &KnownLinks,
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
        let links = entries(root, &roots.containers, entries_max, &mut logs, |entry| {
            let (inode, name) = (entry.raw.ino(), entry.raw.file_name());
            let mut link = match known.get(&entry) {
                Some(link) => link.clone(),
                None => new_link(entry, root)?,
            };
            if link.is_link && id_in_link(&link.name).is_some() {
                link.target = target(roots, pods_root.as_ref(), root, name);
            }
            Ok((inode, link))
        });
        // A file that a link has replaced may have left it its inode.
        let found = links.iter().filter(|(_, link)| link.is_link);
        let by_name = found.map(|it| (it.1.name.clone(), it.clone()));
        now_known = KnownLinks(by_name.collect());
        let links = links.into_iter().map(|(_, link)| link);
        logs.links = links.collect::<Vec<_>>().into();
    }
    (logs, now_known)
}

/// Returns an entry of the containers' root; its target is not known.
fn new_link(entry: FoundEntry<'_>, root: &OwnedFd) -> Result<LogLink, Errno> {
    let stat = entry.stat(root)?;
    Ok(LogLink {
        is_link: entry.is_plain && is(FileType::Symlink, &stat),
        target: LinkTarget::Unknown,
        container: LinkedContainer::NotAsked,
        modified_at: modified_at(&stat),
        path: entry.path().into(),
        name: entry.name.into(),
    })
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
