//! Files in the state directory: never opened through a link, for their owner alone, set aside if damaged.

use std::fs::{self, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::system::file::if_there;

/// Which file it is, whatever its name: its device and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity(u64, u64);

impl FileIdentity {
    pub(super) fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino())
    }

    /// Says whether the path still leads to it: writes to a removed file are lost, and its lock lets a second crisweep
    /// in. If that cannot be checked, nothing is lost yet.
    pub(super) fn is_at(self, path: &Path) -> bool {
        match fs::symlink_metadata(path) {
            Ok(there) => Self::of(&there) == self,
            Err(error) => {
                ![io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
            }
        }
    }
}

/// Makes the directory and its parents, for its owner only.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(io::Error::other("it is no directory"))
        }
        made => made,
    }
}

/// Says whether the path is a regular file of one name that can be opened; follows no link.
pub(super) fn check(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // Writing in place would change it under its other names too.
    if metadata.nlink() > 1 {
        let why = "it has another name (a hard link)";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

/// Makes an empty file for its owner only.
pub(super) fn create(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map(drop)
}

/// What SQLite writes beside a database.
pub(super) const LOGS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Returns the path of a file of the same name with an ending.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Renames a damaged database and its log to `.damaged`, in place of an earlier one.
pub(super) fn set_aside(path: &Path) -> io::Result<()> {
    // A directory that is not ours.
    let is_dir = fs::symlink_metadata(path)?.is_dir();
    if is_dir && fs::read_dir(path)?.next().is_some() {
        return Err(io::Error::other("a directory has its name"));
    }
    let aside = beside(path, ".damaged");
    remove(&aside)?;
    fs::rename(path, &aside)?;
    for ending in LOGS {
        if_there(fs::rename(beside(path, ending), beside(&aside, ending)))?;
    }
    Ok(())
}

/// Removes what was set aside if nothing was written to it since `then`, in seconds of the wall clock.
pub(super) fn remove_aside(path: &Path, then: i64) -> io::Result<()> {
    let aside = beside(path, ".damaged");
    let written = ["", "-wal"].into_iter().filter_map(|ending| {
        let found = fs::symlink_metadata(beside(&aside, ending)).ok()?;
        Some(found.mtime())
    });
    match written.max() {
        Some(last) if last < then => remove(&aside),
        Some(_) | None => Ok(()),
    }
}

/// Removes what was set aside, and what is in its place.
pub(super) fn remove_both(path: &Path) -> io::Result<()> {
    remove(&beside(path, ".damaged"))?;
    remove(path)
}

fn remove(path: &Path) -> io::Result<()> {
    for ending in [""].into_iter().chain(LOGS) {
        let path = beside(path, ending);
        if_there(match fs::symlink_metadata(&path) {
            // Only an empty one is ours.
            Ok(it) if it.is_dir() => fs::remove_dir(&path),
            _ => fs::remove_file(&path),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_damaged_file_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        for text in ["1", "2", "3"] {
            fs::write(&path, text).unwrap();
            fs::write(dir.path().join("db-wal"), "log").unwrap();
            set_aside(&path).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!(read("db.damaged").as_deref(), Some("3"));
        assert_eq!(read("db.damaged-wal").as_deref(), Some("log"));
        assert_eq!((read("db"), read("db-wal")), (None, None));
    }

    #[test]
    fn a_file_that_was_set_aside_goes_once_its_last_write_is_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        for name in ["db", "db-wal"] {
            fs::write(dir.path().join(name), "secret").unwrap();
        }
        set_aside(&path).unwrap();
        fs::write(&path, "new").unwrap();
        let written = fs::metadata(beside(&path, ".damaged-wal")).unwrap().mtime();
        remove_aside(&path, written).unwrap();
        assert!(beside(&path, ".damaged").exists());
        remove_aside(&path, written + 1).unwrap();
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(
            (left, fs::read_to_string(&path).unwrap()),
            (1, "new".to_owned())
        );
        remove_aside(&path, i64::MAX).unwrap();
    }

    #[test]
    fn a_foreign_directory_stays_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("theirs"), "x").unwrap();
        assert!(set_aside(&path).is_err());
        assert!(path.join("theirs").exists());
    }

    #[test]
    fn a_file_under_another_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("theirs"), "x").unwrap();
        fs::hard_link(dir.path().join("theirs"), dir.path().join("ours")).unwrap();
        assert!(check(&dir.path().join("ours")).is_err());
    }

    #[test]
    fn a_link_a_directory_and_a_pipe_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("target"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), dir.path().join("link")).unwrap();
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [&dir.path().join("link"), dir.path(), &pipe] {
            assert!(check(path).is_err(), "{}", path.display());
        }
    }
}
