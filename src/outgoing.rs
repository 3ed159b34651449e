//! Asks other servers over HTTP: the kubelet, Alertmanagers; [`tls`] and the bounds serve the API server too. Never
//! follows a redirect, never uses a proxy, never takes an answer above its bound, never shows a secret.
//!
//! Tokens, passwords and certificates are in files, which are read at each request: a rotation needs no reload.

mod config;
mod names;
pub(crate) mod tls;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};

use crate::system::blocking::BlockingPool;
use crate::system::file;
pub use config::{
    Authorization, BasicAuth, HttpClientConfig, TlsConfig, TlsVersion, dns_name, is_secure_url,
    refused,
};
pub use names::Lookups;
use names::Resolver;
use tls::{Identity, Trust};

/// The largest token, certificate, key or CA file.
pub(crate) const FILE_MAX_BYTES: u64 = 1 << 20;
/// Timeout of a new connection; callers bound the whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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
    /// A file does not hold what it is for.
    #[error("{} holds no {what}", path.display())]
    Lacks {
        /// The file.
        path: PathBuf,
        /// What it is for.
        what: &'static str,
    },
    /// No CA file is configured, and the system has none.
    #[error("the system trusts no CA; configure a CA file")]
    NoSystemCa,
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
    #[error("no TLS client")]
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
        Self::Lacks {
            path: path.to_owned(),
            what,
        }
    }
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its content type.
    pub content_type: Option<String>,
    /// Its body; empty unless the status is a success.
    pub bytes: Vec<u8>,
}

/// A client of one server.
pub struct HttpClient {
    url: String,
    config: HttpClientConfig,
    answer_max_bytes: u64,
    /// Threads for reading the files.
    disk: BlockingPool,
    lookups: Lookups,
    made: Mutex<Option<Made>>,
}

/// A client, and what it was made with.
struct Made {
    client: Client,
    ca: Option<Vec<u8>>,
    identity: Option<Identity>,
    /// Whether the log says that the files of `identity` have become unusable.
    is_warned: bool,
}

impl fmt::Debug for HttpClient {
    /// Leaves the URL out, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

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
            disk,
            lookups: Lookups::default(),
            made: Mutex::default(),
        }
    }

    /// Returns the URL of a path on the server. Configured credentials go before those of the URL.
    ///
    /// # Errors
    /// If the server's URL is none.
    pub fn url(&self, path: &str) -> Result<Url, Error> {
        let url = Url::parse(&format!("{}{path}", self.url.trim_end_matches('/')));
        let url = url.ok().filter(|url| url.scheme().starts_with("http"));
        let mut url = url.filter(Url::has_host).ok_or(Error::Url)?;
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
    pub async fn get(&self, mut url: Url) -> Result<Answer, Error> {
        let client = self.client(&url).await?;
        let host = self.rename(&mut url)?;
        let mut request = client.get(url);
        if let Some(host) = host {
            request = request.header(HOST, host);
        }
        request = request.header(ACCEPT, "application/json");
        request = self.authorize(request).await?;
        let response = request.send().await.map_err(failed)?;
        self.answer(response).await
    }

    /// Puts the name that the certificate must be for into the URL; returns the host as it was.
    fn rename(&self, url: &mut Url) -> Result<Option<String>, Error> {
        let Some(name) = &self.config.tls_config.server_name else {
            return Ok(None);
        };
        let host = url.host_str().ok_or(Error::Url)?.to_owned();
        let host = url
            .port()
            .map_or(host.clone(), |port| format!("{host}:{port}"));
        url.set_host(Some(name)).map_err(|_error| Error::Url)?;
        Ok(Some(host))
    }

    /// Adds the credentials; without any, those of the URL are sent.
    async fn authorize(&self, request: RequestBuilder) -> Result<RequestBuilder, Error> {
        if let Some(path) = &self.config.authorization.credentials_file {
            let token = self.secret(path, "token").await?;
            let value = format!("{} {token}", self.config.authorization.scheme);
            let value = HeaderValue::try_from(value);
            let mut value = value.map_err(|_text_is_secret| Error::lacks(path, "token"))?;
            value.set_sensitive(true);
            return Ok(request.header(AUTHORIZATION, value));
        }
        let basic = &self.config.basic_auth;
        let (Some(user), Some(path)) = (&basic.username, &basic.password_file) else {
            return Ok(request);
        };
        let password = self.secret(path, "password").await?;
        Ok(request.basic_auth(user, Some(password)))
    }

    async fn secret(&self, path: &Path, what: &'static str) -> Result<String, Error> {
        let text = String::from_utf8(read(&self.disk, path).await?).ok();
        let secret = text.map(|text| text.trim().to_owned());
        let secret = secret.filter(|text| !text.is_empty());
        secret.ok_or_else(|| Error::lacks(path, what))
    }

    /// Returns a client that trusts the CAs now in their file and shows the certificate now in its own.
    async fn client(&self, url: &Url) -> Result<Client, Error> {
        let tls = &self.config.tls_config;
        let ca = match &tls.ca_file {
            Some(path) => Some(read(&self.disk, path).await?),
            None => None,
        };
        let made = match Identity::read(tls, &self.disk).await {
            Ok(identity) => match self.made_with(ca.as_deref(), identity.as_ref()) {
                Some(client) => return Ok(client),
                None => self.make(url, ca.as_deref(), identity).await,
            },
            Err(error) => Err(error),
        };
        match made {
            Ok((client, identity)) => {
                *self.made.lock() = Some(Made {
                    client: client.clone(),
                    ca,
                    identity,
                    is_warned: false,
                });
                Ok(client)
            }
            Err(error) => self.earlier(ca.as_deref(), error),
        }
    }

    fn made_with(&self, ca: Option<&[u8]>, identity: Option<&Identity>) -> Option<Client> {
        let made = self.made.lock();
        let made = made.as_ref()?;
        let is_same = made.ca.as_deref() == ca && made.identity.as_ref() == identity;
        is_same.then(|| made.client.clone())
    }

    /// Returns the earlier client: while the certificate and its key are replaced one after the other, they do
    /// not go together, and the earlier ones are still good. Trust never comes from an earlier file.
    fn earlier(&self, ca: Option<&[u8]>, error: Error) -> Result<Client, Error> {
        let mut made = self.made.lock();
        let Some(made) = made.as_mut().filter(|made| made.ca.as_deref() == ca) else {
            return Err(error);
        };
        if !std::mem::replace(&mut made.is_warned, true) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "the client certificate that was read before is still used"
            );
        }
        Ok(made.client.clone())
    }

    async fn make(
        &self,
        url: &Url,
        ca: Option<&[u8]>,
        identity: Option<Identity>,
    ) -> Result<(Client, Option<Identity>), Error> {
        let tls = &self.config.tls_config;
        let trust = match (&tls.ca_file, ca) {
            _ if url.scheme() != "https" => Trust::None,
            (Some(path), Some(pem)) => Trust::File(path, pem),
            (None, _) | (_, None) => Trust::System,
        };
        let config = tls::client_config(tls, trust, identity.as_ref(), &self.disk).await?;
        let host = url.host_str().filter(|_| tls.server_name.is_some());
        let resolver = Resolver {
            lookups: self.lookups.clone(),
            host: host.map(|host| host.trim_matches(['[', ']']).to_owned()),
        };
        let builder = Client::builder()
            .tls_backend_preconfigured(config)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
            .user_agent(concat!("crisweep/", env!("CARGO_PKG_VERSION")));
        let client = builder.build().map_err(|error| Error::Tls(error.into()))?;
        Ok((client, identity))
    }

    async fn answer(&self, mut response: Response) -> Result<Answer, Error> {
        let status = response.status();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let mut answer = Answer {
            status,
            content_type: content_type.map(str::to_owned),
            bytes: Vec::new(),
        };
        if !status.is_success() {
            return Ok(answer);
        }
        let is_too_large = |length: u64| length > self.answer_max_bytes;
        if response.content_length().is_some_and(is_too_large) {
            return Err(Error::TooLarge(self.answer_max_bytes));
        }
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            answer.bytes.extend_from_slice(&chunk);
            if is_too_large(answer.bytes.len() as u64) {
                return Err(Error::TooLarge(self.answer_max_bytes));
            }
        }
        Ok(answer)
    }
}

/// Reads a token, certificate, key or CA file.
pub(crate) async fn read(disk: &BlockingPool, path: &Path) -> Result<Vec<u8>, Error> {
    let read = file::read(disk, path, FILE_MAX_BYTES).await;
    read.map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

fn failed(error: reqwest::Error) -> Error {
    Error::Request(error.without_url())
}
