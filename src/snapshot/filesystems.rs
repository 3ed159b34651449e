//! The file systems that the runtime names, with the kernel's figures.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::{FilesystemUsage, Filesystems};
use crate::runtime;
use crate::system::blocking::BlockingPool;
use crate::system::file::is_btrfs;

/// statvfs on a dead network mount never returns; a look waits no longer than this.
const STATVFS_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Statvfs {
    host_root: PathBuf,
    /// A hung call costs at most one thread.
    pub(super) pool: BlockingPool,
    /// Size of the demo's simulated disk, which the kernel does not know.
    simulated_bytes: Option<u64>,
}

impl Statvfs {
    /// `simulated_bytes`: every file system has this size, with the usage that the runtime reports.
    pub(super) fn new(host_root: PathBuf, simulated_bytes: Option<u64>) -> Self {
        Self {
            host_root,
            pool: BlockingPool::new(1),
            simulated_bytes,
        }
    }

    /// Asks the runtime for its file systems, and the kernel for their figures. The runtime's own usage is
    /// refreshed only every 10 s and counts snapshots only.
    pub(super) async fn ask(
        &self,
        client: &runtime::Client,
    ) -> Result<Filesystems, runtime::Error> {
        let mut named = client.image_fs_info().await?;
        for fs in named.image.iter_mut().chain(&mut named.container) {
            let measured = match self.simulated_bytes {
                Some(capacity) => Some((simulated(capacity, fs.runtime_used_bytes), false)),
                None => self.usage(&fs.mountpoint).await,
            };
            fs.usage = measured.map(|(usage, _)| usage);
            fs.is_btrfs = measured.is_some_and(|(_, is_btrfs)| is_btrfs);
        }
        Ok(named)
    }

    /// Returns the figures, and whether it is btrfs.
    async fn usage(&self, mountpoint: &str) -> Option<(FilesystemUsage, bool)> {
        let path = runtime::below(&self.host_root, Path::new(mountpoint));
        let measure = move || Some((statvfs(&path)?, is_btrfs(&path)));
        self.pool.run(STATVFS_TIMEOUT, measure).await.ok()?
    }
}

/// Measures the file systems that the runtime names, without a look.
///
/// # Errors
/// If the runtime does not name them.
pub async fn measure_filesystems(
    client: &runtime::Client,
    host_root: PathBuf,
) -> Result<Filesystems, runtime::Error> {
    Statvfs::new(host_root, None).ask(client).await
}

fn simulated(capacity_bytes: u64, used_bytes: u64) -> FilesystemUsage {
    FilesystemUsage {
        capacity_bytes,
        available_bytes: capacity_bytes.saturating_sub(used_bytes),
        used_bytes,
        inodes: 0,
        inodes_free: 0,
    }
}

/// Asks the kernel for the figures of a directory's file system; may hang. `None` also where it has no size: its use is
/// then unknown, not nothing.
pub fn statvfs(path: &Path) -> Option<FilesystemUsage> {
    let stat = match rustix::fs::statvfs(path) {
        Ok(stat) => stat,
        Err(error) => {
            tracing::debug!(path = %path.display(), %error, "statvfs failed");
            return None;
        }
    };
    let free_bytes = stat.f_bfree * stat.f_frsize;
    let capacity_bytes = stat.f_blocks * stat.f_frsize;
    (capacity_bytes > 0).then(|| FilesystemUsage {
        capacity_bytes,
        available_bytes: stat.f_bavail * stat.f_frsize,
        used_bytes: capacity_bytes.saturating_sub(free_bytes),
        inodes: stat.f_files,
        inodes_free: stat.f_ffree,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_a_size_is_not_measured() {
        assert_eq!(statvfs(Path::new("/proc")), None);
        assert!(statvfs(Path::new("/")).is_some());
    }
}
