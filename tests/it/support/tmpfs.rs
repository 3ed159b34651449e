//! A small file system of its own, so that the kernel's figures are a test's to make.

use std::path::Path;
use std::process::Command;

/// Mounted for as long as this lives.
pub(crate) struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// Mounts one, or fails the test: what it is to show cannot be shown without.
    pub(crate) fn mount(megabytes: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let output = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={megabytes}m"),
                "crisweep-test",
            ])
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
