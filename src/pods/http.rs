//! Asks a server for pods over HTTP.

use std::path::PathBuf;

use reqwest::StatusCode;

use super::{ANSWER_MAX_BYTES, Error};
use crate::outgoing::{Authorization, HttpClient, HttpClientConfig, TlsConfig, credentials_text};
use crate::system::blocking::BlockingPool;

/// A server that lists pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its URL, without the path of the pod list.
    pub url: String,
    /// What to show it, and whom to trust.
    pub client: HttpClientConfig,
}

/// Connections to a server.
#[derive(Debug)]
pub(super) struct Http {
    server: Server,
    client: HttpClient,
}

/// An answer with status 200.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// The URL, and the answer's content type.
    pub(super) what: String,
}

impl Http {
    pub(super) fn new(server: Server, disk: BlockingPool) -> Self {
        Self::bounded(server, ANSWER_MAX_BYTES, disk)
    }

    /// The same with a bound of its own for answers.
    pub(super) fn bounded(server: Server, answer_max_bytes: u64, disk: BlockingPool) -> Self {
        let (url, config) = (server.url.clone(), server.client.clone());
        Self {
            server,
            client: HttpClient::new(url, config, answer_max_bytes, disk),
        }
    }

    /// Gets `path`; `advice` says what to do about a status other than 200.
    pub(super) async fn get(
        &self,
        path: &str,
        advice: fn(&Server, StatusCode) -> String,
    ) -> Result<Body, Error> {
        let url = format!("{}{path}", self.server.url.trim_end_matches('/'));
        let answer = async { self.client.get(self.client.url(path)?).await };
        let answer = answer.await.map_err(|source| Error::Request {
            url: url.clone(),
            source,
        })?;
        if answer.status != StatusCode::OK {
            return Err(Error::Refused {
                advice: advice(&self.server, answer.status),
                what: format!("GET {url}"),
                status: answer.status,
            });
        }
        let content_type = answer.content_type.as_deref();
        Ok(Body {
            bytes: answer.bytes,
            what: format!("GET {url} ({})", content_type.unwrap_or("no content type")),
        })
    }
}

impl Server {
    /// Returns the server at `url`, which gets the token of a file.
    pub fn new(url: String, token_file: Option<PathBuf>, tls_config: TlsConfig) -> Self {
        let authorization = Authorization {
            credentials_file: token_file,
            ..Authorization::default()
        };
        let client = HttpClientConfig {
            authorization,
            tls_config,
            ..HttpClientConfig::default()
        };
        Self { url, client }
    }

    /// Returns the credentials' description for error messages.
    pub(super) fn shown(&self) -> String {
        let token = self.client.authorization.credentials_file.as_ref();
        credentials_text(&self.client.tls_config.credentials(token))
    }
}
