//! How long the parts of a look take.

use std::time::Duration;

use tokio::time::Instant;

/// How long each part of a look took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Version.
    pub runtime: Duration,
    /// The list of containers.
    pub containers: Duration,
    /// Statuses that were not known yet.
    pub statuses: Duration,
    /// The list of sandboxes.
    pub sandboxes: Duration,
    /// The list of images.
    pub images: Duration,
    /// `ImageFsInfo` and statvfs.
    pub filesystems: Duration,
    /// The pod source.
    pub pods: Duration,
    /// The log roots; zero if there are none to read.
    pub logs: Duration,
}

/// Runs the work and measures its duration.
pub(super) async fn timed<T>(duration: &mut Duration, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let result = work.await;
    *duration = started.elapsed();
    result
}
