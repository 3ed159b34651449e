//! `http_client_config` in Prometheus' words. Secrets are in files, never in the configuration, which
//! `crisweep config` prints.

use std::net::IpAddr;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::SecretSource;
use crate::model::setting::{AbsolutePath, As, One, Optional, settings, text_kinds};

/// `http_client_config:` - how crisweep asks a server over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HttpClientConfig {
    /// The header `Authorization`.
    pub authorization: Authorization,
    /// User and password.
    pub basic_auth: BasicAuth,
    /// Certificates.
    pub tls_config: TlsConfig,
    /// Only `false`: a redirect would take the credentials to a server that is not configured.
    pub follow_redirects: bool,
}

settings! {
    /// `authorization:` - a token.
    #[derive(Eq)]
    pub struct Authorization {
        /// The scheme before the token.
        #[serde(rename = "type", with = "As::<One<Scheme>>")]
        pub scheme: String = "Bearer".to_owned(),
        /// The token, read at each request.
        #[serde(with = "As::<Optional<AbsolutePath>>")]
        pub credentials_file: Option<PathBuf> = None,
    }
}

/// `basic_auth:` - a user and the file of the password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct BasicAuth {
    /// The user; with `password_file`.
    #[serde(with = "As::<Optional<UserName>>")]
    pub username: Option<String>,
    /// The password, read at each request; with `username`.
    #[serde(with = "As::<Optional<AbsolutePath>>")]
    pub password_file: Option<PathBuf>,
}

/// `tls_config:` - whom to trust, and what to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The CAs that are trusted, in PEM, read at each request. `null`: the system's.
    #[serde(with = "As::<Optional<AbsolutePath>>")]
    pub ca_file: Option<PathBuf>,
    /// The client certificate with its chain, in PEM, read at each request; with `key_file`.
    #[serde(with = "As::<Optional<AbsolutePath>>")]
    pub cert_file: Option<PathBuf>,
    /// The private key of the client certificate, in PEM; may be the same file.
    #[serde(with = "As::<Optional<AbsolutePath>>")]
    pub key_file: Option<PathBuf>,
    /// The name that the server's certificate must be for. `null`: the URL's host.
    #[serde(with = "As::<Optional<DnsName>>")]
    pub server_name: Option<String>,
    /// Only `false`: an unknown server could say which alerts are active, and would get the credentials.
    pub insecure_skip_verify: bool,
    /// The oldest TLS version that is spoken.
    pub min_version: TlsVersion,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// Prometheus' keys that crisweep does not take, and why.
const REFUSED: [(&str, &str); 13] = [
    ("authorization.credentials", CREDENTIALS),
    ("bearer_token", CREDENTIALS),
    ("bearer_token_file", CREDENTIALS),
    (
        "basic_auth.password",
        "is refused: the password must be in a file; use basic_auth.password_file",
    ),
    (
        "basic_auth.username_file",
        "is refused: the user's name is no secret; use basic_auth.username",
    ),
    ("oauth2", "is refused: crisweep does not speak OAuth 2.0"),
    ("tls_config.ca", INLINE),
    ("tls_config.cert", INLINE),
    ("tls_config.key", INLINE),
    ("proxy_url", PROXY),
    ("proxy_from_environment", PROXY),
    ("proxy_connect_header", PROXY),
    ("no_proxy", PROXY),
];

const CREDENTIALS: &str =
    "is refused: the token must be in a file; use authorization.credentials_file";
const INLINE: &str =
    "is refused: it must be in a file; use tls_config's ca_file, cert_file and key_file";
const PROXY: &str =
    "is refused: crisweep never uses a proxy, which would see or answer what it asks";

/// Returns why a key of Prometheus is not taken; `key` is relative to `http_client_config`.
pub fn refused(key: &str) -> Option<&'static str> {
    let found = REFUSED.iter().find(|(refused, _)| *refused == key);
    found.map(|(_, why)| *why)
}

impl HttpClientConfig {
    /// Says whether a request carries a token or a password from a file.
    pub fn has_credentials(&self) -> bool {
        self.authorization.credentials_file.is_some() || self.basic_auth.username.is_some()
    }

    /// Checks the keys against each other; calls `refuse` with a key below `above` and its problem.
    pub fn validate(&self, above: &str, refuse: &mut dyn FnMut(&str, String)) {
        let (basic, tls) = (&self.basic_auth, &self.tls_config);
        let both_secrets =
            self.authorization.credentials_file.is_some() && basic.username.is_some();
        for (key, is_wrong, text) in [
            (
                "follow_redirects",
                self.follow_redirects,
                "is true, but must be false: a redirect would take the credentials to another server",
            ),
            (
                "tls_config.insecure_skip_verify",
                tls.insecure_skip_verify,
                "is true, but must be false: trust the server's certificate with tls_config.ca_file, and \
                 its name with tls_config.server_name",
            ),
            (
                "basic_auth",
                both_secrets,
                "is set, and so is authorization; a request has one of them",
            ),
            (
                "basic_auth.password_file",
                basic.username.is_some() && basic.password_file.is_none(),
                "is missing, but basic_auth.username is set",
            ),
            (
                "basic_auth.username",
                basic.username.is_none() && basic.password_file.is_some(),
                "is missing, but basic_auth.password_file is set",
            ),
        ] {
            if is_wrong {
                refuse(&format!("{above}.{key}"), text.to_owned());
            }
        }
        let prefix = format!("{above}.tls_config.");
        tls.validate_pair(&prefix, refuse);
    }
}

/// A file that proves who asks, and what it holds.
pub(crate) type Named<'a> = (&'static str, &'a PathBuf);

/// Describes credentials for error messages.
pub(crate) fn credentials_text(credentials: &[Named<'_>]) -> String {
    let one = |(what, path): &Named<'_>| format!("the {what} in {}", path.display());
    let shown: Vec<_> = credentials.iter().map(one).collect();
    if shown.is_empty() {
        return "a request without a token".to_owned();
    }
    shown.join(" and ")
}

impl TlsConfig {
    /// Returns where the client certificate and its key are, if there is one.
    pub(crate) fn identity(&self) -> Option<(SecretSource, SecretSource)> {
        let file = |path: &Option<PathBuf>| path.clone().map(SecretSource::File);
        file(&self.cert_file).zip(file(&self.key_file))
    }

    /// Returns the files that prove who asks: this token's and the client certificate's.
    pub(crate) fn credentials<'a>(&'a self, token: Option<&'a PathBuf>) -> Vec<Named<'a>> {
        let token = token.map(|path| ("token", path));
        let certificate = self.cert_file.iter();
        let certificate = certificate.map(|path| ("client certificate", path));
        token.into_iter().chain(certificate).collect()
    }

    /// Refuses a client certificate without its key, and the reverse; `prefix` comes before both keys.
    pub fn validate_pair(&self, prefix: &str, refuse: &mut dyn FnMut(&str, String)) {
        let (missing, set) = match (&self.cert_file, &self.key_file) {
            (Some(_), None) => ("key_file", "cert_file"),
            (None, Some(_)) => ("cert_file", "key_file"),
            (Some(_), Some(_)) | (None, None) => return,
        };
        let text =
            format!("is missing, but {prefix}{set} is set; one file may hold both, named twice");
        refuse(&format!("{prefix}{missing}"), text);
    }
}

text_kinds! {
    /// An authentication scheme with a token.
    Scheme -> String, "a scheme such as Bearer; not Basic, which basic_auth is for", |text| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let is_scheme = (1..=64).contains(&text.len()) && text.bytes().all(allowed);
        (is_scheme && !text.eq_ignore_ascii_case("basic")).then(|| text.to_owned())
    };

    /// A user's name.
    UserName -> String, "a user's name without a colon", |text| {
        let is_name = !text.is_empty() && !text.contains([':', '\r', '\n', '\0']);
        is_name.then(|| text.to_owned())
    };

    /// A host's name, not an address.
    DnsName -> String, "a host's name, not an address", |text| dns_name(text);
}

/// Returns a host's name in lower case; `None` if it is an address or no name.
pub fn dns_name(text: &str) -> Option<String> {
    let url = Url::parse(&format!("https://{text}")).ok()?;
    let name = url.domain()?;
    name.eq_ignore_ascii_case(text).then(|| name.to_owned())
}

/// Says whether a URL is of a server that may get a credential: `https`, or `http` to this machine only. A path may
/// follow, nothing else.
pub fn is_secure_url(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else {
        return false;
    };
    let is_local = match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse()
            .is_ok_and(|ip: IpAddr| ip.is_loopback()),
        None => false,
    };
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_local);
    let is_bare = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    // TLS depends on the scheme as written.
    is_safe && is_bare && text.starts_with(url.scheme())
}
