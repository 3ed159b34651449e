//! Asks the API server through kube's client. Credentials come from the keys of `pods`, from the pod's service
//! account, or from a kubeconfig file with certificates, tokens or a plugin.
//!
//! Files are read at each request: a rotation needs no reload. Never follows a redirect, never uses a proxy, never
//! takes an answer above its bound, never decodes one, never shows a secret.

mod error;
mod exec;
mod held;
mod kubeconfig;
mod server;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::Body;
use kube::client::middleware::BaseUriLayer;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tower::Layer;

use crate::outgoing::tls::{self, Identity, Trust};
use crate::outgoing::{self, Answer, Lookups, TlsConfig};
use crate::system::blocking::BlockingPool;
pub use error::Error;
use exec::{Credential, Plugin, PluginCommand};
use held::Held;
use kubeconfig::Place;
pub use server::ApiServer;

/// Timeout of a new connection; callers bound the whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that wait for the next request.
const IDLE_MAX: usize = 8;

/// A client of the API server.
pub struct ApiClient {
    server: ApiServer,
    answer_max_bytes: u64,
    /// Threads for reading the files.
    disk: BlockingPool,
    lookups: Lookups,
    plugin: Plugin,
    made: Mutex<Option<MadeClient>>,
    /// The server that was asked last.
    asked: Mutex<Option<ServerIdentity>>,
}

/// What makes a server another one: its URL, its name in TLS, and the CA that vouches for it.
type ServerIdentity = (String, TlsConfig, Option<Vec<u8>>);

/// A client, and what it was made with.
struct MadeClient {
    client: kube::Client,
    url: String,
    tls: TlsConfig,
    ca: Option<Vec<u8>>,
    /// Who the configuration says that crisweep is: where the client certificate and its key are, and the plugin.
    user: (Option<(Held, Held)>, Option<PluginCommand>),
    identity: Option<Identity>,
    /// Whether the log says that the files of `identity` have become unusable.
    is_warned: bool,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiClient")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl ApiClient {
    /// Returns a client of the API server; it reads no file yet.
    pub fn new(server: ApiServer, answer_max_bytes: u64, disk: BlockingPool) -> Self {
        Self {
            server,
            answer_max_bytes,
            disk,
            lookups: Lookups::default(),
            plugin: Plugin::default(),
            made: Mutex::default(),
            asked: Mutex::default(),
        }
    }

    /// Returns the API server that it asks.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Gets `path`, which may have a query. The caller bounds the time.
    ///
    /// # Errors
    /// If there is no answer, or it is too large.
    pub async fn get(&self, path: &str) -> Result<Answer, Error> {
        self.send(Method::GET, path, Vec::new()).await
    }

    /// Sends JSON to `path`; with `PATCH`, a merge patch. The caller bounds the time.
    ///
    /// # Errors
    /// If there is no answer, or it is too large.
    pub async fn send(&self, method: Method, path: &str, json: Vec<u8>) -> Result<Answer, Error> {
        let (answer, credential) = self.ask(&method, path, json.clone()).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        // Its connections may be bound to a certificate that is not valid any more.
        *self.made.lock() = None;
        match credential {
            Some(credential) if self.plugin.refuse(&credential).await => {
                let (answer, _) = self.ask(&method, path, json).await?;
                Ok(answer)
            }
            Some(_) | None => Ok(answer),
        }
    }

    /// Asks once; returns the plugin's credential too, if one was shown.
    async fn ask(
        &self,
        method: &Method,
        path: &str,
        json: Vec<u8>,
    ) -> Result<(Answer, Option<Arc<Credential>>), Error> {
        let place = self.server.place(&self.disk).await?;
        let credential = match &place.plugin {
            Some(command) => Some(self.plugin.credential(command).await?),
            None => None,
        };
        let token = self.token(&place, credential.as_deref()).await?;
        let client = self.client(&place, credential.as_deref()).await?;
        let request = request(method, path, token, json)?;
        let response = client.send(request).await;
        let response = response.map_err(|error| self.no_answer(error))?;
        Ok((self.answer(response).await?, credential))
    }

    fn no_answer(&self, error: kube::Error) -> Error {
        Error::no_answer(error, |key, field| self.server.look_at(key, field))
    }

    async fn token(
        &self,
        place: &Place,
        credential: Option<&Credential>,
    ) -> Result<Option<HeaderValue>, Error> {
        let (from, text) = match (&place.token, credential) {
            (Some(source), _) => (source.path(), source.read(&self.disk).await?),
            (None, Some(Credential { token, from, .. })) => match token {
                Some(token) => (from, token.clone().into_bytes()),
                None => return Ok(None),
            },
            (None, None) => return Ok(None),
        };
        let lacks = || outgoing::Error::lacks(from, "token");
        let text = String::from_utf8(text).map_err(|_text_is_secret| lacks())?;
        let token = Some(text.trim()).filter(|text| !text.is_empty());
        let value = format!("Bearer {}", token.ok_or_else(lacks)?);
        let mut value = HeaderValue::try_from(value).map_err(|_text_is_secret| lacks())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Returns a client that trusts the CAs of now and shows the certificate of now.
    async fn client(
        &self,
        place: &Place,
        credential: Option<&Credential>,
    ) -> Result<kube::Client, Error> {
        let ca = match &place.ca {
            Some(source) => Some(source.read(&self.disk).await?),
            None => None,
        };
        self.is_still_the_same(place, ca.as_ref())?;
        let mut tls = place.tls.clone();
        let identity = self.identity(place, credential, &mut tls).await;
        let made = match identity {
            Ok(identity) => {
                if let Some(client) = self.made_with(place, ca.as_deref(), identity.as_ref()) {
                    return Ok(client);
                }
                let made = self.make(place, &tls, ca.as_deref(), identity.as_ref());
                made.await.map(|client| (client, identity))
            }
            Err(error) => Err(error),
        };
        match made {
            Ok((client, identity)) => {
                *self.made.lock() = Some(MadeClient {
                    client: client.clone(),
                    url: place.url.clone(),
                    tls: place.tls.clone(),
                    ca,
                    user: (place.identity.clone(), place.plugin.clone()),
                    identity,
                    is_warned: false,
                });
                Ok(client)
            }
            Err(error) => self.earlier(place, ca.as_deref(), error),
        }
    }

    /// Fails once when the kubeconfig file names another server than before: what the other one said, and since when,
    /// must not count for this one.
    fn is_still_the_same(&self, place: &Place, ca: Option<&Vec<u8>>) -> Result<(), Error> {
        let now = (place.url.clone(), place.tls.clone(), ca.cloned());
        let before = self.asked.lock().replace(now.clone());
        let is_other = before.is_some_and(|before| before != now);
        match &self.server {
            ApiServer::Kubeconfig { path, .. } if is_other => {
                Err(Error::OtherServer { path: path.clone() })
            }
            ApiServer::Kubeconfig { .. } | ApiServer::Keys { .. } => Ok(()),
        }
    }

    /// Returns the client certificate and its key; `tls` then names where they come from.
    async fn identity(
        &self,
        place: &Place,
        credential: Option<&Credential>,
        tls: &mut TlsConfig,
    ) -> Result<Option<Identity>, Error> {
        if let Some(Credential { identity, from, .. }) = credential
            && let Some((certificate, key)) = identity
        {
            tls.cert_file = Some(from.clone());
            tls.key_file = Some(from.clone());
            let identity = Identity::new(certificate.clone().into(), key.clone().into());
            return Ok(Some(identity));
        }
        let Some((certificate, key)) = &place.identity else {
            return Ok(None);
        };
        tls.cert_file = Some(certificate.path().clone());
        tls.key_file = Some(key.path().clone());
        let bytes = certificate.read(&self.disk).await?;
        // One read of one file: both are of the same rotation.
        let key = if certificate == key {
            bytes.clone()
        } else {
            key.read(&self.disk).await?
        };
        Ok(Some(Identity::new(bytes, key)))
    }

    fn made_with(
        &self,
        place: &Place,
        ca: Option<&[u8]>,
        identity: Option<&Identity>,
    ) -> Option<kube::Client> {
        let made = self.made.lock();
        let made = made.as_ref()?;
        let is_same = made.is_of(place, ca) && made.identity.as_ref() == identity;
        is_same.then(|| made.client.clone())
    }

    /// Returns the earlier client: while the certificate and its key are replaced one after the other, they do
    /// not go together, and the earlier ones are still good. Trust never comes from an earlier file, and no client is
    /// kept for another user than the present one.
    fn earlier(
        &self,
        place: &Place,
        ca: Option<&[u8]>,
        error: Error,
    ) -> Result<kube::Client, Error> {
        let mut made = self.made.lock();
        let Some(made) = made.as_mut().filter(|made| made.is_of(place, ca)) else {
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
        place: &Place,
        tls: &TlsConfig,
        ca: Option<&[u8]>,
        identity: Option<&Identity>,
    ) -> Result<kube::Client, Error> {
        let uri: Uri = place
            .url
            .parse()
            .map_err(|_not_a_url| outgoing::Error::Url)?;
        let trust = match (place.ca.as_ref().map(Held::path), ca) {
            _ if uri.scheme_str() != Some("https") => Trust::None,
            (Some(path), Some(pem)) => Trust::File(path, pem),
            (None, _) | (_, None) => Trust::System,
        };
        let config = tls::client_config(tls, trust, identity, &self.disk).await?;
        let mut tcp = HttpConnector::new_with_resolver(self.lookups.clone());
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut https = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http();
        if let Some(name) = &tls.server_name {
            let name = ServerName::try_from(name.clone());
            let name = name.map_err(|_not_a_name| outgoing::Error::Url)?;
            https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
        }
        let service = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_MAX)
            .build::<_, Body>(https.enable_http1().wrap_connector(tcp));
        // Not kube's own stack: it reads the environment's proxy, repeats requests, logs each failure, keeps a token
        // for a minute, and runs plugins without a bound.
        let service = BaseUriLayer::new(uri).layer(service);
        Ok(kube::Client::new(service, "default"))
    }

    async fn answer(&self, response: Response<Body>) -> Result<Answer, Error> {
        let (head, mut body) = response.into_parts();
        let header = |name| head.headers.get(name)?.to_str().ok();
        let mut answer = Answer {
            status: head.status,
            content_type: header(CONTENT_TYPE).map(str::to_owned),
            bytes: Vec::new(),
        };
        let length: Option<u64> = header(CONTENT_LENGTH).and_then(|length| length.parse().ok());
        // A 404 says what is not there.
        if !answer.status.is_success() && answer.status != StatusCode::NOT_FOUND {
            return Ok(answer);
        }
        let is_too_large = |length: u64| length > self.answer_max_bytes;
        if length.is_some_and(is_too_large) {
            return Err(outgoing::Error::TooLarge(self.answer_max_bytes).into());
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.no_answer(error))?;
            if let Ok(data) = frame.into_data() {
                answer.bytes.extend_from_slice(&data);
            }
            if is_too_large(answer.bytes.len() as u64) {
                return Err(outgoing::Error::TooLarge(self.answer_max_bytes).into());
            }
        }
        Ok(answer)
    }
}

impl MadeClient {
    fn is_of(&self, place: &Place, ca: Option<&[u8]>) -> bool {
        let (identity, plugin) = &self.user;
        self.url == place.url
            && self.tls == place.tls
            && self.ca.as_deref() == ca
            && *identity == place.identity
            && *plugin == place.plugin
    }
}

fn request(
    method: &Method,
    path: &str,
    token: Option<HeaderValue>,
    json: Vec<u8>,
) -> Result<Request<Body>, Error> {
    const AGENT: &str = concat!("crisweep/", env!("CARGO_PKG_VERSION"));
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, AGENT);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, token);
    }
    if !json.is_empty() {
        let kind = if *method == Method::PATCH {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        request = request.header(CONTENT_TYPE, kind);
    }
    let request = request.body(Body::from(json));
    Ok(request.map_err(|_not_a_path| outgoing::Error::Url)?)
}

/// A path, for the list of files that must be there.
type Named<'a> = (&'static str, &'a PathBuf);
