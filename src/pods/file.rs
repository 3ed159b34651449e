//! Pods from a file, and the small files that other sources need.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rustix::fs::OFlags;
use tokio::fs::{File, OpenOptions};
use tokio::io::AsyncReadExt;

use super::{ANSWER_MAX_BYTES, Error, parse};
use crate::model::PodList;

/// How much later than the look a file may say that it was written: a look takes its time. A later
/// one was written before the clock was set back, so nobody knows how old it is.
const AHEAD_MAX: SignedDuration = SignedDuration::from_mins(5);

/// Reads the pods that a file holds, as of when it was written.
pub(super) async fn list(path: &Path, node: &str, looked_at: Timestamp) -> Result<PodList, Error> {
    let mut file = open(path).await?;
    let written = modified(&file, path).await?;
    let text = bounded(&mut file, path, ANSWER_MAX_BYTES).await?;
    if modified(&file, path).await? != written {
        return Err(Error::Changed(path.to_owned()));
    }
    if written.duration_since(looked_at) > AHEAD_MAX {
        return Err(Error::Ahead(path.to_owned()));
    }
    let list = parse(&text, node).map_err(|source| Error::NotPods {
        what: path.display().to_string(),
        source,
    })?;
    Ok(PodList {
        // What was born during the look is not for a file to tell.
        as_of: Some(written.min(looked_at)),
        ..list
    })
}

/// Reads a whole file of at most so many bytes.
pub(super) async fn read(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    bounded(&mut open(path).await?, path, max).await
}

async fn open(path: &Path) -> Result<File, Error> {
    // A pipe without a writer would hold a thread for ever, at each look another one.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path).await;
    let file = file.map_err(|error| failed(path, error))?;
    let metadata = file.metadata().await;
    if !metadata.map_err(|error| failed(path, error))?.is_file() {
        let error = std::io::Error::other("it is not a regular file");
        return Err(failed(path, error));
    }
    Ok(file)
}

async fn modified(file: &File, path: &Path) -> Result<Timestamp, Error> {
    let metadata = file.metadata().await;
    let written = metadata.and_then(|metadata| metadata.modified());
    let written = written.map_err(|error| failed(path, error))?;
    Timestamp::try_from(written).map_err(|error| failed(path, std::io::Error::other(error)))
}

async fn bounded(file: &mut File, path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut text).await;
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
