//! Removes a pod's directory, a dead link, or the log of a removed container.

use std::ffi::{CStr, CString};
use std::path::Path;

use jiff::Timestamp;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Stat, fstat, statat, unlinkat};
use rustix::io::Errno;

use super::{DIRECTORY, Error, Roots, each_entry, modified_at, open_below, scan};
use crate::model::{LinkTarget, RemovalOutcome};

/// The deepest directory nesting; the kubelet makes two levels.
const DEPTH_MAX: usize = 16;
/// The most entries of a pod's directory, at any depth.
const DIR_ENTRIES_MAX: usize = 1 << 18;

/// Removes the directory with this name in the pods' log root and all its content, if it is still the planned
/// one. Removes nothing if it contains a mount, or more than a pod's logs ever have. Blocks.
///
/// # Errors
/// The kernel's error; entries removed before it stay removed.
pub fn pod_dir(
    roots: &Roots,
    name: &str,
    inode: u64,
    planned: Timestamp,
) -> Result<RemovalOutcome, Error> {
    let Some(root) = roots.open(&roots.pods)? else {
        return Ok(RemovalOutcome::AlreadyGone);
    };
    let path = roots.pods.join(name);
    let dir = match open_below(&root, Path::new(name), DIRECTORY) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(RemovalOutcome::AlreadyGone),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return Ok(RemovalOutcome::skipped("it is no longer a directory"));
        }
        Err(errno) => return Err(Error::opening(&path, errno)),
    };
    let stat = fstat(&dir).map_err(|errno| Error::os(&path, errno))?;
    if stat.st_ino != inode || modified_at(&stat) != planned {
        return Ok(RemovalOutcome::skipped("it has changed since the plan"));
    }
    let mut seen = 0;
    survey(&dir, &path, DEPTH_MAX, &mut seen)?;
    let mut freed_bytes = 0;
    empty(&dir, &path, DEPTH_MAX, &mut freed_bytes)?;
    // By name, but only if empty: whatever has the name now loses nothing.
    unlink(&root, &c_string(name), AtFlags::REMOVEDIR, &path)?;
    Ok(removed(freed_bytes))
}

/// Removes the link with this name in the containers' log root, if it is a link and still dead. Blocks.
///
/// # Errors
/// The kernel's error.
pub fn dead_link(roots: &Roots, name: &str) -> Result<RemovalOutcome, Error> {
    let Some(root) = roots.open(&roots.containers)? else {
        return Ok(RemovalOutcome::AlreadyGone);
    };
    let (path, c_name) = (roots.containers.join(name), c_string(name));
    match stat_of(&root, &c_name, &path)? {
        None => return Ok(RemovalOutcome::AlreadyGone),
        Some(stat) if kind(&stat) != FileType::Symlink => {
            return Ok(RemovalOutcome::skipped("it is no longer a link"));
        }
        Some(_) => {}
    }
    let pods_root = roots.open(&roots.pods)?;
    match scan::target(roots, pods_root.as_ref(), &root, name) {
        LinkTarget::Missing => {}
        LinkTarget::Exists | LinkTarget::Unknown => {
            return Ok(RemovalOutcome::skipped(
                "its target exists or cannot be checked",
            ));
        }
    }
    unlink(&root, &c_name, AtFlags::empty(), &path)?;
    Ok(removed(0))
}

/// Removes a container's log file, its rotations (`<file>.*` beside it), and then its link. `log` is the
/// file's path below the pods' log root. A crash in between leaves a dead link, which a later pass removes.
/// If the file's directory is gone, the log was counted with it: only the link is removed, and no second
/// removal is reported. Blocks.
///
/// # Errors
/// The kernel's error; files removed before it stay removed.
pub fn container_log(
    roots: &Roots,
    log: &Path,
    link: Option<&str>,
) -> Result<RemovalOutcome, Error> {
    let mut freed_bytes = 0;
    let (mut is_removed, mut went_with_directory) = (false, false);
    let path = roots.pods.join(log);
    let (Some(parent), Some(file)) = (log.parent(), log.file_name().and_then(|it| it.to_str()))
    else {
        return Ok(RemovalOutcome::skipped("its log has no name"));
    };
    if let Some(root) = roots.open(&roots.pods)? {
        match open_below(&root, parent, DIRECTORY) {
            Ok(dir) => is_removed = log_files(&dir, file, &path, &mut freed_bytes)?,
            Err(Errno::NOENT) => went_with_directory = true,
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Ok(RemovalOutcome::skipped(
                    "its log is not in a directory of its own",
                ));
            }
            Err(errno) => return Err(Error::opening(&path, errno)),
        }
    }
    if let Some(link) = link
        && let Some(root) = roots.open(&roots.containers)?
    {
        let (path, name) = (roots.containers.join(link), c_string(link));
        let stat = stat_of(&root, &name, &path)?;
        if stat.is_some_and(|stat| kind(&stat) == FileType::Symlink) {
            unlink(&root, &name, AtFlags::empty(), &path)?;
            is_removed = !went_with_directory;
        }
    }
    Ok(if is_removed {
        removed(freed_bytes)
    } else {
        RemovalOutcome::AlreadyGone
    })
}

fn removed(freed_bytes: u64) -> RemovalOutcome {
    let freed_bytes = Some(freed_bytes);
    RemovalOutcome::Removed { freed_bytes }
}

/// Removes the file and its rotations; says whether there were any.
fn log_files(dir: &OwnedFd, file: &str, path: &Path, freed_bytes: &mut u64) -> Result<bool, Error> {
    let rotation = format!("{file}.");
    let mut names = Vec::new();
    each_entry(dir, |entry| {
        let name = entry.file_name();
        let bytes = name.to_bytes();
        if bytes == file.as_bytes() || bytes.starts_with(rotation.as_bytes()) {
            names.push(name.to_owned());
        }
        names.len() < DIR_ENTRIES_MAX
    })
    .map_err(|errno| Error::os(path, errno))?;
    names.sort();
    let mut removed = false;
    for name in names {
        match stat_of(dir, &name, path)? {
            // cri-dockerd makes the log a link; the kubelet makes no directory here.
            Some(stat) if matches!(kind(&stat), FileType::RegularFile | FileType::Symlink) => {
                unlink(dir, &name, AtFlags::empty(), path)?;
                *freed_bytes += freed(&stat);
                removed = true;
            }
            Some(_) | None => {}
        }
    }
    Ok(removed)
}

/// Walks the whole directory before the first removal, so that a limit or mount stops it in time.
fn survey(dir: &OwnedFd, path: &Path, depth: usize, seen: &mut usize) -> Result<(), Error> {
    for name in names(dir, path)? {
        *seen += 1;
        if *seen > DIR_ENTRIES_MAX {
            return Err(too_much(path, "entries", DIR_ENTRIES_MAX));
        }
        let path = path.join(file_name(&name));
        if let Some(below) = directory(dir, &name, &path, depth)? {
            survey(&below, &path, depth - 1, seen)?;
        }
    }
    Ok(())
}

fn empty(dir: &OwnedFd, path: &Path, depth: usize, freed_bytes: &mut u64) -> Result<(), Error> {
    for name in names(dir, path)? {
        let path = path.join(file_name(&name));
        if let Some(below) = directory(dir, &name, &path, depth)? {
            empty(&below, &path, depth - 1, freed_bytes)?;
            unlink(dir, &name, AtFlags::REMOVEDIR, &path)?;
        } else if let Some(stat) = stat_of(dir, &name, &path)? {
            unlink(dir, &name, AtFlags::empty(), &path)?;
            *freed_bytes += freed(&stat);
        }
    }
    Ok(())
}

/// Opens an entry that is a directory; `None` for any other, and for one that is gone.
fn directory(
    dir: &OwnedFd,
    name: &CStr,
    path: &Path,
    depth: usize,
) -> Result<Option<OwnedFd>, Error> {
    match stat_of(dir, name, path)? {
        Some(stat) if kind(&stat) == FileType::Directory => {}
        Some(_) | None => return Ok(None),
    }
    if depth == 0 {
        return Err(too_much(path, "nested directories", DEPTH_MAX));
    }
    match open_below(dir, file_name(name), DIRECTORY) {
        Ok(below) => Ok(Some(below)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::opening(path, errno)),
    }
}

/// Returns the names of the entries, at most one more than the limit.
fn names(dir: &OwnedFd, path: &Path) -> Result<Vec<CString>, Error> {
    let mut names = Vec::new();
    each_entry(dir, |entry| {
        names.push(entry.file_name().to_owned());
        names.len() <= DIR_ENTRIES_MAX
    })
    .map_err(|errno| Error::os(path, errno))?;
    Ok(names)
}

fn stat_of(dir: impl AsFd, name: &CStr, path: &Path) -> Result<Option<Stat>, Error> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Error::os(path, errno)),
    }
}

/// Removes one entry; gone is success.
fn unlink(dir: impl AsFd, name: &CStr, flags: AtFlags, path: &Path) -> Result<(), Error> {
    match unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::os(path, errno)),
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the freed bytes: none for a file with another hard link.
fn freed(stat: &Stat) -> u64 {
    let last_name = kind(stat) == FileType::RegularFile && stat.st_nlink == 1;
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    if last_name { blocks * 512 } else { 0 }
}

fn too_much(path: &Path, what: &str, limit: usize) -> Error {
    let path = path.display();
    Error::Refused(format!(
        "{path}: more than {limit} {what}; nothing of it is removed"
    ))
}

fn file_name(name: &CStr) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

/// Names in plans contain no NUL: the kernel returned them, or they have the kubelet's shape.
fn c_string(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}
