//! Keeps the HTTP client of a server, with its connections, while its CA and its client certificate stay the same.
//! Never keeps trust that is no longer in the CA file, and never uses a client for another server or user.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};

use super::names::{Lookups, Resolver};
use super::tls::{self, Identity, TrustRoots};
use super::{Error, Secret, SecretSource, TlsConfig};
use crate::system::blocking::BlockingPool;

/// Timeout of a new connection; callers bound the whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that wait for the next request.
const IDLE_MAX: usize = 8;

/// The last client; `K` tells servers and users apart.
pub(crate) struct ClientCache<K> {
    /// Threads for reading the system's CAs.
    disk: BlockingPool,
    lookups: Lookups,
    made: Mutex<Option<MadeClient<K>>>,
}

/// What a client is made with.
pub(crate) struct ClientParts<'a, K> {
    pub(crate) key: K,
    pub(crate) url: &'a Url,
    /// The files that it names are not read.
    pub(crate) tls: &'a TlsConfig,
    /// The CAs that it trusts; `None`: the system's.
    pub(crate) ca: Option<Secret>,
    /// The client certificate and its key.
    pub(crate) identity: Option<&'a (SecretSource, SecretSource)>,
}

/// A client, and what it was made with.
struct MadeClient<K> {
    client: Client,
    key: K,
    ca: Option<Vec<u8>>,
    identity: Option<Identity>,
}

impl<K: PartialEq> ClientCache<K> {
    pub(crate) fn new(disk: BlockingPool) -> Self {
        Self {
            disk,
            lookups: Lookups::default(),
            made: Mutex::default(),
        }
    }

    /// Drops the client: the next request uses new connections.
    pub(crate) fn forget(&self) {
        *self.made.lock() = None;
    }

    /// Returns a client that trusts these CAs and shows the current certificate.
    pub(crate) async fn client(&self, parts: ClientParts<'_, K>) -> Result<Client, Error> {
        let identity = Identity::read(parts.identity, &self.disk).await?;
        let is_same = |made: &MadeClient<K>| {
            let ca = parts.ca.as_ref().map(|ca| &ca.bytes);
            made.key == parts.key && made.ca.as_ref() == ca && made.identity == identity
        };
        if let Some(made) = self.made.lock().as_ref().filter(|made| is_same(made)) {
            return Ok(made.client.clone());
        }
        let client = self.make(&parts, identity.as_ref()).await?;
        *self.made.lock() = Some(MadeClient {
            client: client.clone(),
            key: parts.key,
            ca: parts.ca.map(|ca| ca.bytes),
            identity,
        });
        Ok(client)
    }

    async fn make(
        &self,
        parts: &ClientParts<'_, K>,
        identity: Option<&Identity>,
    ) -> Result<Client, Error> {
        let ClientParts { url, tls, ca, .. } = parts;
        let trust = match ca {
            _ if url.scheme() != "https" => TrustRoots::None,
            Some(ca) => TrustRoots::File(ca),
            None => TrustRoots::System,
        };
        let config = tls::client_config(tls, trust, identity, &self.disk).await?;
        let host = url.host_str().filter(|_| tls.server_name.is_some());
        let resolver = Resolver {
            lookups: self.lookups.clone(),
            host: host.map(|host| host.trim_matches(['[', ']']).to_owned()),
        };
        let builder = Client::builder()
            .tls_backend_preconfigured(config)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(IDLE_MAX)
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
            .user_agent(concat!("crisweep/", env!("CARGO_PKG_VERSION")));
        builder.build().map_err(|error| Error::Tls(error.into()))
    }
}
