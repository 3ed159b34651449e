//! Where a service can be asked: the one of this configuration at a unix socket or an address of this machine, or the
//! one that `--service.url` names.
//!
//! An address of this machine: the certificate is not verified, because nothing secret is sent there, and a probe must
//! not fail because a certificate has run out.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;
use std::{fmt, io};

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use rustls::CertificateError;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{ServiceFailure, ServiceFailureKind, builder};
use crate::access::Listen;
use crate::access::web_config::WebConfig;
use crate::config::Config;
use crate::outgoing::read_body;
use crate::system::blocking::BlockingPool;

/// Addresses that are tried.
const ADDRESSES_MAX: usize = 4;
/// The longest text that a service may put into an error.
const SAID_MAX_CHARS: usize = 1_000;
/// The same for one that is no crisweep.
const FOREIGN_MAX_CHARS: usize = 120;

/// An address where a service may answer.
#[derive(Clone)]
pub struct ServiceAddress {
    /// As people read it, without user and password.
    pub(super) shown: String,
    /// What stands before the path of a request.
    pub(super) base: String,
    pub(super) client: Client,
    /// Whether `--service.url` names it.
    pub(super) is_named: bool,
    /// Whether it gets a credential.
    pub(super) gets_credential: bool,
}

impl fmt::Debug for ServiceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceAddress({})", self.shown)
    }
}

impl ServiceAddress {
    /// Returns the address of what listens on this machine; `None` if that cannot be known.
    fn own(listen: &Listen, scheme: &str) -> Option<Self> {
        let builder = builder().tls_danger_accept_invalid_certs(true);
        let (shown, base, builder) = match listen {
            Listen::Unix(path) => (
                format!("unix:{}", path.display()),
                // The host name is not looked up; the service knows it as its own.
                "http://localhost".to_owned(),
                builder.unix_socket(path.as_path()),
            ),
            Listen::Tcp(address) => {
                let address = own(*address)?;
                let base = format!("{scheme}://{address}");
                (address.to_string(), base, builder)
            }
        };
        Some(Self {
            shown,
            base,
            client: builder.build().ok()?,
            is_named: false,
            gets_credential: false,
        })
    }

    /// Returns a request to a path of it.
    pub(in crate::cli) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Returns where it is, for people.
    pub(in crate::cli) fn at(&self) -> String {
        format!("the service at {}", self.shown)
    }

    /// Asks for a path and reads the answer, at most `max` bytes, until `by`.
    pub(super) async fn get(
        &self,
        path: &str,
        by: Instant,
        max: usize,
    ) -> Result<(StatusCode, Vec<u8>), ServiceFailure> {
        match timeout_at(by, self.try_get(path, max)).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(self.foreign(&format!(": its answer is longer than {max} bytes"))),
            Ok(Err(error)) => {
                let is_down = error.is_connect();
                let cause = format!(": {}", cause(error));
                if !is_down {
                    return Err(self.foreign(&cause));
                }
                let words = format!("no service answers at {}{cause}", self.with_key());
                Err(ServiceFailureKind::Down.with(words))
            }
            Err(_elapsed) => {
                let words = format!("the service at {} gives no answer in time", self.with_key());
                Err(ServiceFailureKind::NoAnswer.with(words))
            }
        }
    }

    /// Asks once; `None`: the answer is longer than `max` bytes.
    async fn try_get(
        &self,
        path: &str,
        max: usize,
    ) -> reqwest::Result<Option<(StatusCode, Vec<u8>)>> {
        let mut response = self.request(Method::GET, path).send().await?;
        let mut body = Vec::new();
        let is_whole = read_body(&mut response, &mut body, max as u64).await?;
        Ok(is_whole.then(|| (response.status(), body)))
    }

    /// Something else answers here.
    pub(super) fn foreign(&self, cause: &str) -> ServiceFailure {
        let words = format!(
            "the answer at {} is none of crisweep's{cause}",
            self.with_key()
        );
        ServiceFailureKind::Foreign.with(words)
    }

    /// Names it with the setting that it comes from.
    fn with_key(&self) -> String {
        let key = if self.is_named {
            "--service.url"
        } else {
            "web.listen"
        };
        format!("{} ({key})", self.shown)
    }

    /// Returns why it refused, with its own words and what to do about it. Of a credential that it got its own words say
    /// more; the reason may also be another one, such as the host's name.
    pub(in crate::cli) fn refusal(&self, status: StatusCode, body: &[u8]) -> String {
        let hint = match status.as_u16() {
            401 | 403 if !self.gets_credential => {
                "; name a credential for it with --service.url and --service.token-file"
            }
            _ => "",
        };
        format!("{} answers {status}: {}{hint}", self.at(), said(body))
    }
}

/// Returns where the service may be reached, unix sockets first: there root needs no credential. Reading the web
/// configuration file may take as long as `disk`.
pub(super) async fn own_addresses(config: &Config, disk: Duration) -> Vec<ServiceAddress> {
    let schemes = schemes(config, disk).await;
    let mut listens: Vec<&Listen> = config.web.listen.iter().collect();
    listens.sort_by_key(|listen| !matches!(listen, Listen::Unix(_)));
    let own = listens.into_iter().flat_map(|listen| {
        let schemes: &[&str] = match listen {
            Listen::Unix(_) => &["http"],
            Listen::Tcp(_) => schemes,
        };
        let of = |scheme: &&str| ServiceAddress::own(listen, scheme);
        schemes.iter().filter_map(of)
    });
    own.take(ADDRESSES_MAX).collect()
}

/// Returns what the service may speak over TCP. Where the web configuration file cannot be read, it goes on with what it
/// read before. A service that speaks TLS says so to a plain request; what it says over TLS counts then.
async fn schemes(config: &Config, disk: Duration) -> &'static [&'static str] {
    let Some(path) = config.web.config_file.clone() else {
        return &["http"];
    };
    let load = move || WebConfig::load(&path).map(|file| file.tls.is_some());
    match BlockingPool::new(1).run(disk, load).await {
        Ok(Ok(true)) => &["https"],
        Ok(Ok(false)) => &["http"],
        Ok(Err(_)) | Err(_) => &["http", "https"],
    }
}

/// Returns an address to ask, if it is certainly this machine's own.
fn own(mut address: SocketAddr) -> Option<SocketAddr> {
    if address.port() == 0 {
        return None;
    }
    // Only an own address can be bound to.
    let is_own = |ip: IpAddr| UdpSocket::bind((ip, 0)).is_ok();
    if address.ip().is_unspecified() {
        // A machine whose interfaces have no IPv6 takes IPv4 there.
        let six = Some(IpAddr::from(Ipv6Addr::LOCALHOST));
        let six = six.filter(|six| address.is_ipv6() && is_own(*six));
        address.set_ip(six.unwrap_or(Ipv4Addr::LOCALHOST.into()));
    }
    let ip = address.ip();
    (ip.is_loopback() || is_own(ip)).then_some(address)
}

/// Returns the service's own words of a refusal.
fn said(body: &[u8]) -> String {
    let error: Option<Value> = serde_json::from_slice(body).ok();
    let own = error.as_ref().and_then(|it| it.get("error")?.as_str());
    if let Some(words) = own.map(str::trim).filter(|words| !words.is_empty()) {
        return words.chars().take(SAID_MAX_CHARS).collect();
    }
    // A proxy's page says nothing in its later lines.
    let text = String::from_utf8_lossy(body);
    match text.trim().lines().next() {
        Some(line) => line.chars().take(FOREIGN_MAX_CHARS).collect(),
        None => "without a reason".to_owned(),
    }
}

/// The last cause says most, and the URL is named already.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut last: &(dyn Error + 'static) = &error;
    // `source` of an `io::Error` leaves out the error that it wraps.
    while let Some(source) = wrapped(last).or_else(|| last.source()) {
        last = source;
    }
    match last.downcast_ref() {
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS: use http://".to_owned(),
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => format!("{last}: name its CA with --service.ca-file"),
        _ => last.to_string(),
    }
}

fn wrapped<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    Some(error.downcast_ref::<io::Error>()?.get_ref()?)
}
