//! Pods from a file, and small files of other sources.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::OFlags;
use tokio::time::Instant;

use super::{ANSWER_MAX_BYTES, Error, parse};
use crate::model::PodList;
use crate::system::blocking::BlockingPool;

/// Timeout for a file.
pub(super) const FILE_TIMEOUT: Duration = Duration::from_secs(2);

/// How much later than the look a file's date may be, because a look takes time. A later date is from before
/// a clock step back, so the file's age is unknown.
const AHEAD_MAX: SignedDuration = SignedDuration::from_mins(5);

/// The previous read of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadBefore {
    written: Timestamp,
    /// When this content was first read, by the monotonic clock.
    first: Instant,
}

/// Reads the pods of a file, with its date of writing, but at the latest the time of its first read: after a
/// clock step back the date is no longer trusted.
pub(super) async fn list(
    disk: &BlockingPool,
    path: &Path,
    node: &str,
    looked_at: Timestamp,
    before: &mut Option<ReadBefore>,
) -> Result<PodList, Error> {
    let now = Instant::now();
    let (text, written) = within_timeout(disk, path, dated).await?;
    let known = before.filter(|it| it.written == written);
    let first = known.map_or(now, |it| it.first);
    *before = Some(ReadBefore { written, first });
    if written.duration_since(looked_at) > AHEAD_MAX {
        return Err(Error::Ahead(path.to_owned()));
    }
    let list = parse(&text, node).map_err(|source| Error::NotPods {
        what: path.display().to_string(),
        source,
    })?;
    // A file cannot know pods that were born during the look.
    let known_for = now.saturating_duration_since(first);
    let latest = looked_at.checked_sub(known_for).unwrap_or(Timestamp::MIN);
    Ok(PodList {
        as_of: Some(written.min(latest)),
        ..list
    })
}

/// Reads a whole file of at most `max` bytes.
pub(super) async fn read(disk: &BlockingPool, path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    within_timeout(disk, path, move |path| bounded(&mut open(path)?, path, max)).await
}

/// Runs work on a file, for at most [`FILE_TIMEOUT`].
pub(super) async fn within_timeout<T: Send + 'static>(
    disk: &BlockingPool,
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let for_work = path.to_owned();
    let done = disk.run(FILE_TIMEOUT, move || work(&for_work)).await;
    done.map_err(|error| failed(path, std::io::Error::other(error)))?
}

/// Reads the pod file and its date of writing.
fn dated(path: &Path) -> Result<(Vec<u8>, Timestamp), Error> {
    let mut file = open(path)?;
    let written = modified(&file, path)?;
    let text = bounded(&mut file, path, ANSWER_MAX_BYTES)?;
    if modified(&file, path)? != written {
        return Err(Error::Changed(path.to_owned()));
    }
    Ok((text, written))
}

fn open(path: &Path) -> Result<File, Error> {
    // A pipe without a writer would block the thread for ever.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| failed(path, error))?;
    let metadata = file.metadata();
    if !metadata.map_err(|error| failed(path, error))?.is_file() {
        let error = std::io::Error::other("it is not a regular file");
        return Err(failed(path, error));
    }
    Ok(file)
}

fn modified(file: &File, path: &Path) -> Result<Timestamp, Error> {
    let written = file.metadata().and_then(|metadata| metadata.modified());
    let written = written.map_err(|error| failed(path, error))?;
    Timestamp::try_from(written).map_err(|error| failed(path, std::io::Error::other(error)))
}

fn bounded(file: &mut File, path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut text);
    read.map_err(|error| failed(path, error))?;
    if text.len() as u64 > max {
        return Err(Error::TooBig {
            what: path.display().to_string(),
            max,
        });
    }
    Ok(text)
}

fn failed(path: &Path, source: std::io::Error) -> Error {
    Error::Read {
        path: path.to_owned(),
        source,
    }
}
