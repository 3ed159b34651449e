//! Reads the end of a container's log: the last bytes of its files, taken as one text from the oldest rotation to the
//! current file.
//!
//! Reads regular files with one name only, below the root's descriptor, without waiting for a writer. Never parses.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, OFlags, statat};
use rustix::io::Errno;

use super::{DIRECTORY, Error, Roots, each_entry, has_entries, open_below};

/// The most rotations of one log that are read. The kubelet keeps 4 (`containerLogMaxFiles`).
const ROTATIONS_MAX: usize = 16;
/// The most entries of a log's directory that are looked through for rotations.
const ENTRIES_MAX: usize = 1 << 12;
/// The most bytes of one rotation that are read and that are decompressed to find its end.
const UNZIPPED_MAX: u64 = 128 << 20;
/// Bytes that are decompressed at a time.
const CHUNK: usize = 64 << 10;

/// The end of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last bytes, as the files have them.
    pub bytes: Vec<u8>,
    /// The log has no byte before them.
    pub is_whole: bool,
    /// The names of the files that they are from, oldest first.
    pub files: Vec<String>,
    /// Why the log was not followed further back, if a rotation could not be read.
    pub stopped: Option<String>,
}

/// Reads the last `bytes_max` bytes of a container's log. `log` is the file's path below the pods' log root; rotations
/// (`<file>.<date>-<time>`, also with `.gz`) are read as far back as needed. `None`: there is no such log. Blocks.
///
/// # Errors
/// If the log exists and cannot be read, or the root holds nothing: most likely it is not the host's.
pub fn tail(roots: &Roots, log: &Path, bytes_max: usize) -> Result<Option<Tail>, Error> {
    tail_at_most(roots, log, bytes_max, UNZIPPED_MAX)
}

/// The same with a limit of bytes that are decompressed per file.
pub(super) fn tail_at_most(
    roots: &Roots,
    log: &Path,
    bytes_max: usize,
    unzipped_max: u64,
) -> Result<Option<Tail>, Error> {
    let path = roots.pods.join(log);
    let missing = |path: &Path| Error::os(path, Errno::NOENT);
    let root = roots
        .open(&roots.pods)?
        .ok_or_else(|| missing(&roots.pods))?;
    let (Some(parent), Some(file)) = (log.parent(), log.file_name().and_then(|it| it.to_str()))
    else {
        return Err(missing(&path));
    };
    let dir = match open_below(&root, parent, DIRECTORY) {
        Ok(dir) => dir,
        Err(Errno::NOENT) if has_entries(&root) => return Ok(None),
        Err(errno) => return Err(Error::opening(&path, errno)),
    };
    let mut end = TailBuffer {
        left: bytes_max,
        unzipped_max,
        parts: Vec::new(),
        tail: Tail {
            is_whole: true,
            ..Tail::default()
        },
    };
    if let Some(current) = open(&dir, file).map_err(|error| unreadable(&path, &error))? {
        end.add(file, Compression::Plain, &current)
            .map_err(|error| unreadable(&path, &error))?;
    }
    let rotations = rotations(&dir, file).map_err(|errno| unreadable(&path, &errno.into()))?;
    end.follow(&dir, &rotations);
    Ok(end.joined())
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    match Errno::from_io_error(error) {
        Some(errno) => Error::opening(path, errno),
        None => Error::Refused(format!("{}: {error}", path.display())),
    }
}

/// How a file's bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Compression {
    Plain,
    Gzip,
}

/// A rotation, named by the kubelet.
#[derive(Debug, PartialEq, Eq)]
struct Rotation {
    name: String,
    stamp: String,
    form: Compression,
}

impl Rotation {
    /// Reads what follows the log's name and a dot; `None` for other files, such as half-written ones.
    fn of(name: &str, log: &str) -> Option<Self> {
        let rest = name.strip_prefix(log)?.strip_prefix('.')?;
        let (stamp, form) = match rest.strip_suffix(".gz") {
            Some(stamp) => (stamp, Compression::Gzip),
            None => (rest, Compression::Plain),
        };
        let is_stamp = stamp.len() == 15
            && stamp.bytes().enumerate().all(|(at, b)| match at {
                8 => b == b'-',
                _ => b.is_ascii_digit(),
            });
        is_stamp.then(|| Self {
            name: name.to_owned(),
            stamp: stamp.to_owned(),
            form,
        })
    }
}

/// Returns the rotations, newest first. The kubelet compresses a file before it removes the plain one: of both, the
/// plain one counts.
fn rotations(dir: &OwnedFd, file: &str) -> Result<Vec<Rotation>, Errno> {
    let mut found = Vec::new();
    let mut seen = 0;
    each_entry(dir, |entry| {
        let name = entry.file_name().to_str().ok();
        found.extend(name.and_then(|name| Rotation::of(name, file)));
        seen += 1;
        seen < ENTRIES_MAX
    })?;
    found.sort_by(|a, b| b.stamp.cmp(&a.stamp).then(a.form.cmp(&b.form)));
    found.dedup_by(|a, b| a.stamp == b.stamp);
    Ok(found)
}

/// Opens a file of the log; `None` if there is none.
fn open(dir: &OwnedFd, name: &str) -> io::Result<Option<File>> {
    // Opening a device may already act on it, so the name is looked at first.
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
        Ok(_) => {
            return Err(io::Error::other(
                "it is a link or no regular file; it is not read",
            ));
        }
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    // A pipe without a writer may have the name by now: opening it would block for ever.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match open_below(dir, Path::new(name), flags) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.nlink() > 1 {
        // Another file of the host may have been linked here.
        return Err(io::Error::other(
            "it is a file with several names; it is not read",
        ));
    }
    Ok(Some(file))
}

/// The end of a log while it is read, newest part first.
struct TailBuffer {
    left: usize,
    unzipped_max: u64,
    parts: Vec<Vec<u8>>,
    tail: Tail,
}

impl TailBuffer {
    /// Adds older files until there is enough.
    fn follow(&mut self, dir: &OwnedFd, rotations: &[Rotation]) {
        for (number, rotation) in rotations.iter().enumerate() {
            if self.left == 0 || !self.tail.is_whole {
                self.tail.is_whole = false;
                return;
            }
            let name = &rotation.name;
            let added = if number < ROTATIONS_MAX {
                self.older(dir, name, rotation.form)
            } else {
                Err(io::Error::other(format!(
                    "more than {ROTATIONS_MAX} files of one log"
                )))
            };
            if let Err(error) = added {
                self.tail.stopped = Some(format!("{name}: {error}"));
                self.tail.is_whole = false;
                return;
            }
        }
    }

    fn older(&mut self, dir: &OwnedFd, name: &str, form: Compression) -> io::Result<()> {
        // The kubelet may have removed or compressed it by now.
        let file = open(dir, name)?.ok_or_else(|| io::Error::other("it is gone"))?;
        self.add(name, form, &file)
    }

    /// Adds the end of one file.
    fn add(&mut self, name: &str, form: Compression, file: &File) -> io::Result<()> {
        let (bytes, is_all) = match form {
            Compression::Plain => plain_end(file, self.left)?,
            Compression::Gzip => unzipped_end(file, self.left, self.unzipped_max)?,
        };
        self.left -= bytes.len();
        self.tail.is_whole &= is_all;
        self.tail.files.insert(0, name.to_owned());
        self.parts.push(bytes);
        Ok(())
    }

    fn joined(mut self) -> Option<Tail> {
        if self.tail.files.is_empty() && self.tail.stopped.is_none() {
            return None;
        }
        self.parts.reverse();
        self.tail.bytes = self.parts.concat();
        Some(self.tail)
    }
}

/// Returns the last bytes of a file as it is now, and whether they are all.
fn plain_end(mut file: &File, bytes_max: usize) -> io::Result<(Vec<u8>, bool)> {
    let size = file.metadata()?.len();
    let wanted = size.min(bytes_max as u64);
    file.seek(io::SeekFrom::Start(size - wanted))?;
    let mut bytes = Vec::with_capacity(usize::try_from(wanted).unwrap_or(bytes_max));
    file.take(wanted).read_to_end(&mut bytes)?;
    Ok((bytes, wanted == size))
}

/// The same of what a compressed file holds. It has to be decompressed from its beginning. Its own size has the same
/// limit: it may consist of parts without content.
fn unzipped_end(file: &File, bytes_max: usize, unzipped_max: u64) -> io::Result<(Vec<u8>, bool)> {
    if file.metadata()?.len() > unzipped_max {
        let text = format!("it is larger than {unzipped_max} bytes; its end is not read");
        return Err(io::Error::other(text));
    }
    let mut from = MultiGzDecoder::new(file.take(unzipped_max)).take(unzipped_max + 1);
    let (mut chunk, mut end, mut total) = (vec![0; CHUNK], Vec::new(), 0);
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        total += read as u64;
        if total > unzipped_max {
            let text = format!("it holds more than {unzipped_max} bytes; its end is not read");
            return Err(io::Error::other(text));
        }
        end.extend_from_slice(chunk.get(..read).unwrap_or_default());
        if end.len() > bytes_max + CHUNK {
            end.drain(..end.len() - bytes_max);
        }
    }
    end.drain(..end.len().saturating_sub(bytes_max));
    let is_all = end.len() as u64 == total;
    Ok((end, is_all))
}
