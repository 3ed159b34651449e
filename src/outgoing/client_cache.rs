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
    /// Whether the log says that the files of `identity` have become unusable.
    is_warned: bool,
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
        let made = match Identity::read(parts.identity, &self.disk).await {
            Ok(identity) => match self.made_with(&parts, identity.as_ref()) {
                Some(client) => return Ok(client),
                None => self.make(&parts, identity).await,
            },
            Err(error) => Err(error),
        };
        match made {
            Ok((client, identity)) => {
                *self.made.lock() = Some(MadeClient {
                    client: client.clone(),
                    key: parts.key,
                    ca: parts.ca.map(|ca| ca.bytes),
                    identity,
                    is_warned: false,
                });
                Ok(client)
            }
            Err(error) => self.earlier(&parts, error),
        }
    }

    fn made_with(&self, parts: &ClientParts<'_, K>, identity: Option<&Identity>) -> Option<Client> {
        let made = self.made.lock();
        let made = made.as_ref()?;
        let is_same = made.is_of(parts) && made.identity.as_ref() == identity;
        is_same.then(|| made.client.clone())
    }

    /// Returns the earlier client: while the certificate and its key are replaced one after the other, they do
    /// not go together, and the earlier ones are still good. Trust never comes from an earlier file, and no client is
    /// kept for another user than the present one.
    fn earlier(&self, parts: &ClientParts<'_, K>, error: Error) -> Result<Client, Error> {
        let mut made = self.made.lock();
        let Some(made) = made.as_mut().filter(|made| made.is_of(parts)) else {
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
        parts: &ClientParts<'_, K>,
        identity: Option<Identity>,
    ) -> Result<(Client, Option<Identity>), Error> {
        let ClientParts { url, tls, ca, .. } = parts;
        let trust = match ca {
            _ if url.scheme() != "https" => TrustRoots::None,
            Some(ca) => TrustRoots::File(ca),
            None => TrustRoots::System,
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
            .pool_max_idle_per_host(IDLE_MAX)
            .redirect(Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
            .user_agent(concat!("crisweep/", env!("CARGO_PKG_VERSION")));
        let client = builder.build().map_err(|error| Error::Tls(error.into()))?;
        Ok((client, identity))
    }
}

impl<K: PartialEq> MadeClient<K> {
    fn is_of(&self, parts: &ClientParts<'_, K>) -> bool {
        let ca = parts.ca.as_ref().map(|ca| &ca.bytes);
        self.key == parts.key && self.ca.as_ref() == ca
    }
}
