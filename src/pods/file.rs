//! Pods from a file.

use std::fs::File;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{ANSWER_MAX_BYTES, Error, LookStart};
use crate::model::PodList;
use crate::system::blocking::BlockingPool;
use crate::system::file::{TIMEOUT, bounded, open};

/// How much later than the look a file's date may be, because a look takes time. A later date is from before
/// a clock step back, so the file's age is unknown.
const AHEAD_MAX: SignedDuration = SignedDuration::from_mins(5);

/// The previous read of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadBefore {
    written: Timestamp,
    /// When the look began that read this content first.
    first_look: Instant,
}

/// Reads the pods of a file, with its date of writing, but at the latest the start of the look that read it first: the
/// file cannot know pods that were born during that look, and after a clock step back its date is no longer trusted.
pub(super) async fn list(
    disk: &BlockingPool,
    path: &Path,
    look: LookStart,
    before: &mut Option<ReadBefore>,
    parse: impl FnOnce(&[u8]) -> Result<PodList, String>,
) -> Result<PodList, Error> {
    let (text, written) = within_timeout(disk, path, dated).await?;
    let known = before.filter(|it| it.written == written);
    let first_look = known.map_or(look.began, |it| it.first_look);
    *before = Some(ReadBefore {
        written,
        first_look,
    });
    if written.duration_since(look.at) > AHEAD_MAX {
        return Err(Error::new(format!(
            "{}: it is dated in the future",
            path.display()
        )));
    }
    let list = parse(&text).map_err(|cause| Error::caused(path.display().to_string(), cause))?;
    Ok(PodList {
        // From start to start: a look of many seconds makes the list no older.
        as_of: Some(written.min(look.wall_time_of(first_look))),
        ..list
    })
}

/// Runs work on a file, for at most [`TIMEOUT`].
pub(super) async fn within_timeout<T: Send + 'static>(
    disk: &BlockingPool,
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let for_work = path.to_owned();
    let done = disk.run(TIMEOUT, move || work(&for_work)).await;
    done.map_err(|error| failed(path, std::io::Error::other(error)))?
}

/// Reads the pod file and its date of writing.
fn dated(path: &Path) -> Result<(Vec<u8>, Timestamp), Error> {
    let mut file = open(path).map_err(|error| failed(path, error))?;
    let written = modified(&file, path)?;
    let text = bounded(&mut file, ANSWER_MAX_BYTES).map_err(|error| failed(path, error))?;
    if modified(&file, path)? != written {
        return Err(Error::new(format!(
            "{}: it was written while it was read",
            path.display()
        )));
    }
    Ok((text, written))
}

fn modified(file: &File, path: &Path) -> Result<Timestamp, Error> {
    let written = file.metadata().and_then(|metadata| metadata.modified());
    let written = written.map_err(|error| failed(path, error))?;
    Timestamp::try_from(written).map_err(|error| failed(path, std::io::Error::other(error)))
}

fn failed(path: &Path, cause: std::io::Error) -> Error {
    Error::caused(format!("cannot read {}", path.display()), cause)
}
