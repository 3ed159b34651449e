//! How client certificates are checked in the handshake.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::identity::PeerIdentity;
use super::{authorities, refuse_pem};
use crate::access::web_config::{ClientAuth, KeyRefusal, TrustedClients};

/// Returns the verifier.
pub(super) fn build(
    client_auth: &ClientAuth,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, KeyRefusal> {
    let trusted = client_auth.trusted.as_ref();
    let by_ca = trusted.map(|trusted| by_ca(trusted, provider));
    Ok(Arc::new(ClientVerifier {
        is_mandatory: client_auth.is_mandatory,
        by_ca: by_ca.transpose()?,
        allowed: trusted.and_then(|trusted| trusted.allowed_sans.clone()),
        algorithms: provider.signature_verification_algorithms,
    }))
}

fn by_ca(
    trusted: &TrustedClients,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, KeyRefusal> {
    let roots = Arc::new(authorities(&trusted.ca)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let unusable = |error| refuse_pem("client_ca", &trusted.ca, &format!("is unusable: {error}"));
    builder.build().map_err(unusable)
}

/// Verifies a certificate with the CA, then its names; and that the client holds its key.
#[derive(Debug)]
struct ClientVerifier {
    is_mandatory: bool,
    /// `None` accepts each certificate: such a one proves nothing about the client.
    by_ca: Option<Arc<dyn ClientCertVerifier>>,
    /// `None` allows each name.
    allowed: Option<BTreeSet<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        let by_ca = self.by_ca.as_ref();
        by_ca.map_or(&[], |by_ca| by_ca.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Some(by_ca) = &self.by_ca else {
            return Ok(ClientCertVerified::assertion());
        };
        let verified = by_ca.verify_client_cert(end_entity, intermediates, now)?;
        let Some(allowed) = &self.allowed else {
            return Ok(verified);
        };
        let identity =
            PeerIdentity::of(end_entity).map_err(|_malformed| CertificateError::BadEncoding)?;
        // The common name does not count.
        if identity.sans.iter().any(|name| allowed.contains(name)) {
            Ok(verified)
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
