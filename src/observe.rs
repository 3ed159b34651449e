//! One look at the node: runtime first, then pods. Never decides anything.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::cri;
use crate::model::{Container, Filesystem, Image, PodSandbox, Pods};

/// Everything that one look at the node found. What could not be read is an error, not a stale
/// or empty value.
#[derive(Debug)]
pub struct Look {
    /// Wall clock before the first call.
    pub taken_at: Timestamp,
    /// Monotonic clock before the first call.
    pub started: Instant,
    /// How long the look took.
    pub duration: Duration,
    /// Who the runtime is.
    pub runtime: Part<cri::Version>,
    /// Its containers.
    pub containers: Part<cri::Listed<Container>>,
    /// Its sandboxes.
    pub sandboxes: Part<cri::Listed<PodSandbox>>,
    /// Its images.
    pub images: Part<cri::Listed<Image>>,
    /// Its file systems.
    pub filesystems: Part<Filesystems>,
    /// What the pod source says.
    pub pods: Pods,
    /// How many exited containers have no known exit time yet.
    pub exits_unknown: usize,
    /// How long each part took.
    pub timings: Timings,
}

/// A part of a look, or why it is missing.
pub type Part<T> = Result<T, cri::Error>;

/// How long each part of a look took; absent where it was not tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Version.
    pub runtime: Duration,
    /// The list of containers.
    pub containers: Duration,
    /// The list of sandboxes.
    pub sandboxes: Duration,
    /// The list of images.
    pub images: Duration,
    /// `ImageFsInfo` and statvfs.
    pub filesystems: Duration,
    /// The pod source.
    pub pods: Duration,
}

/// The file systems that the runtime named.
#[derive(Clone, Debug, Default)]
pub struct Filesystems {
    /// Where images are.
    pub image: Vec<Filesystem>,
    /// Where writable layers are, if elsewhere.
    pub container: Vec<Filesystem>,
}
