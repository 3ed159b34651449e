//! A hung disk: a FUSE file system whose daemon never answers. Every access below it waits until it is
//! dropped.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Mounted as long as this value lives. Drop it before the directory is removed.
pub(crate) struct Hung {
    dir: PathBuf,
    _device: File,
}

impl Hung {
    /// Makes everything below a directory hang; fails the test if that is impossible.
    pub(crate) fn at(dir: &Path) -> Self {
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let device = device.expect("this test needs /dev/fuse");
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0",
            device.as_raw_fd()
        );
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::empty();
        mount("crisweep-test", dir, "fuse", flags, options.as_c_str())
            .expect("this test mounts a file system, which needs root (CAP_SYS_ADMIN)");
        Self {
            dir: dir.to_owned(),
            _device: device,
        }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        // The device is closed after this, which ends every waiting call.
        let _done = unmount(&self.dir, UnmountFlags::DETACH);
    }
}
