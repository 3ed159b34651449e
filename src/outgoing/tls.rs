//! The TLS side of a client: whom it trusts, and the certificate that it shows.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};

use super::{Error, Secret, SecretSource, TlsConfig, TlsVersion};
use crate::system::blocking::BlockingPool;
use crate::system::file;

/// The client certificate and its key, in PEM. Has no `Debug`: the key is secret.
#[derive(PartialEq, Eq)]
pub(crate) struct Identity {
    certificate: Secret,
    key: Secret,
}

impl Identity {
    /// Reads the client certificate, if there is one.
    pub(crate) async fn read(
        sources: Option<&(SecretSource, SecretSource)>,
        disk: &BlockingPool,
    ) -> Result<Option<Self>, Error> {
        let Some((certificate_source, key_source)) = sources else {
            return Ok(None);
        };
        let certificate = certificate_source.read(disk).await?;
        // One read of one file: both are of the same rotation.
        let key = if certificate_source == key_source {
            certificate.clone()
        } else {
            key_source.read(disk).await?
        };
        Ok(Some(Self { certificate, key }))
    }
}

/// The CAs of a file, or of the system.
pub(crate) enum TrustRoots<'a> {
    /// Nothing: no TLS is spoken.
    None,
    /// The CAs of a file.
    File(&'a Secret),
    /// What the system trusts.
    System,
}

/// Builds the TLS configuration of a client.
pub(crate) async fn client_config(
    config: &TlsConfig,
    trust: TrustRoots<'_>,
    identity: Option<&Identity>,
    disk: &BlockingPool,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = match config.min_version {
        TlsVersion::Tls12 => &[&TLS13, &TLS12][..],
        TlsVersion::Tls13 => &[&TLS13][..],
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| Error::Tls(error.into()))?
        .with_root_certificates(roots(trust, disk).await?);
    let Some(Identity { certificate, key }) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Vec<_> = certificates(&certificate.bytes).collect();
    if chain.is_empty() {
        return Err(Error::lacks(&certificate.from, "certificate in PEM"));
    }
    let key = PrivateKeyDer::from_pem_slice(&key.bytes)
        .map_err(|_text_is_secret| Error::lacks(&key.from, "private key in PEM"))?;
    let built = builder.with_client_auth_cert(chain, key);
    built.map_err(|source| Error::Identity {
        path: certificate.from.clone(),
        source,
    })
}

async fn roots(trust: TrustRoots<'_>, disk: &BlockingPool) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match trust {
        TrustRoots::None => {}
        TrustRoots::File(ca) => {
            let (usable, _) = roots.add_parsable_certificates(certificates(&ca.bytes));
            if usable == 0 {
                return Err(Error::lacks(&ca.from, "CA certificate in PEM"));
            }
        }
        TrustRoots::System => {
            let load = disk.run(file::TIMEOUT, rustls_native_certs::load_native_certs);
            let found = load.await.map_err(|error| Error::Tls(error.into()))?;
            let (usable, _) = roots.add_parsable_certificates(found.certs);
            if usable == 0 {
                let why = "the system trusts no CA; configure a CA file";
                return Err(Error::Lacks(why.to_owned()));
            }
        }
    }
    Ok(roots)
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> + '_ {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok)
}
