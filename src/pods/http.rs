//! Asks a server for pods over HTTP. Never follows a redirect, never uses a proxy, trusts only certificates
//! signed by the CA file, and never shows a token.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Response, StatusCode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::{ANSWER_MAX_BYTES, Error, file};
use crate::system::blocking::BlockingPool;

/// The largest token file or CA bundle.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// A server that lists pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its URL, without the path of the pod list.
    pub url: String,
    /// A host name of the URL with its fixed address, so that no name server is asked.
    pub pinned: Option<(String, SocketAddr)>,
    /// The file with the token; read for each request.
    pub token_file: Option<PathBuf>,
    /// The file with the CAs of its certificate; read for each request. `None`: plain HTTP.
    pub ca_file: Option<PathBuf>,
}

/// Connections to a server.
#[derive(Debug)]
pub(super) struct Http {
    server: Server,
    /// Threads for reading the token and the CAs.
    disk: BlockingPool,
    /// The client, and the CAs that it trusts.
    client: Option<(Vec<u8>, Client)>,
}

/// An answer with status 200.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// The URL, and the answer's content type.
    pub(super) what: String,
}

impl Http {
    pub(super) fn new(server: Server, disk: BlockingPool) -> Self {
        Self {
            server,
            disk,
            client: None,
        }
    }

    /// Gets `path`; `advice` says what to do about a status other than 200.
    pub(super) async fn get(
        &mut self,
        path: &str,
        advice: fn(&Server, StatusCode) -> String,
    ) -> Result<Body, Error> {
        let url = format!("{}{path}", self.server.url.trim_end_matches('/'));
        let client = self.client().await?;
        let mut request = client.get(&url).header(ACCEPT, "application/json");
        if let Some(path) = &self.server.token_file {
            request = request.header(AUTHORIZATION, bearer(&self.disk, path).await?);
        }
        let failed = |error: reqwest::Error| Error::Request {
            url: url.clone(),
            source: error.without_url(),
        };
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(Error::Refused {
                advice: advice(&self.server, status),
                url,
                status,
            });
        }
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok());
        let what = format!("GET {url} ({})", content_type.unwrap_or("no content type"));
        let bytes = bounded(response, &url).await?;
        let bytes = bytes.map_err(failed)?;
        Ok(Body { bytes, what })
    }

    /// Returns a client that trusts the CAs now in the file.
    async fn client(&mut self) -> Result<Client, Error> {
        let ca = match &self.server.ca_file {
            Some(path) => file::read(&self.disk, path, FILE_MAX_BYTES).await?,
            None => Vec::new(),
        };
        if let Some((_, client)) = self.client.as_ref().filter(|(with, _)| *with == ca) {
            return Ok(client.clone());
        }
        let client = self.server.connect_with(&ca)?;
        self.client = Some((ca, client.clone()));
        Ok(client)
    }
}

impl Server {
    fn connect_with(&self, ca: &[u8]) -> Result<Client, Error> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.ca_file {
            let certificates = CertificateDer::pem_slice_iter(ca).filter_map(Result::ok);
            let (usable, _) = roots.add_parsable_certificates(certificates);
            if usable == 0 {
                return Err(Error::NoCa(path.clone()));
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Tls(error.into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .https_only(self.ca_file.is_some())
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("crisweep/", env!("CARGO_PKG_VERSION")));
        if let Some((host, address)) = &self.pinned {
            builder = builder.resolve(host, *address);
        }
        builder.build().map_err(|error| Error::Tls(error.into()))
    }

    /// Returns the token's description for error messages.
    pub(super) fn token(&self) -> String {
        match &self.token_file {
            Some(path) => format!("the token in {}", path.display()),
            None => "a request without a token".to_owned(),
        }
    }
}

/// Reads the token each time, because it is rotated about every hour.
async fn bearer(disk: &BlockingPool, path: &Path) -> Result<HeaderValue, Error> {
    let text = file::read(disk, path, FILE_MAX_BYTES).await?;
    let no_token = || Error::NoToken(path.to_owned());
    let token = std::str::from_utf8(&text).ok().map(str::trim);
    let token = token
        .filter(|token| !token.is_empty())
        .ok_or_else(no_token)?;
    let header = HeaderValue::try_from(format!("Bearer {token}")).ok();
    let mut header = header.ok_or_else(no_token)?;
    header.set_sensitive(true);
    Ok(header)
}

async fn bounded(
    mut response: Response,
    url: &str,
) -> Result<Result<Vec<u8>, reqwest::Error>, Error> {
    let too_big = |length: u64| length > ANSWER_MAX_BYTES;
    if response.content_length().is_some_and(too_big) {
        return Err(Error::too_big(format!("the answer to GET {url}")));
    }
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            Ok(None) => return Ok(Ok(bytes)),
            Err(error) => return Ok(Err(error)),
        }
        if too_big(bytes.len() as u64) {
            return Err(Error::too_big(format!("the answer to GET {url}")));
        }
    }
}
