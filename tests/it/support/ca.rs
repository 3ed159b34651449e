//! Certificate authorities, and the certificates that they sign.

use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

/// A certificate authority, made for one test.
pub(crate) struct Ca {
    params: CertificateParams,
    key: KeyPair,
    certificate: Certificate,
}

/// A certificate with its key.
pub(crate) struct Signed {
    pub(crate) der: Vec<u8>,
    certificate: String,
    key: String,
}

impl Signed {
    /// Writes certificate and key to a file each; one file holds both if the paths are the same.
    pub(crate) fn write(&self, certificate: &Path, key: &Path) {
        replace(key, &self.key);
        if certificate == key {
            replace(key, &format!("{}{}", self.certificate, self.key));
        } else {
            replace(certificate, &self.certificate);
        }
    }

    /// Returns the certificate and its key in PEM.
    pub(crate) fn pem(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
    }

    /// Writes the certificate alone.
    pub(crate) fn write_certificate(&self, path: &Path) {
        replace(path, &self.certificate);
    }
}

/// Replaces a file as a program does that rotates it.
pub(crate) fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("ca {}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            params,
            key,
            certificate,
        }
    }

    /// Writes its certificate to a file.
    pub(crate) fn write(&self, path: &Path) {
        replace(path, &self.certificate.pem());
    }

    /// Returns its certificate in PEM.
    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// Returns a certificate for a name.
    pub(crate) fn sign(&self, name: &str) -> Signed {
        self.sign_until(name, 4000)
    }

    /// Returns a certificate that expired long ago.
    pub(crate) fn expired(&self, name: &str) -> Signed {
        self.sign_until(name, 2001)
    }

    fn sign_until(&self, name: &str, year: i32) -> Signed {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Signed {
            der: certificate.der().to_vec(),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// A server with a certificate for a name.
    pub(crate) fn server(&self, name: &str) -> Arc<ServerConfig> {
        serving(&self.sign(name), None, rustls::ALL_VERSIONS)
    }

    /// A server that serves only clients with a certificate of `clients`.
    pub(crate) fn server_for(&self, name: &str, clients: &Self) -> Arc<ServerConfig> {
        serving(
            &self.sign(name),
            Some(clients.verifier()),
            rustls::ALL_VERSIONS,
        )
    }

    /// A server that shows the CA's own certificate.
    pub(crate) fn as_server(&self) -> Arc<ServerConfig> {
        let own = Signed {
            der: self.certificate.der().to_vec(),
            certificate: self.certificate.pem(),
            key: self.key.serialize_pem(),
        };
        serving(&own, None, rustls::ALL_VERSIONS)
    }

    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .unwrap()
    }
}

/// A server that shows a certificate and speaks these versions of TLS.
pub(crate) fn serving(
    signed: &Signed,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    use rustls::pki_types::pem::PemObject;
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap();
    let builder = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    };
    let chain = vec![signed.der.clone().into()];
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}
