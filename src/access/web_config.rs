//! The web configuration file that Prometheus' exporters share: TLS, headers, users and a rate limit. Reads and
//! checks the file; never opens the certificates that it names (`tls` does).
//!
//! The format is the exporter-toolkit's. What differs is stricter, and `docs/security.md` lists it.

mod sections;
#[cfg(test)]
mod tests;
pub(super) mod tls_keys;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use axum::http::{HeaderName, HeaderValue};
use rustls::crypto::SupportedKxGroup;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::passwords::BasicAuthUsers;
use super::rate_limit::RateLimit;
use crate::system::file;

/// The largest file that is read: the web configuration file, a certificate, a key.
const FILE_MAX: u64 = 1 << 20;

/// What a web configuration file says. An empty file is valid: no TLS, no users.
#[derive(Clone, Debug)]
pub struct WebConfig {
    /// `tls_server_config`; without it the service speaks plain HTTP.
    pub tls: Option<TlsServerConfig>,
    /// `http_server_config.http2`: whether HTTP/2 is offered over TLS.
    pub http2: bool,
    /// `http_server_config.headers`: added to every answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// `basic_auth_users`; if there are any, every request needs one of them.
    pub users: BasicAuthUsers,
    /// `rate_limit`, for all clients together.
    pub rate_limit: Option<RateLimit>,
}

/// `tls_server_config`.
#[derive(Clone, Debug)]
pub struct TlsServerConfig {
    /// `cert` or `cert_file`.
    pub cert: Pem,
    /// `key` or `key_file`.
    pub key: Pem,
    /// `client_auth_type` with its CA and its allowed names; `None`: no certificate is asked for.
    pub client_auth: Option<ClientAuth>,
    /// The versions from `min_version` to `max_version`.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// `cipher_suites` in their order, and always those of TLS 1.3.
    pub cipher_suites: Vec<SupportedCipherSuite>,
    /// `curve_preferences` in their order.
    pub curves: Vec<&'static dyn SupportedKxGroup>,
    /// `prefer_server_cipher_suites`: the order of `cipher_suites` counts, not the client's.
    pub prefer_server_cipher_suites: bool,
}

/// `client_auth_type`, where clients are asked for a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientAuth {
    /// Whether a client must send one.
    pub is_mandatory: bool,
    /// Whose certificates are accepted; `None`: none is verified.
    pub trusted: Option<TrustedClients>,
}

/// Which client certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedClients {
    /// `client_ca` or `client_ca_file`.
    pub ca: Pem,
    /// `client_allowed_sans`; `None` allows each certificate of the CA.
    pub allowed_sans: Option<BTreeSet<String>>,
}

/// PEM text, or the file that holds it.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text itself; it may be a private key.
    Inline(String),
    /// A path; a relative one was joined with the directory of the web configuration file.
    File(PathBuf),
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(_) => f.write_str("Inline(..)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// Why a web configuration file cannot be used: it cannot be read, is not YAML, a key is unknown, or its value is
/// refused. The text names the file, and the key where there is one.
#[derive(Debug, thiserror::Error)]
#[error("{}: {refusal}", .path.display())]
pub struct Error {
    /// The web configuration file.
    pub path: PathBuf,
    /// The key and the reason.
    pub refusal: KeyRefusal,
}

/// Why a key is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRefusal {
    /// The key with the keys above it, for example `tls_server_config.key_file`; empty for the whole file.
    pub key: String,
    /// The reason; never holds a secret.
    pub why: String,
}

impl KeyRefusal {
    pub(super) fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        let (key, why) = (key.into(), why.into());
        Self { key, why }
    }

    /// Says in which file.
    pub(super) fn of(self, path: &Path) -> Error {
        let path = path.to_owned();
        Error {
            path,
            refusal: self,
        }
    }
}

impl fmt::Display for KeyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            return f.write_str(&self.why);
        }
        write!(f, "{}: {}", self.key, self.why)
    }
}

impl WebConfig {
    /// Reads and checks a file. Does not open the files that it names.
    ///
    /// # Errors
    /// If it cannot be read, is malformed, or holds unknown or impossible settings.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = read_text(path).map_err(|why| KeyRefusal::new("", why).of(path))?;
        let dir = path.parent().unwrap_or(Path::new(""));
        sections::read(&text, dir).map_err(|refusal| refusal.of(path))
    }

    /// Returns how clients are asked for a certificate, if they are.
    pub(super) fn client_auth(&self) -> Option<&ClientAuth> {
        self.tls.as_ref()?.client_auth.as_ref()
    }

    /// Returns whose client certificates are accepted, if any are verified.
    pub(super) fn trusted(&self) -> Option<&TrustedClients> {
        self.client_auth()?.trusted.as_ref()
    }

    /// Returns the files that it names.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let own = self.tls.iter().flat_map(|tls| [&tls.cert, &tls.key]);
        let pems = own.chain(self.trusted().map(|trusted| &trusted.ca));
        pems.filter_map(|pem| match pem {
            Pem::Inline(_) => None,
            Pem::File(path) => Some(path.as_path()),
        })
    }
}

/// Reads a regular file of a bounded size; the error names the reason alone.
pub(super) fn read_text(path: &Path) -> Result<String, String> {
    let text = file::open(path).and_then(|mut file| file::text(&mut file, FILE_MAX));
    text.map_err(|error| error.to_string())
}
