//! The files below the log roots: reads their names and a log's end, and removes what its caller names. Never decides.
//!
//! Never reads or removes through a link out of a root or across a mount: everything is opened below the root's
//! descriptor with `openat2` (Linux 5.6), which refuses both. Without it nothing is removed. Only whether a link's log
//! exists is asked through links. All functions here block: run them on `system::blocking`.

mod remove;
mod scan;
mod tail;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat,
};
use rustix::io::Errno;

use crate::model::{FailureClass, LinkTarget};
pub use remove::{container_log, dead_link, pod_dir};
pub use scan::{KnownLinks, scan};
pub use tail::{Tail, tail};

/// The most entries of one root that are read.
pub const ENTRIES_MAX: usize = 1 << 16;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW);

/// Where logs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// The mount point of the host's file system; prefix of the other two.
    pub host_root: PathBuf,
    /// Directory of pod logs, as the host names it.
    pub pods: PathBuf,
    /// Directory of links to container logs, as the host names it.
    pub containers: PathBuf,
}

/// Why something below a log root could not be read or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refused.
    #[error("{path}: {errno}")]
    Os {
        /// The path.
        path: String,
        /// The kernel's error.
        errno: Errno,
    },
    /// Something else is not as it must be.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    fn os(path: &Path, errno: Errno) -> Self {
        let path = path.display().to_string();
        Self::Os { path, errno }
    }

    /// Classifies an error of `openat2`.
    fn opening(path: &Path, errno: Errno) -> Self {
        match errno {
            // `openat2` is missing or forbidden (seccomp).
            Errno::NOSYS | Errno::PERM => Self::Refused(format!(
                "openat2 is not available ({errno}): removing logs needs Linux 5.6 and a sandbox that allows it"
            )),
            Errno::XDEV => Self::Refused(format!(
                "{}: something is mounted there; nothing below it is removed",
                path.display()
            )),
            errno => Self::os(path, errno),
        }
    }

    /// Returns the failure class of a removal that ends with this error.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Os { errno, .. } => match *errno {
                // A process writes to it while it is emptied.
                Errno::BUSY | Errno::NOTEMPTY | Errno::EXIST => FailureClass::Busy,
                Errno::TIMEDOUT => FailureClass::Timeout,
                _ => FailureClass::Other,
            },
            Self::Refused(_) => FailureClass::Other,
        }
    }
}

impl Roots {
    /// Opens a root; `None` if it does not exist. Links in the root's own path belong to the host and are
    /// followed below `host_root`.
    fn open(&self, root: &Path) -> Result<Option<OwnedFd>, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = if self.host_root == Path::new("/") {
            openat(CWD, root, flags, Mode::empty()).map_err(|errno| Error::os(root, errno))
        } else {
            let host = openat(CWD, &self.host_root, flags, Mode::empty())
                .map_err(|errno| Error::os(&self.host_root, errno))?;
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            openat2(&host, root, flags, Mode::empty(), resolve)
                .map_err(|errno| Error::opening(root, errno))
        };
        match opened {
            Ok(root) => Ok(Some(root)),
            Err(Error::Os {
                errno: Errno::NOENT,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a path below the pods' root, if it lies there. It may be written as the host's path or as ours.
    fn below_pods<'a>(&self, names: &'a Path) -> Option<&'a Path> {
        let below_host = names.strip_prefix(&self.host_root);
        let below_host = below_host.or_else(|_| names.strip_prefix("/")).ok()?;
        let pods = self.pods.strip_prefix("/").ok()?;
        below_host.strip_prefix(pods).ok()
    }

    /// Says whether a link's target exists. A link as target counts as existing: it may lead to the runtime's
    /// own directory (cri-dockerd), which may not be visible from here.
    fn target(&self, pods_root: Option<&OwnedFd>, names: &Path) -> LinkTarget {
        let Some(below) = self.below_pods(names) else {
            return self.other_target(names);
        };
        let Some(root) = pods_root else {
            return LinkTarget::Unknown;
        };
        if below.as_os_str().is_empty() {
            return LinkTarget::Unknown;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        match open_below(root, below, flags) {
            Ok(_there) => LinkTarget::Exists,
            // A root without any pod is most likely not the host's: a missing mount.
            Err(Errno::NOENT) if has_entries(root) => LinkTarget::Missing,
            Err(_unclear) => LinkTarget::Unknown,
        }
    }

    /// The same for a target outside the root: it is missing only if its directory is visible.
    fn other_target(&self, names: &Path) -> LinkTarget {
        let sees_host = self.host_root == Path::new("/") && names.is_absolute();
        let (Some(parent), Some(file)) = (names.parent(), names.file_name()) else {
            return LinkTarget::Unknown;
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(parent) = openat(CWD, parent, flags, Mode::empty()) else {
            return LinkTarget::Unknown;
        };
        match statat(&parent, file, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_there) => LinkTarget::Exists,
            Err(Errno::NOENT) if sees_host => LinkTarget::Missing,
            Err(_unclear) => LinkTarget::Unknown,
        }
    }
}

/// Opens a path below `dir`: follows no link, no `..` and no mount.
fn open_below(dir: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    openat2(dir, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Calls `each` with every entry except `.` and `..`, until it returns false.
fn each_entry(dir: impl AsFd, mut each: impl FnMut(&DirEntry) -> bool) -> Result<(), Errno> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !each(&entry) {
            break;
        }
    }
    Ok(())
}

/// Says whether a directory certainly has an entry.
fn has_entries(dir: impl AsFd) -> bool {
    let mut any = false;
    let read = each_entry(dir, |_entry| {
        any = true;
        false
    });
    read.is_ok() && any
}

/// The time of the last change of a file's content.
fn modified_at(stat: &Stat) -> Timestamp {
    time(stat.st_mtime, stat.st_mtime_nsec)
}

/// A time of a file; an unknown one lies in the future, so the entry counts as young.
fn time(seconds: i64, nanoseconds: u64) -> Timestamp {
    let nanoseconds = i32::try_from(nanoseconds).unwrap_or(0);
    Timestamp::new(seconds, nanoseconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
