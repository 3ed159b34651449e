//! Small files: reads regular files alone, up to a bound; writes private ones.

use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use serde::Serialize;

use super::blocking::BlockingPool;

/// Timeout for a file.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// `f_type` of btrfs (`BTRFS_SUPER_MAGIC`).
const BTRFS: u32 = 0x9123_683E;

/// A user and a group, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct FileOwner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl From<FileOwner> for String {
    fn from(FileOwner { uid, gid }: FileOwner) -> Self {
        format!("{uid}:{gid}")
    }
}

/// What tells a file from the next one, or from its next content, at the same path: device, inode, size, and the times
/// of the last change of the content and of the file. An inode's number may be used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp([u64; 3], [i64; 4]);

impl FileStamp {
    /// Follows links, so it differs once a link names another file. `None`: there is no file.
    pub fn at(path: &Path) -> Option<Self> {
        let it = fs::metadata(path).ok()?;
        let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
        Some(Self([it.dev(), it.ino(), it.size()], times))
    }
}

/// Says whether a file is on btrfs, which copies on write: each write to a file needs free space, and what a removed
/// file took is free only after the next commit.
pub fn is_btrfs(path: &Path) -> bool {
    let kind = rustix::fs::statfs(path).map(|stat| u32::try_from(stat.f_type));
    matches!(kind, Ok(Ok(BTRFS)))
}

/// Reads a whole file of at most `max` bytes, within [`TIMEOUT`].
///
/// # Errors
/// If it cannot be read, is no regular file, or is larger.
pub async fn read(disk: &BlockingPool, path: &Path, max: u64) -> Result<Vec<u8>> {
    let path = path.to_owned();
    let done = disk.run(TIMEOUT, move || bounded(&mut open(&path)?, max));
    done.await.map_err(Error::other)?
}

/// Opens a regular file.
///
/// # Errors
/// If it is something else, or cannot be opened.
pub fn open(path: &Path) -> Result<File> {
    // A pipe without a writer would block the thread for ever.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    regular(
        OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path)?,
    )
}

/// Returns a file if it is a regular one.
///
/// # Errors
/// If it is something else.
pub fn regular(file: File) -> Result<File> {
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(Error::other("it is not a regular file"))
    }
}

/// Reads what is left of a file.
///
/// # Errors
/// If that is more than `max` bytes.
pub fn bounded(file: &mut File, max: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(Error::other(format!("it is larger than {max} bytes")));
    }
    Ok(bytes)
}

/// Reads what is left of a file, as text.
///
/// # Errors
/// If that is more than `max` bytes, or not UTF-8.
pub fn text(file: &mut File, max: u64) -> Result<String> {
    let bytes = bounded(file, max)?;
    String::from_utf8(bytes).map_err(|_error| Error::other("it is not text in UTF-8"))
}

/// Accepts that a file is missing.
///
/// # Errors
/// All others.
pub fn if_there(done: Result<()>) -> Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What to do with a file that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Keep it, and fail.
    Keep,
    /// Replace it.
    Replace,
}

impl Existing {
    /// Says whether a file may be written there.
    ///
    /// # Errors
    /// If it exists and is kept, or is a link, a directory or a device.
    fn check(self, path: &Path) -> Result<()> {
        match (fs::symlink_metadata(path), self) {
            (Err(error), _) if error.kind() == ErrorKind::NotFound => Ok(()),
            (Err(error), _) => Err(error),
            (Ok(it), _) if !it.is_file() => Err(Error::other("it is not a regular file")),
            (Ok(_), Self::Keep) => Err(ErrorKind::AlreadyExists.into()),
            (Ok(_), Self::Replace) => Ok(()),
        }
    }
}

/// Writes a file that only its owner may read: whole or not at all, and never through a link.
///
/// # Errors
/// If it exists and is kept, is no regular file, or cannot be written.
pub fn write_private(path: &Path, bytes: &[u8], existing: Existing) -> Result<()> {
    existing.check(path)?;
    let part = beside(path)?;
    let written = write_new(&part, bytes).and_then(|()| {
        let flags = match existing {
            Existing::Keep => RenameFlags::NOREPLACE,
            Existing::Replace => RenameFlags::empty(),
        };
        Ok(renameat_with(CWD, &part, CWD, path, flags)?)
    });
    if written.is_err() {
        // Nothing more can be done for it.
        drop(fs::remove_file(&part));
    }
    written
}

/// Returns a new name in the directory of `path`.
fn beside(path: &Path) -> Result<PathBuf> {
    let name = path.file_name();
    let name = name.ok_or_else(|| Error::other("it names no file"))?;
    let name = name.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{:016x}", fastrand::u64(..))))
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_private_file_is_new_or_replaced_whole_and_never_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (file, link, other) = (at("file"), at("link"), at("other"));
        write_private(&file, b"one", Existing::Keep).unwrap();
        assert_eq!(mode(&file), 0o600);
        let error = write_private(&file, b"two", Existing::Keep).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), b"one");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&file, b"two", Existing::Replace).unwrap();
        assert_eq!(
            (fs::read(&file).unwrap(), mode(&file)),
            (b"two".to_vec(), 0o600)
        );
        symlink(&other, &link).unwrap();
        for existing in [Existing::Keep, Existing::Replace] {
            for refused in [&link, dir.path(), &at("none/file")] {
                write_private(refused, b"x", existing).unwrap_err();
            }
        }
        assert!(!other.exists());
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
        names.retain(|entry| entry.as_ref().unwrap().path() != file);
        assert_eq!(names.len(), 1, "{names:?}");
    }
}
