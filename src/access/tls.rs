//! TLS as the web configuration file asks for it: certificate, key, client certificates. Reads the files that it names;
//! never looks whether they changed (`web_config_watch` does).
//!
//! No session is resumed: each connection proves its certificate to the settings in force.

mod client_verifier;
mod identity;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::{CertificateError, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::web_config::tls_keys::refuse;
use super::web_config::{KeyRefusal, Pem, TlsServerConfig, read_text};
use crate::model::cut;
pub use identity::PeerIdentity;

/// A server's side of TLS. Cloning shares.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    verifies_clients: bool,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Tls");
        shown
            .field("verifies_clients", &self.verifies_clients)
            .finish_non_exhaustive()
    }
}

/// The protocols of a service without HTTP/2. Some clients name the older one (`curl --http1.0`), and the handshake
/// fails where none is shared.
pub(super) const HTTP_1: &[&[u8]] = &[b"http/1.1", b"http/1.0"];
/// The protocols of a service with HTTP/2.
pub(super) const HTTP_2: &[&[u8]] = &[b"h2", b"http/1.1", b"http/1.0"];

impl Tls {
    /// Reads the certificates and the key. Speaks the first of these protocols that the client speaks.
    ///
    /// # Errors
    /// If one cannot be read or is unusable, or the key is another certificate's.
    pub fn load(settings: &TlsServerConfig, protocols: &[&[u8]]) -> Result<Self, KeyRefusal> {
        let provider = Arc::new(CryptoProvider {
            cipher_suites: settings.cipher_suites.clone(),
            kx_groups: settings.curves.clone(),
            ..default_provider()
        });
        let chain = certificates("cert", &settings.cert)?;
        let key = private_key(&settings.key)?;
        let client_auth = settings.client_auth.as_ref();
        let clients = client_auth.map(|it| client_verifier::build(it, &provider));
        let unusable = |error: rustls::Error| {
            KeyRefusal::new("tls_server_config", format!("unusable: {error}"))
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&settings.versions)
            .map_err(unusable)?;
        let builder = match clients.transpose()? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let why = format!("cannot be used with the certificate: {error}");
            refuse_pem("key", &settings.key, &why)
        })?;
        config.ignore_client_order = settings.prefer_server_cipher_suites;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            verifies_clients: client_auth.is_some_and(|it| it.trusted.is_some()),
        })
    }

    /// Says whether connections of both are served alike.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self.acceptor.config(), other.acceptor.config())
    }

    /// Shakes hands with a client. Returns its identity if its certificate was verified. Has no time limit.
    ///
    /// # Errors
    /// If the client does not speak TLS, or its certificate is refused; with the stream, on which the client was told.
    pub async fn accept<S>(
        &self,
        stream: S,
    ) -> Result<(TlsStream<S>, Option<PeerIdentity>), (io::Error, S)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = self.acceptor.accept(stream).into_fallible().await?;
        let (_, connection) = stream.get_ref();
        let sent = connection.peer_certificates().and_then(<[_]>::first);
        let identity = match sent {
            Some(certificate) if self.verifies_clients => Some(PeerIdentity::of(certificate)),
            Some(_) | None => None,
        };
        match identity.transpose() {
            Ok(identity) => Ok((stream, identity)),
            Err(error) => Err((io::Error::other(error), stream.into_inner().0)),
        }
    }
}

/// The most that is said of what is wrong with a certificate: some errors repeat what it holds.
const WHY_MAX_BYTES: usize = 128;

/// Says why a handshake refused the client's certificate; `None`: it ended for another reason.
pub fn refusal(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref()?;
    if *error == rustls::Error::NoCertificatesPresented {
        return Some("the client showed no certificate".to_owned());
    }
    let rustls::Error::InvalidCertificate(why) = error else {
        return None;
    };
    Some(if *why == CertificateError::UnknownIssuer {
        "the client's certificate is of no CA in client_ca_file".to_owned()
    } else if *why == CertificateError::ApplicationVerificationFailure {
        "the client's certificate has no name of client_allowed_sans".to_owned()
    } else {
        let why = why.to_string();
        let why = cut(&why, WHY_MAX_BYTES);
        format!("the client's certificate is not valid: {why}")
    })
}

/// Reads the PEM text; `key` is its key if it is inline.
fn text(key: &str, pem: &Pem) -> Result<String, KeyRefusal> {
    match pem {
        Pem::Inline(text) => Ok(text.clone()),
        Pem::File(path) => read_text(path).map_err(|why| {
            let why = format!("{} cannot be read: {why}", path.display());
            refuse(&format!("{key}_file"), why)
        }),
    }
}

/// Refuses what a PEM text holds, and names its file, never its content.
fn refuse_pem(key: &str, pem: &Pem, why: &str) -> KeyRefusal {
    match pem {
        Pem::Inline(_) => refuse(key, format!("the text {why}")),
        Pem::File(path) => refuse(&format!("{key}_file"), format!("{} {why}", path.display())),
    }
}

fn certificates(key: &str, pem: &Pem) -> Result<Vec<CertificateDer<'static>>, KeyRefusal> {
    let text = text(key, pem)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err(refuse_pem(key, pem, "holds no certificate")),
        Err(_) => Err(refuse_pem(key, pem, "is malformed PEM")),
    }
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>, KeyRefusal> {
    let text = text("key", pem)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_error| {
        refuse_pem(
            "key",
            pem,
            "holds no private key in PEM (PKCS#8, PKCS#1 or SEC1, unencrypted)",
        )
    })
}

/// Reads the certificate authorities of clients.
fn authorities(pem: &Pem) -> Result<RootCertStore, KeyRefusal> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca", pem)? {
        let added = roots.add(certificate);
        added.map_err(|_error| refuse_pem("client_ca", pem, "holds a malformed certificate"))?;
    }
    Ok(roots)
}
