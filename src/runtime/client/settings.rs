//! Paths of runtime and pod logs, timeouts, and size limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the runtime is, and the limits of its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The runtime's socket.
    pub endpoint: PathBuf,
    /// The image service's socket, if it differs.
    pub image_endpoint: Option<PathBuf>,
    /// Deadline of a read.
    pub timeout: Duration,
    /// Deadline of a removal or stop. If it is shorter than a slow CNI teardown, removals never succeed.
    pub removal_timeout: Duration,
    /// The largest answer that is decoded.
    pub max_message_bytes: usize,
    /// Log directories whose file names contain ids.
    pub log_roots: LogRoots,
}

/// Where pod logs are; empty: nowhere. Only names are read; links are never followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogRoots {
    /// Directories `namespace_pod_uid`.
    pub pods: PathBuf,
    /// Links `pod_namespace_container-id.log`.
    pub containers: PathBuf,
}

/// Returns a path of the host below `host_root`.
pub fn below(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}
