//! Gives the state directory to the user that the service runs as: an init step, for directories that belong to root
//! because the kubelet made them, or to another user because the service ran as that one before.
//!
//! Needs no right but `CAP_CHOWN`, never follows a link, changes nothing below the directory's own files, and leaves a
//! directory of others alone: `/etc` for one user only would stop the machine.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::process::{getegid, geteuid};

use super::{database, lock};
use crate::system::file::FileOwner;

/// Gives a directory and the files in it to a user, for that user only; returns how many files there are. What is no
/// regular file, or has another name, stays as it is.
///
/// # Errors
/// If it is no state directory, which then stays as it was, or cannot be given away.
pub fn give(dir: &Path, owner: FileOwner) -> io::Result<usize> {
    let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = fs::openat(CWD, dir, OFlags::PATH | directory, Mode::empty())?;
    // This process takes the directory first: without CAP_DAC_OVERRIDE root cannot read what another user owns.
    let me = FileOwner {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    };
    let stat = fs::fstat(&handle)?;
    chown(handle.as_fd(), me)?;
    let listing = fs::openat(&handle, c".", OFlags::RDONLY | directory, Mode::empty())?;
    if let Some(name) = of_others(listing.as_fd())? {
        let (uid, gid) = (stat.st_uid, stat.st_gid);
        chown(handle.as_fd(), FileOwner { uid, gid })?;
        let why = format!(
            "it is no state directory: it holds \"{name}\" and no {}",
            database::NAME
        );
        return Err(io::Error::other(why));
    }
    fs::fchmod(&listing, Mode::RWXU)?;
    let mut files = 0;
    for entry in Dir::read_from(&listing)? {
        files += usize::from(give_file(listing.as_fd(), entry?.file_name(), owner)?);
    }
    chown(handle.as_fd(), owner)?;
    Ok(files)
}

/// Returns something that others left in the directory; `None` if a database of crisweep is there too.
fn of_others(dir: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let mut foreign = None;
    for entry in Dir::read_from(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // The database, its log, or a damaged database that was set aside.
        if name.starts_with(database::NAME) {
            return Ok(None);
        }
        // The root of a file system has a lost+found.
        if ![".", "..", "lost+found", lock::NAME].contains(&name.as_str()) {
            foreign = foreign.or(Some(name));
        }
    }
    Ok(foreign)
}

fn give_file(dir: BorrowedFd<'_>, name: &CStr, owner: FileOwner) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(dir, name, flags, Mode::empty())?;
    let stat = fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
        return Ok(false);
    }
    chown(file.as_fd(), owner)?;
    Ok(true)
}

fn chown(file: BorrowedFd<'_>, owner: FileOwner) -> io::Result<()> {
    let FileOwner { uid, gid } = owner;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    fs::chownat(file, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    Ok(())
}
