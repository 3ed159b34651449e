//! Gives the state directory to the user that the service runs as: an init step, for directories that belong to root
//! because the kubelet made them, or to another user because the service ran as that one before.
//!
//! Needs no right but `CAP_CHOWN`, never follows a link, and changes nothing below the directory's own files.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::process::{getegid, geteuid};

/// A user and a group, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Gives a directory and the files in it to a user, for that user only; returns how many files there are. What is no
/// regular file, or has another name, stays as it is.
pub fn give(dir: &Path, owner: Owner) -> io::Result<usize> {
    let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = fs::openat(CWD, dir, OFlags::PATH | directory, Mode::empty())?;
    // First to this process: without CAP_DAC_OVERRIDE root cannot look into what belongs to another user.
    let me = Owner {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    };
    chown(handle.as_fd(), me)?;
    let listing = fs::openat(&handle, c".", OFlags::RDONLY | directory, Mode::empty())?;
    fs::fchmod(&listing, Mode::RWXU)?;
    let mut files = 0;
    for entry in Dir::read_from(&listing)? {
        files += usize::from(give_file(listing.as_fd(), entry?.file_name(), owner)?);
    }
    chown(handle.as_fd(), owner)?;
    Ok(files)
}

fn give_file(dir: BorrowedFd<'_>, name: &CStr, owner: Owner) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = fs::openat(dir, name, flags, Mode::empty())?;
    let stat = fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
        return Ok(false);
    }
    chown(file.as_fd(), owner)?;
    Ok(true)
}

fn chown(file: BorrowedFd<'_>, owner: Owner) -> io::Result<()> {
    let Owner { uid, gid } = owner;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    fs::chownat(file, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    Ok(())
}
