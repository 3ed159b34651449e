//! Certificates with any content: names are read, or the certificate is malformed.

use proptest::prelude::*;
use proptest::sample::Index;
use rcgen::SanType;
use rustls::pki_types::pem::PemObject;

use super::super::*;
use crate::access::tests::certificates::{TestCa, dns};

fn certificate() -> Vec<u8> {
    let names = [
        dns("client.example"),
        SanType::IpAddress("2001:db8::7".parse().unwrap()),
        SanType::URI("spiffe://cluster/ns/a".try_into().unwrap()),
        SanType::Rfc822Name("ops@example.com".try_into().unwrap()),
    ];
    let pem = TestCa::new("ca").issue("scraper", &names).cert;
    CertificateDer::from_pem_slice(pem.as_bytes())
        .unwrap()
        .to_vec()
}

/// Where the names begin: the identifier of the extension.
fn names_at(der: &[u8]) -> usize {
    let id = [0x55, 0x1d, 0x11];
    der.windows(3).position(|bytes| bytes == id).unwrap()
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok());
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases.unwrap_or(256))
    }
}

#[test]
fn any_change_to_a_certificate_is_read_or_malformed() {
    let der = certificate();
    let at_names = names_at(&der);
    let edit = (any::<Index>(), any::<bool>(), any::<u8>());
    let edits = prop::collection::vec(edit, 1..4);
    let strategy = (edits, any::<Option<Index>>());
    let mut runner = proptest::test_runner::TestRunner::new(cases());
    let run = runner.run(&strategy, |(edits, end)| {
        let mut changed = der.clone();
        for (at, is_in_names, byte) in edits {
            let at = if is_in_names {
                at_names + at.index(100)
            } else {
                at.index(der.len())
            };
            changed[at] = byte;
        }
        if let Some(end) = end {
            changed.truncate(end.index(der.len()));
        }
        if let Ok(identity) = PeerIdentity::of(&CertificateDer::from(changed)) {
            let length: usize = identity.sans.iter().map(String::len).sum();
            prop_assert!(length <= der.len());
            prop_assert!(identity.sans.iter().all(|name| name.is_ascii()));
        }
        Ok(())
    });
    run.unwrap();
}
