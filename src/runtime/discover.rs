//! Finds the runtime's socket: the configured one, else the first known one that answers.
//!
//! Never logs: the result says what was found, or all that was tried.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::config::UnixSocketUrl;
use super::error::plain;
use super::{Client, LogRoots, Settings, Version};
use crate::model::setting::TextKind;
use crate::system::blocking::BlockingPool;
use crate::system::{file, yaml};

/// The environment variable that names the endpoint, as for crictl.
pub const ENVIRONMENT_VARIABLE: &str = "CONTAINER_RUNTIME_ENDPOINT";

/// crictl's configuration.
pub const CRICTL_CONFIG: &str = "/etc/crictl.yaml";

/// Known sockets of runtimes, most common first: those of `docs/distributions.md`.
pub const WELL_KNOWN: [&str; 13] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k3s/cri-dockerd/cri-dockerd.sock",
    "/run/k0s/containerd.sock",
    "/var/run/containerd/containerd.sock",
    "/var/run/crio/crio.sock",
    "/var/run/cri-dockerd.sock",
    "/var/run/k3s/containerd/containerd.sock",
    "/var/run/k3s/cri-dockerd/cri-dockerd.sock",
    "/var/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
];

/// Threads that hung disks may cost.
const PLACES_HANGING_MAX: usize = 2;
/// Timeout for looking at a place.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of `Version` on a socket that was not configured.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const PROBE_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Where to look for the endpoint, in this order. Empty values count as missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSources {
    /// The value of `--runtime-endpoint`.
    pub flag: Option<String>,
    /// `runtime.endpoint` of the configuration.
    pub config: Option<String>,
    /// The value of `CONTAINER_RUNTIME_ENDPOINT`.
    pub environment: Option<String>,
    /// crictl's configuration file, of which `runtime-endpoint` is read.
    pub crictl_config: PathBuf,
    /// Sockets that are tried if nothing is configured.
    pub well_known: Vec<PathBuf>,
}

impl EndpointSources {
    /// Returns the usual places on a node, with nothing configured.
    pub fn usual() -> Self {
        Self {
            flag: None,
            config: None,
            environment: None,
            crictl_config: CRICTL_CONFIG.into(),
            well_known: WELL_KNOWN.map(PathBuf::from).to_vec(),
        }
    }
}

/// The endpoint to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredEndpoint {
    /// The socket's path.
    pub path: PathBuf,
    /// Why it was chosen: `set by --runtime-endpoint`, or `containerd 1.7.24 answers there`.
    pub why: String,
}

/// Why there is no endpoint: a configured value is none, or nothing is configured and no known socket answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DiscoverError(String);

/// Finds the runtime's socket. A configured one is not probed, because the runtime may start later.
pub async fn discover(places: &EndpointSources) -> Result<DiscoveredEndpoint, DiscoverError> {
    let mut tried = Vec::new();
    let configured = [
        ("--runtime-endpoint", &places.flag),
        ("runtime.endpoint in the configuration", &places.config),
        (ENVIRONMENT_VARIABLE, &places.environment),
    ];
    for (origin, value) in configured {
        match value
            .as_deref()
            .map(str::trim)
            .filter(|value| !value.is_empty())
        {
            Some(value) => return named(value, origin),
            None => tried.push(format!("{origin}: not set")),
        }
    }
    let crictl = places.crictl_config.display().to_string();
    let disk = BlockingPool::new(PLACES_HANGING_MAX);
    match crictl_endpoint(&disk, &places.crictl_config).await {
        Ok(value) => return named(&value, &format!("runtime-endpoint in {crictl}")),
        Err(problem) => tried.push(format!("{crictl}: {problem}")),
    }
    for path in &places.well_known {
        match probe(&disk, path).await {
            Ok(why) => {
                return Ok(DiscoveredEndpoint {
                    path: path.clone(),
                    why,
                });
            }
            Err(problem) => tried.push(format!("{}: {problem}", path.display())),
        }
    }
    Err(DiscoverError(format!(
        "no container runtime found; tried:\n  {}\n\
         name one with --runtime-endpoint unix:///path{}",
        tried.join("\n  "),
        if cfg!(feature = "demo") {
            ", or try crisweep demo, which needs none"
        } else {
            ""
        }
    )))
}

/// Parses an endpoint as crictl and the kubelet write it: `unix:///path`, `unix:/path` or `/path`. `origin`
/// names the value's source in the error.
pub fn parse_endpoint(value: &str, origin: &str) -> Result<PathBuf, DiscoverError> {
    let path = UnixSocketUrl::path(value).map(Path::to_owned);
    path.ok_or_else(|| {
        let must_be = UnixSocketUrl::MUST_BE;
        DiscoverError(format!(
            "runtime endpoint \"{value}\" (from {origin}) is not {must_be}"
        ))
    })
}

fn named(value: &str, origin: &str) -> Result<DiscoveredEndpoint, DiscoverError> {
    Ok(DiscoveredEndpoint {
        path: parse_endpoint(value, origin)?,
        why: format!("set by {origin}"),
    })
}

/// Size and depth of a crictl configuration that is read; crictl's own has five keys.
const CRICTL_CONFIG_BYTES_MAX: u64 = 64 << 10;
const CRICTL_CONFIG_DEPTH_MAX: usize = 16;

#[derive(Deserialize)]
struct CrictlConfig {
    #[serde(rename = "runtime-endpoint")]
    runtime_endpoint: Option<String>,
}

/// Reads the endpoint that crictl would use; the error says why there is none. An unusable file is not our
/// problem: the search goes on.
async fn crictl_endpoint(disk: &BlockingPool, path: &Path) -> Result<String, String> {
    let read = |path: PathBuf| file::bounded(&mut file::open(&path)?, CRICTL_CONFIG_BYTES_MAX);
    let text = within_timeout(disk, path, read).await?;
    let options = yaml::options(CRICTL_CONFIG_DEPTH_MAX);
    let read: Option<CrictlConfig> = serde_saphyr::from_slice_with_options(&text, options)
        .map_err(|error| format!("not understood: {}", plain(&error.to_string())))?;
    let endpoint = read.and_then(|it| it.runtime_endpoint);
    let endpoint = endpoint.map(|value| value.trim().to_owned());
    endpoint
        .filter(|value| !value.is_empty())
        .ok_or_else(|| "names no runtime-endpoint".to_owned())
}

/// Returns why this is the runtime's socket, or the problem with it.
async fn probe(disk: &BlockingPool, path: &Path) -> Result<String, String> {
    let file = within_timeout(disk, path, std::fs::metadata).await?;
    if !file.file_type().is_socket() {
        return Err("not a socket".to_owned());
    }
    match ask_version(path).await {
        Ok(Version { runtime, version }) => Ok(format!("{runtime} {version} answers there")),
        // It speaks CRI and has just started.
        Err(error @ super::Error::NotReady { .. }) => {
            Ok(format!("a runtime starts there ({error})"))
        }
        Err(super::Error::Unreachable { why, .. }) => Err(why),
        Err(error) => Err(format!("no CRI answer: {error}")),
    }
}

async fn ask_version(path: &Path) -> Result<Version, super::Error> {
    let settings = Settings {
        endpoint: path.to_owned(),
        image_endpoint: None,
        timeout: PROBE_TIMEOUT,
        removal_timeout: PROBE_TIMEOUT,
        max_message_bytes: PROBE_MESSAGE_BYTES_MAX,
        log_roots: LogRoots::default(),
    };
    Client::new(settings).version().await
}

async fn within_timeout<T: Send + 'static>(
    disk: &BlockingPool,
    path: &Path,
    work: impl FnOnce(PathBuf) -> io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let path = path.to_owned();
    let done = disk.run(LOOK_TIMEOUT, move || work(path)).await;
    let done = done.map_err(|error| error.to_string())?;
    done.map_err(|error| plain(&error.to_string()))
}

#[cfg(test)]
mod tests;
