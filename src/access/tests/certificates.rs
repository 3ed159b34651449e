//! Certificates and clients for tests.

use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate and its key, as PEM.
pub(in crate::access) struct Pair {
    pub(in crate::access) cert: String,
    pub(in crate::access) key: String,
}

pub(in crate::access) struct TestCa {
    pub(in crate::access) cert: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    pub(in crate::access) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { cert, issuer }
    }

    pub(in crate::access) fn issue(&self, name: &str, sans: &[SanType]) -> Pair {
        self.sign(&params(name, sans))
    }

    pub(in crate::access) fn sign(&self, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().unwrap();
        Pair {
            cert: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

pub(in crate::access) fn params(name: &str, sans: &[SanType]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = sans.to_vec();
    params
}

pub(in crate::access) fn self_signed(mut params: CertificateParams, is_ca: IsCa) -> Pair {
    let key = KeyPair::generate().unwrap();
    params.is_ca = is_ca;
    Pair {
        cert: params.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

pub(in crate::access) fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

pub(in crate::access) fn for_servers(sans: &[SanType]) -> CertificateParams {
    let mut params = params("server", sans);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

/// A directory with `server.crt` and `server.key` for `localhost`, `ca.crt`, and `web.yml`.
pub(in crate::access) struct TestDir {
    dir: tempfile::TempDir,
    pub(in crate::access) ca: TestCa,
}

impl TestDir {
    pub(in crate::access) fn new(web: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = TestCa::new("ca");
        let this = Self { dir, ca };
        this.renew();
        this.write("ca.crt", &this.ca.cert);
        this.write("web.yml", web);
        this
    }

    pub(in crate::access) fn renew(&self) {
        let server = self.ca.issue("server", &[dns("localhost")]);
        self.write("server.crt", &server.cert);
        self.write("server.key", &server.key);
    }

    pub(in crate::access) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(in crate::access) fn web(&self) -> PathBuf {
        self.path("web.yml")
    }

    /// Replaces a file as a whole.
    pub(in crate::access) fn write(&self, name: &str, text: &str) {
        let new = self.path(&format!("{name}.new"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    pub(in crate::access) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }
}

/// Connects as a client that trusts `ca` and presents `pair`. Returns the stream after one byte came back: with
/// TLS 1.3 the server may still refuse a certificate after the client's side of the handshake.
pub(in crate::access) async fn connect(
    stream: DuplexStream,
    ca: &str,
    pair: Option<&Pair>,
    adjust: impl FnOnce(&mut ClientConfig),
) -> std::io::Result<TlsStream<DuplexStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes());
            let chain = chain.map(Result::unwrap).collect();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    adjust(&mut config);
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    stream.write_all(&[1]).await?;
    stream.read_exact(&mut [0]).await?;
    Ok(stream)
}

/// Serves one client: answers its byte, and returns what the handshake says of it.
pub(in crate::access) async fn serve(
    tls: &super::tls::Tls,
    stream: DuplexStream,
) -> std::io::Result<Option<super::tls::PeerIdentity>> {
    let (mut stream, identity) = tls.accept(stream).await.map_err(|(error, _)| error)?;
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    stream.write_all(&byte).await?;
    stream.flush().await?;
    Ok(identity)
}
