//! The lock that allows one crisweep per node: a lock on a file in the state directory. The kernel releases
//! it when the process ends, however it ends.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::database::Error;
use super::files::{self, FileIdentity};

/// The file's name.
pub(super) const NAME: &str = "lock";
/// Size of the file's only line; overwritten in place, so that it needs space only once.
const LINE_BYTES: usize = 256;

/// Another crisweep works on this node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another crisweep works on this node: {holder} holds {}", path.display())]
pub struct LockHeld {
    /// The holder.
    pub holder: LockHolder,
    /// The lock file.
    pub path: PathBuf,
}

/// The holder of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// A process: its id in its own namespace, and the name of its machine or container.
    Process {
        /// Its id.
        pid: u32,
        /// Its host's name.
        host: String,
        /// The runtime's socket that it works on.
        runtime: Socket,
    },
    /// It could not write its id.
    Unnamed,
}

impl LockHolder {
    /// Says whether it certainly works on another runtime. One runtime has many paths: links, and mounts in
    /// containers.
    pub fn uses_another_runtime(&self, than: &str) -> bool {
        match self {
            Self::Process { runtime, .. } => runtime.is_another(&Socket::at(than)),
            Self::Unnamed => false,
        }
    }
}

/// The place of a runtime's socket. The socket itself is new after each restart of the runtime; its directory
/// stays, and has the same device and inode wherever it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Without links, as its process sees it.
    path: PathBuf,
    /// Device and inode of its directory; `-` if they could not be read.
    dir: String,
}

impl Socket {
    fn at(path: &str) -> Self {
        let configured = Path::new(path);
        let (dir, name) = (configured.parent(), configured.file_name());
        let in_dir = |dir: &Path| Some(fs::canonicalize(dir).ok()?.join(name?));
        let path = fs::canonicalize(configured).ok();
        // A stopped runtime has no socket.
        let path = path.or_else(|| in_dir(dir?));
        let path = path.unwrap_or_else(|| configured.to_owned());
        let dir = path.parent().and_then(|dir| fs::metadata(dir).ok());
        let dir = dir.map(|dir| format!("{:x}:{:x}", dir.dev(), dir.ino()));
        Self {
            path,
            dir: dir.unwrap_or_else(|| "-".to_owned()),
        }
    }

    /// Only if path and directory both differ: two crisweeps on one runtime are worse than none.
    fn is_another(&self, other: &Self) -> bool {
        let known = self.dir != "-" && other.dir != "-";
        let same_place = self.dir == other.dir && self.path.file_name() == other.path.file_name();
        known && !same_place && self.path != other.path
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, host, runtime } => {
                write!(f, "pid {pid} (on {host}, {})", runtime.path.display())
            }
            Self::Unnamed => write!(f, "a process that could not write its pid"),
        }
    }
}

/// Why nothing is stored.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Another crisweep holds the lock.
    Held(LockHeld),
    /// What failed.
    Failed(Error),
}

/// The lock, held for as long as this lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock for work on this runtime, without waiting.
    pub(super) fn take(dir: &Path, runtime: &str) -> Result<Self, Unusable> {
        let failed = |source| {
            let path = dir.to_owned();
            Unusable::Failed(Error::File { path, source })
        };
        files::make_dir(dir).map_err(failed)?;
        let path = dir.join(NAME);
        let file = open(&path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let holder = holder(&file);
                return Err(Unusable::Held(LockHeld { holder, path }));
            }
            Err(error) => return Err(failed(error.into())),
        }
        // The lock counts, not the line: on a full disk the next process sees no pid.
        if let Err(error) = file.write_all_at(line(runtime).as_bytes(), 0) {
            tracing::debug!(%error, path = %path.display(), "the holder's pid cannot be written to the lock");
        }
        Ok(Self { file, path })
    }

    /// Says whether the lock file in the directory is still ours.
    pub(super) fn is_in_place(&self) -> bool {
        let ours = self.file.metadata().map(|it| FileIdentity::of(&it));
        ours.map_or(true, |ours| ours.is_at(&self.path))
    }
}

/// Returns the holder of a state directory's lock, without changing anything.
pub fn held(dir: &Path) -> Option<LockHeld> {
    let path = dir.join(NAME);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let options = options.read(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(&path).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(LockHeld {
            holder: holder(&file),
            path,
        }),
        Ok(()) | Err(_) => None,
    }
}

/// A lock needs no write access: an existing file on a read-only file system is enough.
fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags).mode(0o600);
    match options.clone().write(true).create(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            options.open(path).map_err(|_no_file| error)
        }
        opened => opened,
    }
}

fn line(runtime: &str) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let host: String = host.chars().take(32).collect();
    let Socket { path, dir } = Socket::at(runtime);
    let mut line = format!("{} {host} {dir} {}", std::process::id(), path.display());
    if line.len() >= LINE_BYTES {
        // Never happens: a socket path has at most 107 bytes.
        line.truncate(0);
    }
    let width = LINE_BYTES - 1 - line.len();
    line.push_str(&" ".repeat(width));
    line.push('\n');
    line
}

fn holder(mut file: &File) -> LockHolder {
    let mut text = String::new();
    let read = Read::by_ref(&mut file)
        .take(LINE_BYTES as u64)
        .read_to_string(&mut text);
    let mut words = text.trim_end().splitn(4, ' ');
    let pid = words.next().and_then(|word| word.parse().ok());
    match (read, pid, words.next(), words.next(), words.next()) {
        (Ok(_), Some(pid), Some(host), Some(dir), Some(path)) => LockHolder::Process {
            pid,
            host: host.to_owned(),
            runtime: Socket {
                path: path.into(),
                dir: dir.to_owned(),
            },
        },
        _ => LockHolder::Unnamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_learns_the_locks_holder() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path(), "/run/cri.sock").unwrap();
        let Err(Unusable::Held(held)) = Lock::take(dir.path(), "/run/cri.sock") else {
            panic!("taken twice");
        };
        let pid = std::process::id();
        assert!(matches!(held.holder, LockHolder::Process { pid: p, .. } if p == pid));
        assert!(held.to_string().contains(&format!("pid {pid} ")), "{held}");
        assert_eq!(super::held(dir.path()), Some(held));
        drop(lock);
        assert_eq!(super::held(dir.path()), None);
        assert!(Lock::take(dir.path(), "/run/cri.sock").is_ok(), "let go");
    }

    #[test]
    fn a_lock_whose_file_was_removed_or_replaced_is_not_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path(), "/run/cri.sock").unwrap();
        assert!(lock.is_in_place());
        fs::remove_file(dir.path().join(NAME)).unwrap();
        assert!(!lock.is_in_place());
        let second = Lock::take(dir.path(), "/run/cri.sock").unwrap();
        assert!(second.is_in_place() && !lock.is_in_place());
    }

    #[test]
    fn a_lock_without_a_line_still_holds() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = Lock::take(dir.path(), "/run/cri.sock").unwrap();
        for text in ["", "nonsense", "\u{0}\u{0}", "12", "12 host", "12 host 1:2"] {
            fs::write(dir.path().join(NAME), text).unwrap();
            let Err(Unusable::Held(held)) = Lock::take(dir.path(), "/run/cri.sock") else {
                panic!("taken twice");
            };
            assert_eq!(held.holder, LockHolder::Unnamed, "{text:?}");
        }
    }

    #[test]
    fn a_holder_on_another_runtime_is_recognized() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = Lock::take(dir.path(), "/run/a.sock").unwrap();
        let Err(Unusable::Held(held)) = Lock::take(dir.path(), "/run/b.sock") else {
            panic!("taken twice");
        };
        assert!(held.holder.uses_another_runtime("/run/b.sock"), "{held}");
        assert!(!held.holder.uses_another_runtime("/run/a.sock"), "{held}");
        assert!(!LockHolder::Unnamed.uses_another_runtime("/run/b.sock"));
    }

    #[test]
    fn one_runtime_under_two_paths_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        fs::create_dir(dir.path().join("run")).unwrap();
        fs::create_dir(dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("run"), dir.path().join("link")).unwrap();
        let _lock = Lock::take(dir.path(), &path("run/cri.sock")).unwrap();
        let holder = held(dir.path()).unwrap().holder;
        assert!(
            !holder.uses_another_runtime(&path("link/cri.sock")),
            "a link"
        );
        assert!(
            !holder.uses_another_runtime(&path("gone/cri.sock")),
            "nowhere"
        );
        assert!(holder.uses_another_runtime(&path("run/cri2.sock")));
        assert!(holder.uses_another_runtime(&path("other/cri.sock")));
        let mounted = Socket {
            path: "/host/run/cri.sock".into(),
            ..Socket::at(&path("run/cri.sock"))
        };
        assert!(
            !mounted.is_another(&Socket::at(&path("run/cri.sock"))),
            "a mount"
        );
    }

    #[test]
    fn a_line_always_has_the_same_length() {
        for runtime in ["/r", &"/long".repeat(100), &"ä".repeat(200)] {
            assert_eq!(line(runtime).len(), LINE_BYTES);
        }
    }
}
