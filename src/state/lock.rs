//! The lock that allows one crisweep per node: a lock on a file in the state directory. The kernel releases
//! it when the process ends, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
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
    /// The holder: its pid in its own namespace, and the name of its machine or container.
    pub holder: String,
    /// The lock file.
    pub path: PathBuf,
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
    /// Takes the lock, without waiting.
    pub(super) fn take(dir: &Path) -> Result<Self, Unusable> {
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
        if let Err(error) = file.write_all_at(line().as_bytes(), 0) {
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

fn line() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let host: String = host.chars().take(32).collect();
    let line = format!("{} {host}", std::process::id());
    let width = LINE_BYTES - 1 - line.len();
    format!("{line}{}\n", " ".repeat(width))
}

fn holder(mut file: &File) -> String {
    let mut text = String::new();
    let read = Read::by_ref(&mut file)
        .take(LINE_BYTES as u64)
        .read_to_string(&mut text);
    let mut words = text.split_whitespace();
    let pid: Option<u32> = words.next().and_then(|word| word.parse().ok());
    match (read, pid, words.next()) {
        (Ok(_), Some(pid), Some(host)) => format!("pid {pid} (on {host})"),
        _ => "a process that could not write its pid".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_second_process_learns_the_locks_holder() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        let Err(Unusable::Held(held)) = Lock::take(dir.path()) else {
            panic!("taken twice");
        };
        let pid = std::process::id();
        assert!(held.to_string().contains(&format!("pid {pid} ")), "{held}");
        assert_eq!(super::held(dir.path()), Some(held));
        drop(lock);
        assert_eq!(super::held(dir.path()), None);
        assert!(Lock::take(dir.path()).is_ok(), "let go");
    }

    #[test]
    fn a_lock_whose_file_was_removed_or_replaced_is_not_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap();
        assert!(lock.is_in_place());
        fs::remove_file(dir.path().join(NAME)).unwrap();
        assert!(!lock.is_in_place());
        let second = Lock::take(dir.path()).unwrap();
        assert!(second.is_in_place() && !lock.is_in_place());
    }

    #[test]
    fn a_lock_without_a_line_still_holds() {
        let dir = tempfile::tempdir().unwrap();
        let _lock = Lock::take(dir.path()).unwrap();
        for text in ["", "nonsense", "\u{0}\u{0}", "12"] {
            fs::write(dir.path().join(NAME), text).unwrap();
            let Err(Unusable::Held(held)) = Lock::take(dir.path()) else {
                panic!("taken twice");
            };
            let unnamed = "a process that could not write its pid";
            assert_eq!(held.holder, unnamed, "{text:?}");
        }
    }
}
