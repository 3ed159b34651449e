//! Files in the state directory: opened without following links, written in full beforehand, set aside if
//! damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags};

/// Damaged files that are kept for inspection.
const SET_ASIDE_MAX: usize = 2;
/// Zeros written at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Makes the directory and its parents, for its owner only.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
}

/// Opens an existing file; never follows a link, never waits for a pipe's other end.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    // Writing in place would change it under its other names too.
    if metadata.nlink() > 1 {
        return Err(io::Error::other("it has another name (a hard link)"));
    }
    Ok(file)
}

/// Opens a file for reading only, with the same checks. The service may be writing it.
pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Makes a file of zeros under a new name, allocated and really written: on some file systems the first write
/// to reserved space needs space again.
pub(super) fn create(path: &Path, bytes: u64) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let written = fill(&file, bytes);
    if written.is_err() {
        // Free the little space that a full disk has left.
        drop(fs::remove_file(path));
    }
    written.map(|()| file)
}

fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // If space cannot be reserved, it is written anyway.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    let zeros = vec![0; CHUNK_BYTES];
    let mut left = usize::try_from(bytes).map_err(io::Error::other)?;
    while left > 0 {
        let chunk = zeros.get(..left.min(CHUNK_BYTES)).unwrap_or(&zeros);
        file.write_all(chunk)?;
        left -= chunk.len();
    }
    file.sync_all()
}

/// Renames a new file into place. With `keep`, sets the old file aside.
pub(super) fn replace(dir: &Path, new: &str, name: &str, keep: bool) -> io::Result<()> {
    if keep {
        set_aside(dir, name)?;
    }
    fs::rename(dir.join(new), dir.join(name))?;
    // The rename itself must survive a crash.
    File::open(dir)?.sync_all()
}

/// Renames a file out of the way; keeps only the newest few.
fn set_aside(dir: &Path, name: &str) -> io::Result<()> {
    // With `state.dir: /var/log` this would be the system's journal directory.
    let is_dir = fs::symlink_metadata(dir.join(name))?.is_dir();
    if is_dir && fs::read_dir(dir.join(name))?.next().is_some() {
        return Err(io::Error::other("a directory has its name"));
    }
    let prefix = format!("{name}.damaged-");
    let number = |entry: fs::DirEntry| {
        let file = entry.file_name();
        file.to_str()?.strip_prefix(&prefix)?.parse::<u64>().ok()
    };
    let mut kept: Vec<u64> = fs::read_dir(dir)?
        .filter_map(|entry| number(entry.ok()?))
        .collect();
    kept.sort_unstable();
    let next = kept.last().map_or(1, |last| last.saturating_add(1));
    fs::rename(dir.join(name), dir.join(format!("{prefix}{next}")))?;
    let surplus = (kept.len() + 1).saturating_sub(SET_ASIDE_MAX);
    for number in kept.into_iter().take(surplus) {
        let path = dir.join(format!("{prefix}{number}"));
        // A directory with that name is not ours to remove.
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(%error, path = %path.display(), "an old damaged file stays");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_has_all_its_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let file = create(&dir.path().join("f"), 100_000).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), 100_000);
        assert!(metadata.blocks() * 512 >= 100_000);
        assert_eq!(metadata.mode() & 0o777, 0o600);
    }

    #[test]
    fn keeps_the_newest_damaged_files_only() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["1", "2", "3", "4"] {
            fs::write(dir.path().join("j"), text).unwrap();
            fs::write(dir.path().join("new"), "n").unwrap();
            replace(dir.path(), "new", "j", true).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        assert_eq!(read("j").as_deref(), Some("n"));
        assert_eq!(read("j.damaged-3").as_deref(), Some("3"));
        assert_eq!(read("j.damaged-4").as_deref(), Some("4"));
        assert_eq!(read("j.damaged-2"), None);
    }

    #[test]
    fn a_foreign_directory_stays_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("journal")).unwrap();
        fs::write(dir.path().join("journal/system"), "x").unwrap();
        fs::write(dir.path().join("new"), "n").unwrap();
        assert!(replace(dir.path(), "new", "journal", true).is_err());
        assert!(dir.path().join("journal/system").exists());
    }

    #[test]
    fn a_file_under_another_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("theirs"), "x").unwrap();
        fs::hard_link(dir.path().join("theirs"), dir.path().join("ours")).unwrap();
        assert!(open(&dir.path().join("ours")).is_err());
    }

    #[test]
    fn a_directory_is_refused_as_a_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("target"), "x").unwrap();
        std::os::unix::fs::symlink(dir.path().join("target"), dir.path().join("link")).unwrap();
        assert!(open(&dir.path().join("link")).is_err());
        assert!(open(dir.path()).is_err());
        let pipe = dir.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(open(&pipe).is_err());
    }
}
