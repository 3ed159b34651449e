//! Where a service can be asked: the one of this configuration at a unix socket or an address of this machine, or the
//! one that `--service.url` names.
//!
//! An address of this machine: the certificate is not verified, because nothing secret is sent there, and a probe must
//! not fail because a certificate has run out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::words::{NO_TLS, cause, of_tls, own_words, said, wants_certificate};
use super::{ServiceFailure, ServiceFailureKind, builder};
use crate::access::Listen;
use crate::access::web_config::WebConfig;
use crate::config::Config;
use crate::http::NO_SUCH_PATH;
use crate::system::blocking::BlockingPool;

/// Addresses that are tried.
const ADDRESSES_MAX: usize = 4;

/// How often a question is asked whose connection ends without a reason.
const TRIES: usize = 4;

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
    /// Whether a credential is sent.
    pub(in crate::cli) has_credential: bool,
    /// The flags that name it, for a command that asks it too; nothing for what the environment says.
    pub(in crate::cli) flags: String,
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
            has_credential: false,
            flags: String::new(),
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
        let answer = async {
            for _ in 1..TRIES {
                match self.try_get(path, max).await {
                    Err(error) if self.may_be_a_refusal(&error) => {}
                    answer => return answer,
                }
            }
            self.try_get(path, max).await
        };
        match timeout_at(by, answer).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(self.foreign(&format!(": its answer is longer than {max} bytes"))),
            Ok(Err(error)) => {
                if let Some(why) = wants_certificate(&error, self.is_named) {
                    let words = format!("{} refuses: {why}", self.at());
                    return Err(ServiceFailureKind::Refuses.with(words));
                }
                let (is_down, kind) = (error.is_connect(), without_connection(&error));
                let cause = format!(": {}", cause(error));
                if !is_down {
                    return Err(self.foreign(&cause));
                }
                let words = format!("no service answers at {}{cause}", self.with_key());
                Err(kind.with(words))
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
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > max {
                return Ok(None);
            }
        }
        Ok(Some((response.status(), body)))
    }

    /// Says whether the service may have refused the client's certificate. In TLS 1.3 it does so after the client's
    /// handshake, and the request, which is sent by then, fails now and then before the refusal is read.
    fn may_be_a_refusal(&self, error: &reqwest::Error) -> bool {
        self.base.starts_with("https:") && !error.is_timeout() && of_tls(error).is_none()
    }

    /// Something else answers here.
    pub(super) fn foreign(&self, cause: &str) -> ServiceFailure {
        let words = format!("what answers at {} is no crisweep{cause}", self.with_key());
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

    /// Returns its own words about a question that it cannot answer. Where they are no words of crisweep, or it does not
    /// know the question, they alone would not be understood.
    pub(super) fn refused(&self, status: StatusCode, body: &[u8]) -> String {
        match own_words(body) {
            Some(words) if !words.starts_with(NO_SUCH_PATH) => words,
            _ => self.refusal(status, body),
        }
    }

    /// Returns why it refused, with its own words and what to do about it.
    pub(in crate::cli) fn refusal(&self, status: StatusCode, body: &[u8]) -> String {
        let said = said(body);
        let hint = match status.as_u16() {
            401 | 403 if self.has_credential => {
                "; it does not take the credential that it was shown for this"
            }
            401 | 403 if self.is_named => "; name a credential with --service.token-file",
            401 | 403 => {
                "; name it with --service.url, and its credential with --service.token-file"
            }
            404 if said.starts_with(NO_SUCH_PATH) => "; is it older than this command?",
            _ => "",
        };
        format!("{} answers {status}: {said}{hint}", self.at())
    }
}

/// Says why there is no connection.
fn without_connection(error: &reqwest::Error) -> ServiceFailureKind {
    match of_tls(error) {
        Some(rustls::Error::InvalidCertificate(_)) => ServiceFailureKind::Untrusted,
        Some(error) if *error == NO_TLS => ServiceFailureKind::NoTls,
        Some(_) | None => ServiceFailureKind::Down,
    }
}

/// Returns where the service may be reached, unix sockets first: there root needs no credential. Reading the web
/// configuration file may take as long as `disk`.
pub(super) async fn own_addresses(config: &Config, disk: Duration) -> Vec<ServiceAddress> {
    let scheme = if speaks_tls(config, disk).await {
        "https"
    } else {
        "http"
    };
    let mut listens: Vec<&Listen> = config.web.listen.iter().collect();
    listens.sort_by_key(|listen| !matches!(listen, Listen::Unix(_)));
    let own = listens.into_iter();
    let own = own.filter_map(|listen| ServiceAddress::own(listen, scheme));
    own.take(ADDRESSES_MAX).collect()
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
