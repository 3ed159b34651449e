//! Where a service can be asked: the one of this configuration at a unix socket or an address of this machine, or the
//! one that `--service.url` names.
//!
//! An address of this machine: the certificate is not verified, because nothing secret is sent there, and a probe must
//! not fail because a certificate has run out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use reqwest::Client;

use super::{Remote, builder};
use crate::access::Listen;
use crate::access::web_config::WebConfig;
use crate::config::Config;
use crate::system::blocking::BlockingPool;

/// Addresses that are tried.
const WAYS_MAX: usize = 4;

/// How a listening service can be reached.
pub(in crate::cli) enum Way {
    Unix(PathBuf),
    Tcp { address: SocketAddr, tls: bool },
    Remote(Remote),
}

impl Way {
    pub(in crate::cli) fn url(&self, path: &str) -> String {
        match self {
            // The host name is not looked up; the service knows it as its own.
            Self::Unix(_) => format!("http://localhost{path}"),
            Self::Tcp {
                address,
                tls: false,
            } => format!("http://{address}{path}"),
            Self::Tcp { address, tls: true } => format!("https://{address}{path}"),
            Self::Remote(remote) => remote.url(path),
        }
    }

    /// Returns a client for it.
    ///
    /// # Errors
    /// If it cannot be built.
    pub(in crate::cli) fn client(&self) -> reqwest::Result<Client> {
        let builder = builder().tls_danger_accept_invalid_certs(true);
        match self {
            Self::Unix(path) => builder.unix_socket(path.as_path()).build(),
            Self::Tcp { .. } => builder.build(),
            Self::Remote(remote) => Ok(remote.client()),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { address, .. } => write!(f, "{address}"),
            Self::Remote(remote) => write!(f, "{remote}"),
        }
    }
}

/// Returns where the service may be reached, unix sockets first: there root needs no credential. Reading the web
/// configuration file may take as long as `disk`.
pub(super) async fn ways(config: &Config, disk: Duration) -> Vec<Way> {
    let tls = speaks_tls(config, disk).await;
    let way = |listen: &Listen| match listen {
        Listen::Unix(path) => Some(Way::Unix(path.clone())),
        Listen::Tcp(address) => own(*address).map(|address| Way::Tcp { address, tls }),
    };
    let mut ways: Vec<Way> = config.web.listen.iter().filter_map(way).collect();
    ways.sort_by_key(|way| !matches!(way, Way::Unix(_)));
    ways.truncate(WAYS_MAX);
    ways
}

/// Says whether the web configuration file asks for TLS. One that cannot be read most likely does.
async fn speaks_tls(config: &Config, disk: Duration) -> bool {
    let Some(path) = config.web.config_file.clone() else {
        return false;
    };
    let load = move || WebConfig::load(&path).map_or(true, |file| file.tls.is_some());
    BlockingPool::new(1).run(disk, load).await.unwrap_or(true)
}

/// Returns an address to ask, if it is certainly this machine's own.
fn own(mut address: SocketAddr) -> Option<SocketAddr> {
    if address.port() == 0 {
        return None;
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    let ip = address.ip();
    // Only an own address can be bound to.
    (ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()).then_some(address)
}
