//! `runtime:` - where the runtime is, and the limits of its answers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::setting::{
    AbsolutePath, As, One, Optional, Positive, SOCKET_PATH_BYTES_MAX, Size, TextKind, settings,
};

/// The longest message that gRPC can announce.
const MESSAGE_MAX: u64 = u32::MAX as u64;

settings! {
    /// `runtime:` - the runtime and how to talk to it.
    #[derive(Eq)]
    pub struct Config {
        /// The CRI socket: `unix:///path`, `unix:/path` or `/path`. `null`: `CONTAINER_RUNTIME_ENDPOINT`, then
        /// `/etc/crictl.yaml`, then the known places.
        #[serde(with = "As::<Optional<UnixSocketUrl>>")]
        pub endpoint: Option<String> = None,
        /// The image service's socket, where it is another one.
        #[serde(with = "As::<Optional<UnixSocketUrl>>")]
        pub image_endpoint: Option<String> = None,
        /// Timeout of one call that reads.
        #[serde(with = "As::<Positive>")]
        pub timeout: Duration = Duration::from_secs(10),
        /// Timeout of one removal.
        #[serde(with = "As::<Positive>")]
        pub removal_timeout: Duration = Duration::from_secs(60),
        /// The largest answer that crisweep takes.
        #[serde(with = "As::<Size<usize, 1, MESSAGE_MAX>>")]
        pub max_message_bytes: usize = 128 << 20,
        /// Where the host's file system is mounted. crisweep puts it before the log roots, the image file system's
        /// mount point and `/proc/pressure`.
        #[serde(with = "As::<One<AbsolutePath>>")]
        pub host_root: PathBuf = "/".into(),
        /// Size of the demo's simulated disk. Only the demo sets it: there is no key for it.
        #[serde(skip)]
        pub simulated_disk_bytes: Option<u64> = None,
    }
}

pub(super) struct UnixSocketUrl;

impl UnixSocketUrl {
    /// Returns the path of an endpoint as crictl and the kubelet write it.
    pub(super) fn path(text: &str) -> Option<&Path> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        let fits = (2..=SOCKET_PATH_BYTES_MAX).contains(&path.len());
        Some(Path::new(path)).filter(|path| path.is_absolute() && fits)
    }
}

impl TextKind for UnixSocketUrl {
    type Value = String;
    const MUST_BE: &str =
        "a unix socket such as unix:///run/containerd/containerd.sock (path up to 107 bytes)";

    fn read(text: &str) -> Option<String> {
        Self::path(text).map(|_path| text.to_owned())
    }
}
