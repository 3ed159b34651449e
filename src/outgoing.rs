//! Asks other servers over HTTP: Alertmanagers. `kubernetes` asks the API server and the kubelet with the same clients
//! and bounds. Never follows a redirect, never uses a proxy, never takes an answer above its bound, never shows a
//! secret.
//!
//! Tokens, passwords and certificates are in files, which are read at each request: a rotation needs no reload.

mod client_cache;
mod config;
mod names;
mod secret;
pub(crate) mod tls;

use std::path::{Path, PathBuf};

use reqwest::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};

use crate::system::blocking::BlockingPool;
use crate::system::file;
use crate::system::opaque_debug;
pub(crate) use client_cache::{ClientCache, ClientParts};
pub use config::{
    Authorization, BasicAuth, HttpClientConfig, TlsConfig, TlsVersion, dns_name, is_secure_url,
    refused,
};
pub(crate) use config::{Named, credentials_text};
pub(crate) use secret::{Secret, SecretSource};

/// The largest token, certificate, key or CA file.
pub(crate) const FILE_MAX_BYTES: u64 = 1 << 20;

/// Why a request has no answer. Contains neither a secret nor the URL.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be asked.
    #[error("it is not an HTTP URL")]
    Url,
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it is for, or no CA file is configured and the system has none.
    #[error("{0}")]
    Lacks(String),
    /// The client certificate cannot be used.
    #[error("the client certificate in {} cannot be used", path.display())]
    Identity {
        /// The certificate's file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
    /// The client cannot be made.
    #[error("the TLS client cannot be made")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request failed.
    #[error("no answer")]
    Request(#[source] reqwest::Error),
    /// The answer is larger than allowed.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(u64),
}

impl Error {
    pub(crate) fn lacks(path: &Path, what: &'static str) -> Self {
        Self::Lacks(format!("{} holds no {what}", path.display()))
    }
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its body; empty where the client does not read it, such as that of most errors.
    pub bytes: Vec<u8>,
}

/// A client of one server.
pub struct HttpClient {
    url: String,
    config: HttpClientConfig,
    answer_max_bytes: u64,
    /// Threads for reading the files.
    disk: BlockingPool,
    clients: ClientCache<()>,
}

opaque_debug!(HttpClient);

impl HttpClient {
    /// Returns a client of the server at `url`; it reads no file yet.
    pub fn new(
        url: String,
        config: HttpClientConfig,
        answer_max_bytes: u64,
        disk: BlockingPool,
    ) -> Self {
        Self {
            url,
            config,
            answer_max_bytes,
            clients: ClientCache::new(disk.clone()),
            disk,
        }
    }

    /// Returns the URL of a path on the server. Configured credentials go before those of the URL.
    ///
    /// # Errors
    /// If the server's URL is none.
    pub fn url(&self, path: &str) -> Result<Url, Error> {
        let mut url = url_of(&self.url, path)?;
        if self.config.has_credentials() {
            url.set_username("").map_err(|()| Error::Url)?;
            url.set_password(None).map_err(|()| Error::Url)?;
        }
        Ok(url)
    }

    /// Gets a URL of the server. The caller bounds the time.
    ///
    /// # Errors
    /// If there is no answer, or it is too large.
    pub async fn get(&self, url: Url) -> Result<HttpResponse, Error> {
        let client = self.client(&url).await?;
        let request = request(&client, Method::GET, url, &self.config.tls_config)?;
        let request = self.authorize(request).await?;
        let has_body = |status: StatusCode| status.is_success();
        answer(request, self.answer_max_bytes, has_body).await
    }

    /// Adds the credentials; without any, those of the URL are sent.
    async fn authorize(&self, request: RequestBuilder) -> Result<RequestBuilder, Error> {
        if let Some(path) = &self.config.authorization.credentials_file {
            let token = read(&self.disk, path).await?;
            let value = authorization(&self.config.authorization.scheme, token)?;
            return Ok(request.header(AUTHORIZATION, value));
        }
        let basic = &self.config.basic_auth;
        let (Some(user), Some(path)) = (&basic.username, &basic.password_file) else {
            return Ok(request);
        };
        let password = read(&self.disk, path).await?.text("password")?;
        Ok(request.basic_auth(user, Some(password)))
    }

    /// Returns a client that trusts the CAs now in their file and shows the certificate now in its own.
    async fn client(&self, url: &Url) -> Result<Client, Error> {
        let tls = &self.config.tls_config;
        let ca = match &tls.ca_file {
            Some(path) => Some(read(&self.disk, path).await?),
            None => None,
        };
        let (key, identity) = ((), tls.identity());
        let parts = ClientParts {
            key,
            url,
            tls,
            ca,
            identity: identity.as_ref(),
        };
        self.clients.client(parts).await
    }
}

/// Returns the header with a token.
pub(crate) fn authorization(scheme: &str, token: Secret) -> Result<HeaderValue, Error> {
    let from = token.from.clone();
    let value = HeaderValue::try_from(format!("{scheme} {}", token.text("token")?));
    let mut value = value.map_err(|_text_is_secret| Error::lacks(&from, "token"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the URL of a path on a server, whose URL may have a path too.
pub(crate) fn url_of(server: &str, path: &str) -> Result<Url, Error> {
    let url = Url::parse(&format!("{}{path}", server.trim_end_matches('/')));
    let url = url.ok().filter(|url| url.scheme().starts_with("http"));
    // A path that the parser changes, as it does with `..`, would be another one.
    let url = url.filter(|url| url.has_host() && url.as_str().ends_with(path));
    url.ok_or(Error::Url)
}

/// Begins a request. The name that the certificate must be for takes the host's place in the URL.
pub(crate) fn request(
    client: &Client,
    method: Method,
    mut url: Url,
    tls: &TlsConfig,
) -> Result<RequestBuilder, Error> {
    let mut host = None;
    if let Some(name) = &tls.server_name {
        let name_of_host = url.host_str().ok_or(Error::Url)?.to_owned();
        host = Some(match url.port() {
            Some(port) => format!("{name_of_host}:{port}"),
            None => name_of_host,
        });
        url.set_host(Some(name)).map_err(|_error| Error::Url)?;
    }
    let mut request = client.request(method, url);
    if let Some(host) = host {
        request = request.header(HOST, host);
    }
    Ok(request.header(ACCEPT, "application/json"))
}

/// Sends a request and reads its answer, whose body is read only where `has_body` says so.
pub(crate) async fn answer(
    request: RequestBuilder,
    max_bytes: u64,
    has_body: fn(StatusCode) -> bool,
) -> Result<HttpResponse, Error> {
    let mut response = request.send().await.map_err(failed)?;
    let status = response.status();
    let mut answer = HttpResponse {
        status,
        bytes: Vec::new(),
    };
    if !has_body(status) {
        return Ok(answer);
    }
    let length = response.content_length();
    if length.is_some_and(|length| length > max_bytes) {
        return Err(Error::TooLarge(max_bytes));
    }
    let reading = read_body(&mut response, &mut answer.bytes, max_bytes);
    if reading.await.map_err(failed)? {
        Ok(answer)
    } else {
        Err(Error::TooLarge(max_bytes))
    }
}

/// Reads an answer's body; says whether it ends within the bound.
pub(crate) async fn read_body(
    response: &mut Response,
    body: &mut Vec<u8>,
    max_bytes: u64,
) -> reqwest::Result<bool> {
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() as u64 > max_bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads a token, certificate, key or CA file.
pub(crate) async fn read(disk: &BlockingPool, path: &Path) -> Result<Secret, Error> {
    let from = path.to_owned();
    match file::read(disk, path, FILE_MAX_BYTES).await {
        Ok(bytes) => Ok(Secret { from, bytes }),
        Err(source) => Err(Error::Read { path: from, source }),
    }
}

fn failed(error: reqwest::Error) -> Error {
    Error::Request(error.without_url())
}
