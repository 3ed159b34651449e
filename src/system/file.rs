//! Reads small files: regular files alone, up to a bound.

use std::fs::{File, OpenOptions};
use std::io::{Error, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::blocking::BlockingPool;

/// Timeout for a file.
pub const TIMEOUT: Duration = Duration::from_secs(2);

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
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
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
