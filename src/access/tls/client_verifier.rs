//! How client certificates are checked in the handshake.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::identity::PeerIdentity;
use super::{authorities, refuse_pem};
use crate::access::web_config::{ClientAuth, KeyRefusal, TrustedClients};

/// Returns the verifier; `None` if no certificate is asked for.
pub(super) fn build(
    client_auth: &ClientAuth,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, KeyRefusal> {
    let unverified = |is_mandatory| {
        let provider = Arc::clone(provider);
        Arc::new(Unverified {
            is_mandatory,
            provider,
        })
    };
    Ok(match client_auth {
        ClientAuth::NoClientCert => None,
        ClientAuth::RequestClientCert => Some(unverified(false)),
        ClientAuth::RequireAnyClientCert => Some(unverified(true)),
        ClientAuth::VerifyClientCertIfGiven(trusted) => Some(verified(trusted, false, provider)?),
        ClientAuth::RequireAndVerifyClientCert(trusted) => Some(verified(trusted, true, provider)?),
    })
}

fn verified(
    trusted: &TrustedClients,
    is_mandatory: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, KeyRefusal> {
    let roots = Arc::new(authorities(&trusted.ca)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let builder = if is_mandatory {
        builder
    } else {
        builder.allow_unauthenticated()
    };
    let by_ca = builder
        .build()
        .map_err(|error| refuse_pem("client_ca", &trusted.ca, &format!("is unusable: {error}")))?;
    Ok(match &trusted.allowed_sans {
        None => by_ca,
        Some(allowed) => Arc::new(AllowedNames {
            by_ca,
            allowed: allowed.clone(),
        }),
    })
}

/// Verifies a certificate with the CA, then its names.
#[derive(Debug)]
struct AllowedNames {
    by_ca: Arc<dyn ClientCertVerifier>,
    allowed: BTreeSet<String>,
}

impl ClientCertVerifier for AllowedNames {
    fn client_auth_mandatory(&self) -> bool {
        self.by_ca.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.by_ca.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .by_ca
            .verify_client_cert(end_entity, intermediates, now)?;
        let identity =
            PeerIdentity::of(end_entity).map_err(|_malformed| CertificateError::BadEncoding)?;
        if identity.is_among(&self.allowed) {
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
        self.by_ca
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.by_ca
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_ca.supported_verify_schemes()
    }
}

/// Accepts each certificate whose key the client holds: such a certificate proves nothing about the client.
#[derive(Debug)]
struct Unverified {
    is_mandatory: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Unverified {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
