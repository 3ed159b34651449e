//! `runtime:` - where the runtime is, and the limits of its answers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::SOCKET_PATH_BYTES_MAX;
use crate::model::setting::{AbsolutePath, As, Kind, One, Optional, Positive, Size};

/// The longest message that gRPC can announce.
const MESSAGE_MAX: u64 = u32::MAX as u64;

/// `runtime:` - the runtime and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The CRI socket: `unix:///path`, `unix:/path` or `/path`. `null`: `CONTAINER_RUNTIME_ENDPOINT`, then
    /// `/etc/crictl.yaml`, then the known places.
    #[serde(with = "As::<Optional<Endpoint>>")]
    pub endpoint: Option<String>,
    /// The image service's socket, where it is another one.
    #[serde(with = "As::<Optional<Endpoint>>")]
    #[cfg_attr(test, schemars(extend("x-advanced" = true)))]
    pub image_endpoint: Option<String>,
    /// Timeout of one call that reads.
    #[serde(with = "As::<Positive>")]
    pub timeout: Duration,
    /// Timeout of one removal.
    #[serde(with = "As::<Positive>")]
    pub removal_timeout: Duration,
    /// The largest answer that crisweep takes.
    #[serde(with = "As::<Size<usize, 1, MESSAGE_MAX>>")]
    #[cfg_attr(test, schemars(extend("x-advanced" = true)))]
    pub max_message_bytes: usize,
    /// Where the host's file system is mounted. crisweep puts it before the log roots, the image file system's mount
    /// point and `/proc/pressure`.
    #[serde(with = "As::<One<AbsolutePath>>")]
    pub host_root: PathBuf,
    /// Size of the demo's simulated disk. Only the demo sets it: there is no key for it.
    #[serde(skip)]
    pub simulated_disk_bytes: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: None,
            image_endpoint: None,
            timeout: Duration::from_secs(10),
            removal_timeout: Duration::from_secs(60),
            max_message_bytes: 128 << 20,
            host_root: "/".into(),
            simulated_disk_bytes: None,
        }
    }
}

struct Endpoint;

impl Kind for Endpoint {
    type Value = String;
    const MUST_BE: &str =
        "a unix socket such as unix:///run/containerd/containerd.sock (path up to 107 bytes)";

    fn read(text: &str) -> Option<String> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        let fits = (2..=SOCKET_PATH_BYTES_MAX).contains(&path.len());
        (Path::new(path).is_absolute() && fits).then(|| text.to_owned())
    }
}
