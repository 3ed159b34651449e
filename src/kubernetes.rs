//! Asks the API server and the kubelet. Credentials come from the keys of `pods`, from the pod's service account, or
//! from a kubeconfig file with certificates, tokens or a plugin.
//!
//! Files are read at each request: a rotation needs no reload. Never follows a redirect, never uses a proxy, never
//! takes an answer above its bound, never decodes one, never shows a secret.

mod error;
mod exec;
mod kubeconfig;
mod server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method, StatusCode, Url};

use crate::outgoing::{self, ClientCache, ClientParts, HttpResponse, Secret, TlsConfig};
use crate::system::blocking::BlockingPool;
use crate::system::opaque_debug;
pub use error::Error;
use exec::{Credential, Plugin};
use kubeconfig::ClusterAccess;
pub use server::ApiServer;

/// The largest answer of a few fields.
const SMALL_MAX_BYTES: u64 = 64 << 10;
/// Threads of such a client for reading credentials.
const SMALL_DISK_CALLS_MAX: usize = 2;

/// A client of the API server, or of a kubelet, which takes the same credentials.
pub struct ApiClient {
    /// The server that it asks.
    pub server: ApiServer,
    answer_max_bytes: u64,
    /// Threads for reading the files.
    disk: BlockingPool,
    plugin: Plugin,
    clients: ClientCache<ClusterAccess>,
    /// The server that was asked last.
    asked: Mutex<Option<ServerIdentity>>,
}

/// What makes a server another one: its URL, its name in TLS, and the CA that vouches for it.
type ServerIdentity = (String, TlsConfig, Option<Vec<u8>>);

opaque_debug!(ApiClient);

impl ApiClient {
    /// Returns a client of the API server; it reads no file yet.
    pub fn new(server: ApiServer, answer_max_bytes: u64, disk: BlockingPool) -> Self {
        Self {
            server,
            answer_max_bytes,
            clients: ClientCache::new(disk.clone()),
            disk,
            plugin: Plugin::default(),
            asked: Mutex::default(),
        }
    }

    /// Returns a client for answers of a few fields, with threads of its own.
    pub fn of_small_answers(server: ApiServer) -> Self {
        Self::new(
            server,
            SMALL_MAX_BYTES,
            BlockingPool::new(SMALL_DISK_CALLS_MAX),
        )
    }

    /// Gets `path`, which may have a query. The caller bounds the time.
    ///
    /// # Errors
    /// If there is no answer, or it is too large.
    pub async fn get(&self, path: &str) -> Result<HttpResponse, Error> {
        self.send(Method::GET, path, Vec::new()).await
    }

    /// Sends JSON to `path` as [`Self::send`] does, within this time.
    ///
    /// # Errors
    /// If there is no answer in time, or it is too large.
    pub async fn send_within(
        &self,
        at_most: Duration,
        method: Method,
        path: &str,
        json: Vec<u8>,
    ) -> Result<HttpResponse, Error> {
        let answer = tokio::time::timeout(at_most, self.send(method, path, json)).await;
        answer.unwrap_or_else(|_elapsed| {
            let at_most = humantime::format_duration(at_most);
            Err(Error::NoAnswer(format!("no answer within {at_most}")))
        })
    }

    /// Sends JSON to `path`; with `PATCH`, a merge patch. The caller bounds the time.
    ///
    /// # Errors
    /// If there is no answer, or it is too large.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        json: Vec<u8>,
    ) -> Result<HttpResponse, Error> {
        let place = self.server.place(&self.disk).await?;
        let credential = match &place.plugin {
            Some(command) => Some(self.plugin.credential(command).await?),
            None => None,
        };
        let token = self.token(&place, credential.as_deref()).await?;
        let url = outgoing::url_of(&place.url, path)?;
        let client = self.client(&place, &url, credential.as_deref()).await?;
        let is_patch = method == Method::PATCH;
        let mut request = outgoing::request(&client, method, url, &place.tls)?;
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        if !json.is_empty() {
            let kind = if is_patch {
                "application/merge-patch+json"
            } else {
                "application/json"
            };
            request = request.header(CONTENT_TYPE, kind).body(json);
        }
        // A 404 says what is not there.
        let has_body = |status: StatusCode| status.is_success() || status == StatusCode::NOT_FOUND;
        let answer = outgoing::answer(request, self.answer_max_bytes, has_body).await;
        let look_at = |key: &str, field: &str| self.server.look_at(key, field);
        let answer = answer.map_err(|error| Error::no_answer(error, look_at))?;
        if answer.status == StatusCode::UNAUTHORIZED {
            // Its connections may be bound to a certificate that is not valid any more.
            self.clients.forget();
            if let Some(credential) = credential {
                self.plugin.refuse(&credential).await;
            }
        }
        Ok(answer)
    }

    async fn token(
        &self,
        place: &ClusterAccess,
        credential: Option<&Credential>,
    ) -> Result<Option<HeaderValue>, Error> {
        let token = match &place.token {
            Some(source) => Some(source.read(&self.disk).await?),
            None => credential.and_then(|it| it.token.clone()),
        };
        let header = token.map(|token| outgoing::authorization("Bearer", token));
        Ok(header.transpose()?)
    }

    /// Returns a client that trusts the CAs of now and shows the certificate of now.
    async fn client(
        &self,
        place: &ClusterAccess,
        url: &Url,
        credential: Option<&Credential>,
    ) -> Result<Client, Error> {
        let ca = match &place.ca {
            Some(source) => Some(source.read(&self.disk).await?),
            None => None,
        };
        self.is_still_the_same(place, ca.as_ref())?;
        let given = credential.and_then(|it| it.identity.as_ref());
        let parts = ClientParts {
            key: place.clone(),
            url,
            tls: &place.tls,
            ca,
            identity: given.or(place.identity.as_ref()),
        };
        Ok(self.clients.client(parts).await?)
    }

    /// Fails once when the kubeconfig file names another server than before: what the other one said, and since when,
    /// must not count for this one.
    fn is_still_the_same(&self, place: &ClusterAccess, ca: Option<&Secret>) -> Result<(), Error> {
        let ca = ca.map(|ca| ca.bytes.clone());
        let now = (place.url.clone(), place.tls.clone(), ca);
        let before = self.asked.lock().replace(now.clone());
        let is_other = before.is_some_and(|before| before != now);
        match &self.server {
            ApiServer::Kubeconfig { path, .. } if is_other => {
                Err(Error::OtherServer { path: path.clone() })
            }
            ApiServer::Kubeconfig { .. } | ApiServer::Keys { .. } => Ok(()),
        }
    }
}

/// Returns the path of a file that a kubeconfig names; an absolute one stays.
fn beside(kubeconfig: &Path, file: &str) -> PathBuf {
    match kubeconfig.parent() {
        Some(dir) => dir.join(file),
        None => file.into(),
    }
}
