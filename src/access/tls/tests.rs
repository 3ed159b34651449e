mod fuzz;

use rcgen::{BasicConstraints, IsCa, SanType};
use rustls::ClientConfig;
use rustls::ProtocolVersion;
use rustls::crypto::ring::{cipher_suite, kx_group};

use super::*;
use crate::access::tests::certificates::{
    Pair, TestCa, TestDir, connect, dns, for_servers, params, self_signed, serve,
};
use crate::access::web_config::WebConfig;

const PLAIN: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

fn load(dir: &TestDir, more: &str) -> Result<Tls, KeyRefusal> {
    dir.write("web.yml", &format!("{PLAIN}{more}"));
    let web = WebConfig::load(&dir.web()).unwrap();
    Tls::load(&web.tls.unwrap(), HTTP_2)
}

/// What a handshake came to: on the server's side, and the client's connection.
struct Shaken {
    identity: io::Result<Option<PeerIdentity>>,
    client: io::Result<Seen>,
}

struct Seen {
    version: ProtocolVersion,
    alpn: Option<Vec<u8>>,
    suite: rustls::CipherSuite,
    is_resumed: bool,
}

async fn shake(
    tls: &Tls,
    ca: &str,
    pair: Option<&Pair>,
    adjust: impl FnOnce(&mut ClientConfig),
) -> Shaken {
    let (server, client) = tokio::io::duplex(64 << 10);
    let (identity, client) = tokio::join!(serve(tls, server), connect(client, ca, pair, adjust));
    let client = client.map(|stream| {
        let (_, connection) = stream.get_ref();
        Seen {
            version: connection.protocol_version().unwrap(),
            alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
            suite: connection.negotiated_cipher_suite().unwrap().suite(),
            is_resumed: connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed),
        }
    });
    Shaken { identity, client }
}

fn names() -> Vec<SanType> {
    vec![
        dns("client.example"),
        SanType::IpAddress("10.0.0.7".parse().unwrap()),
        SanType::IpAddress("2001:db8::7".parse().unwrap()),
        SanType::IpAddress("::ffff:10.0.0.8".parse().unwrap()),
        SanType::URI("spiffe://cluster/ns/a".try_into().unwrap()),
        SanType::Rfc822Name("ops@example.com".try_into().unwrap()),
    ]
}

const VERIFIED: &str = "  client_ca_file: ca.crt\n  client_auth_type: RequireAndVerifyClientCert\n";
const IF_GIVEN: &str = "  client_ca_file: ca.crt\n  client_auth_type: VerifyClientCertIfGiven\n";

#[tokio::test]
async fn a_verified_certificate_is_an_identity_with_all_its_names() {
    let dir = TestDir::new("");
    let client = dir.ca.issue("scraper", &names());
    for kind in [VERIFIED, IF_GIVEN] {
        let tls = load(&dir, kind).unwrap();
        let shaken = shake(&tls, &dir.ca.cert, Some(&client), |_| {}).await;
        let identity = shaken.identity.unwrap().unwrap();
        assert_eq!(identity.common_name.as_deref(), Some("scraper"));
        assert_eq!(
            identity.sans,
            [
                "client.example",
                "10.0.0.7",
                "2001:db8::7",
                "10.0.0.8",
                "spiffe://cluster/ns/a",
                "ops@example.com"
            ]
        );
    }
}

#[tokio::test]
async fn an_unverified_certificate_is_never_an_identity() {
    let dir = TestDir::new("");
    let client = dir.ca.issue("scraper", &names());
    for (kind, without) in [("RequestClientCert", true), ("RequireAnyClientCert", false)] {
        let tls = load(&dir, &format!("  client_auth_type: {kind}\n")).unwrap();
        let shaken = shake(&tls, &dir.ca.cert, Some(&client), |_| {}).await;
        assert_eq!(shaken.identity.unwrap(), None, "{kind}");
        let shaken = shake(&tls, &dir.ca.cert, None, |_| {}).await;
        assert_eq!(shaken.identity.is_ok(), without, "{kind}");
        assert_eq!(shaken.client.is_ok(), without, "{kind}");
    }
    let tls = load(&dir, "").unwrap();
    let shaken = shake(&tls, &dir.ca.cert, Some(&client), |_| {}).await;
    assert_eq!(shaken.identity.unwrap(), None);
}

#[tokio::test]
async fn a_certificate_of_another_ca_fails_the_handshake() {
    let dir = TestDir::new("");
    let stranger = TestCa::new("ca").issue("scraper", &names());
    for kind in [VERIFIED, IF_GIVEN] {
        let tls = load(&dir, kind).unwrap();
        let shaken = shake(&tls, &dir.ca.cert, Some(&stranger), |_| {}).await;
        assert!(shaken.identity.is_err() && shaken.client.is_err());
    }
    let strict = load(&dir, VERIFIED).unwrap();
    assert!(
        shake(&strict, &dir.ca.cert, None, |_| {})
            .await
            .identity
            .is_err()
    );
    let lax = load(&dir, IF_GIVEN).unwrap();
    assert_eq!(
        shake(&lax, &dir.ca.cert, None, |_| {})
            .await
            .identity
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn a_certificate_that_is_expired_or_for_servers_only_fails_the_handshake() {
    let dir = TestDir::new("");
    let tls = load(&dir, VERIFIED).unwrap();
    let mut expired = params("scraper", &names());
    expired.not_before = rcgen::date_time_ymd(2020, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2021, 1, 1);
    for params in [expired, for_servers(&names())] {
        let pair = dir.ca.sign(&params);
        let shaken = shake(&tls, &dir.ca.cert, Some(&pair), |_| {}).await;
        assert!(shaken.identity.is_err() && shaken.client.is_err());
    }
}

/// Anyone can make one, and the line about it is in the log.
#[tokio::test]
async fn what_is_said_of_a_certificate_is_short_whatever_it_holds() {
    let dir = TestDir::new("");
    let tls = load(&dir, VERIFIED).unwrap();
    let mut params = for_servers(&names());
    let purpose = rcgen::ExtendedKeyUsagePurpose::Other(vec![1, 2, 3]);
    params.extended_key_usages = vec![purpose; 5_000];
    let stranger = self_signed(params, IsCa::NoCa);
    let shaken = shake(&tls, &dir.ca.cert, Some(&stranger), |_| {}).await;
    let why = refusal(&shaken.identity.unwrap_err()).unwrap();
    assert!(why.len() < 200, "{} bytes: {why:.300}", why.len());
}

#[tokio::test]
async fn allowed_names_match_exactly_and_the_common_name_is_none() {
    let dir = TestDir::new("");
    let client = dir.ca.issue("scraper", &names());
    let cases = [
        ("client.example", true),
        ("Client.example", false),
        ("*.example", false),
        ("example", false),
        ("scraper", false),
        ("10.0.0.7", true),
        ("10.0.0.8", true),
        ("2001:db8::7", true),
        ("2001:db8:0::7", false),
        ("spiffe://cluster/ns/a", true),
        ("spiffe://cluster/ns", false),
        ("ops@example.com", true),
    ];
    for (name, is_allowed) in cases {
        let more = format!("{VERIFIED}  client_allowed_sans: [other, \"{name}\"]\n");
        let tls = load(&dir, &more).unwrap();
        let shaken = shake(&tls, &dir.ca.cert, Some(&client), |_| {}).await;
        assert_eq!(shaken.identity.is_ok(), is_allowed, "{name}");
        assert_eq!(shaken.client.is_ok(), is_allowed, "{name}");
    }
    // The right name from a wrong CA, and no certificate.
    let more = format!("{IF_GIVEN}  client_allowed_sans: [client.example]\n");
    let tls = load(&dir, &more).unwrap();
    let stranger = TestCa::new("ca").issue("scraper", &names());
    let shaken = shake(&tls, &dir.ca.cert, Some(&stranger), |_| {}).await;
    assert!(shaken.identity.is_err());
    let shaken = shake(&tls, &dir.ca.cert, None, |_| {}).await;
    assert_eq!(shaken.identity.unwrap(), None);
    let no_names = dir.ca.issue("client.example", &[]);
    let shaken = shake(&tls, &dir.ca.cert, Some(&no_names), |_| {}).await;
    assert!(shaken.identity.is_err());
}

/// As in Go, a certificate may be its own authority; unlike in Go, not if it calls itself a CA.
#[tokio::test]
async fn a_self_signed_client_certificate_is_trusted_only_if_it_is_no_ca() {
    let dir = TestDir::new("");
    let cases = [
        (IsCa::NoCa, true),
        (IsCa::ExplicitNoCa, true),
        (IsCa::Ca(BasicConstraints::Unconstrained), false),
    ];
    let server_ca = dir.read("ca.crt");
    for (is_ca, is_trusted) in cases {
        let client = self_signed(params("self", &names()), is_ca);
        dir.write("ca.crt", &client.cert);
        let tls = load(&dir, VERIFIED).unwrap();
        let shaken = shake(&tls, &server_ca, Some(&client), |_| {}).await;
        assert_eq!(shaken.identity.is_ok(), is_trusted);
    }
}

#[tokio::test]
async fn versions_suites_curves_and_protocols_are_those_of_the_file() {
    let dir = TestDir::new("");
    let ca = dir.ca.cert.clone();
    let tls = load(&dir, "  max_version: TLS12\n").unwrap();
    let seen = shake(&tls, &ca, None, |_| {}).await.client.unwrap();
    assert_eq!(seen.version, ProtocolVersion::TLSv1_2);
    assert_eq!(seen.alpn, None);
    let alpn = |protocols: &[&str]| {
        let protocols: Vec<_> = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        move |config: &mut ClientConfig| config.alpn_protocols = protocols
    };
    let tls = load(&dir, "  min_version: TLS13\n").unwrap();
    let both = alpn(&["http/1.1", "h2"]);
    let seen = shake(&tls, &ca, None, both).await.client.unwrap();
    assert_eq!(seen.version, ProtocolVersion::TLSv1_3);
    assert_eq!(seen.alpn.as_deref(), Some(b"h2".as_slice()));
    let old = alpn(&["http/1.0"]);
    let seen = shake(&tls, &ca, None, old).await.client.unwrap();
    assert_eq!(seen.alpn.as_deref(), Some(b"http/1.0".as_slice()));
    let only_12 = |config: &mut ClientConfig| {
        let mut provider = default_provider();
        provider
            .cipher_suites
            .retain(|suite| suite.version() == &rustls::version::TLS12);
        *config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
    };
    assert!(shake(&tls, &ca, None, only_12).await.client.is_err());

    let chosen = "  max_version: TLS12\n  cipher_suites:\n  - TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256\n  \
                  - TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256\n  curve_preferences: [CurveP384]\n";
    let tls = load(&dir, chosen).unwrap();
    let seen = shake(&tls, &ca, None, |_| {}).await.client.unwrap();
    let chacha = cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    assert_eq!(seen.suite, chacha.suite(), "the server's order counts");
    let tls = load(
        &dir,
        &format!("{chosen}  prefer_server_cipher_suites: false\n"),
    )
    .unwrap();
    let seen = shake(&tls, &ca, None, |_| {}).await.client.unwrap();
    let aes = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    assert_eq!(seen.suite, aes.suite(), "the client's order counts");
    let config = tls.acceptor.config();
    let curves = &config.crypto_provider().kx_groups;
    assert_eq!(curves.len(), 1);
    assert_eq!(curves[0].name(), kx_group::SECP384R1.name());
}

#[tokio::test]
async fn http_1_alone_is_offered_on_request() {
    let dir = TestDir::new(PLAIN);
    let web = WebConfig::load(&dir.web()).unwrap();
    let tls = Tls::load(&web.tls.unwrap(), HTTP_1).unwrap();
    let both = |config: &mut ClientConfig| {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    };
    let seen = shake(&tls, &dir.ca.cert, None, both).await.client.unwrap();
    assert_eq!(seen.alpn.as_deref(), Some(b"http/1.1".as_slice()));
}

#[tokio::test]
async fn no_session_is_resumed() {
    let dir = TestDir::new("");
    for version in ["TLS12", "TLS13"] {
        let tls = load(
            &dir,
            &format!("  min_version: {version}\n  max_version: {version}\n"),
        )
        .unwrap();
        let store = Arc::new(rustls::client::ClientSessionMemoryCache::new(8));
        for _ in 0..3 {
            let resumes = |config: &mut ClientConfig| {
                config.resumption = rustls::client::Resumption::store(store.clone());
            };
            let seen = shake(&tls, &dir.ca.cert, None, resumes)
                .await
                .client
                .unwrap();
            assert!(!seen.is_resumed, "{version}");
        }
    }
}

#[test]
fn unusable_files_are_refused_by_key_and_never_shown() {
    let dir = TestDir::new("");
    let (cert, key) = (dir.read("server.crt"), dir.read("server.key"));
    let other = dir.ca.issue("other", &[]).key;
    let half = &key[..key.len() / 2];
    let cases = [
        ("server.crt", "", "cert_file: ", "holds no certificate"),
        (
            "server.crt",
            key.as_str(),
            "cert_file: ",
            "holds no certificate",
        ),
        (
            "server.crt",
            &cert[..cert.len() / 2],
            "cert_file: ",
            "malformed PEM",
        ),
        ("server.key", "", "key_file: ", "holds no private key"),
        (
            "server.key",
            cert.as_str(),
            "key_file: ",
            "holds no private key",
        ),
        ("server.key", half, "key_file: ", "holds no private key"),
        (
            "server.key",
            other.as_str(),
            "key_file: ",
            "cannot be used with the certificate",
        ),
        ("ca.crt", "", "client_ca_file: ", "holds no certificate"),
    ];
    for (file, text, at, why) in cases {
        let before = dir.read(file);
        dir.write(file, text);
        let error = load(&dir, VERIFIED).unwrap_err().to_string();
        let at = format!("tls_server_config.{at}");
        assert!(
            error.starts_with(&at) && error.contains(why),
            "{file}: {error}"
        );
        assert!(
            !error.contains("PRIVATE") && !error.contains("BEGIN"),
            "{error}"
        );
        dir.write(file, &before);
    }
    std::fs::remove_file(dir.path("server.key")).unwrap();
    let error = load(&dir, "").unwrap_err().to_string();
    assert!(
        error.contains("server.key cannot be read: No such file"),
        "{error}"
    );
    std::fs::create_dir(dir.path("server.key")).unwrap();
    let error = load(&dir, "").unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_or_leaves_is_an_error() {
    use tokio::io::AsyncWriteExt;
    let dir = TestDir::new("");
    let tls = load(&dir, "").unwrap();
    let (server, mut client) = tokio::io::duplex(64 << 10);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(tls.accept(server).await.is_err());
    let (server, client) = tokio::io::duplex(64 << 10);
    drop(client);
    assert!(tls.accept(server).await.is_err());
    assert_eq!(format!("{tls:?}"), "Tls { verifies_clients: false, .. }");
}
