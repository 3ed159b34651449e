//! A small file system, so that a test controls the kernel's figures.

use std::path::Path;
use std::process::Command;

/// Mounted as long as this value lives.
pub(crate) struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// Mounts one; fails the test if that is impossible.
    pub(crate) fn mount(megabytes: u32) -> Self {
        Self::with(&format!("size={megabytes}m"))
    }

    /// Mounts one with these options.
    pub(crate) fn with(options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "crisweep-test"])
            .arg(dir.path())
            .output();
        let output = output.expect("the program `mount`");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "this test mounts a small tmpfs, which needs root (CAP_SYS_ADMIN): {words}"
        );
        Self(dir)
    }

    /// Returns where it is.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: the service may be measuring it.
        let _done = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
