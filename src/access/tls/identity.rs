//! The names in a certificate.

use std::net::IpAddr;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Who a verified client certificate says its holder is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The subject alternative names: DNS names, IP addresses, URIs, e-mail addresses, as text.
    pub sans: Vec<String>,
    /// The subject's common name.
    pub common_name: Option<String>,
}

/// A certificate's names cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the names of the client's certificate are malformed")]
pub(super) struct MalformedNames;

impl PeerIdentity {
    /// Reads the names of a certificate. Verifies nothing.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, MalformedNames> {
        let certificate = Certificate::from_der(certificate).map_err(|_error| MalformedNames)?;
        let certificate = certificate.tbs_certificate();
        let names = certificate.get_extension::<SubjectAltName>();
        let names = names.map_err(|_error| MalformedNames)?;
        let names = names.map(|(_critical, names)| names.0).unwrap_or_default();
        let common_name = certificate.subject().common_name();
        Ok(Self {
            sans: names.iter().filter_map(text).collect(),
            // A value of another type than text is no name.
            common_name: common_name
                .ok()
                .flatten()
                .map(|name| name.value().into_owned()),
        })
    }
}

fn text(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::DnsName(name)
        | GeneralName::Rfc822Name(name)
        | GeneralName::UniformResourceIdentifier(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => ip(bytes.as_bytes()).map(|ip| ip.to_string()),
        GeneralName::OtherName(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EdiPartyName(_)
        | GeneralName::RegisteredId(_) => None,
    }
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| v6()).ok().map(|ip| ip.to_canonical())
}
