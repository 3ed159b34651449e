//! Where the runtime and the pods' logs are, and how long and big answers may be.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the runtime is and how long and big its answers may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The runtime's socket.
    pub endpoint: PathBuf,
    /// The image service's socket, if it is another one.
    pub image_endpoint: Option<PathBuf>,
    /// Deadline of every question.
    pub timeout: Duration,
    /// Deadline of every removal and stop. Shorter than a slow CNI teardown takes, it makes no
    /// progress, ever.
    pub removal_timeout: Duration,
    /// The biggest answer that is decoded.
    pub max_message_bytes: usize,
    /// Where the names of log files tell ids that no list does.
    pub log_roots: LogRoots,
}

/// Where pods' logs are. Only names are read there, never followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRoots {
    /// Directories `namespace_pod_uid`.
    pub pods: PathBuf,
    /// Links `pod_namespace_container-id.log`.
    pub containers: PathBuf,
}

impl Default for LogRoots {
    /// Where the kubelet puts them.
    fn default() -> Self {
        Self {
            pods: "/var/log/pods".into(),
            containers: "/var/log/containers".into(),
        }
    }
}

impl LogRoots {
    /// Returns the same places as seen from where the host's root directory is `host_root`.
    #[must_use]
    pub fn under(&self, host_root: &Path) -> Self {
        Self {
            pods: below(host_root, &self.pods),
            containers: below(host_root, &self.containers),
        }
    }
}

/// Returns a path of the host's as seen from where the host's root directory is `host_root`.
pub fn below(host_root: &Path, path: &Path) -> PathBuf {
    host_root.join(path.strip_prefix("/").unwrap_or(path))
}
