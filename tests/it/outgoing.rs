//! Requests to other servers: who is trusted, what is shown, what is never followed.

use std::path::PathBuf;
use std::time::Duration;

use crisweep::outgoing::{
    Authorization, BasicAuth, Error, HttpClient, HttpClientConfig, HttpResponse, TlsConfig,
    TlsVersion,
};
use crisweep::system::blocking::BlockingPool;
use crisweep::telemetry::chain;
use tempfile::TempDir;

use crate::support::ca::{Ca, replace, serving};
use crate::support::kubelet::{PodServer, Reply};

const ANSWER_MAX: u64 = 1000;

/// A server with a certificate for `localhost`, and files.
struct Peer {
    server: PodServer,
    ca: Ca,
    files: TempDir,
}

impl Peer {
    async fn start() -> Self {
        let ca = Ca::new();
        let server = PodServer::secure(&ca, "localhost").await;
        server.reply(Reply::json("{}"));
        let files = tempfile::tempdir().unwrap();
        ca.write(&files.path().join("ca.crt"));
        Self { server, ca, files }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn url(&self) -> String {
        format!("https://{}", self.server.address)
    }

    fn tls(&self) -> TlsConfig {
        TlsConfig {
            ca_file: Some(self.file("ca.crt")),
            ..TlsConfig::default()
        }
    }

    fn client(&self, tls_config: TlsConfig) -> HttpClient {
        let config = HttpClientConfig {
            tls_config,
            ..HttpClientConfig::default()
        };
        HttpClient::new(self.url(), config, ANSWER_MAX, BlockingPool::new(1))
    }
}

async fn get(client: &HttpClient) -> Result<HttpResponse, Error> {
    let answer = client.get(client.url("/x?y=z")?);
    tokio::time::timeout(Duration::from_secs(20), answer)
        .await
        .unwrap()
}

/// Asserts that a request fails with these words.
async fn fails(client: &HttpClient, words: &str) {
    let error = chain(&get(client).await.unwrap_err());
    assert!(error.contains(words), "{words:?} is not in {error:?}");
}

#[tokio::test]
async fn only_the_cas_now_in_the_file_are_trusted() {
    let peer = Peer::start().await;
    let client = peer.client(peer.tls());
    assert_eq!(get(&client).await.unwrap().bytes, b"{}");
    let other = Ca::new();
    peer.server.show(&other, "localhost");
    fails(&client, "UnknownIssuer").await;
    other.write(&peer.file("ca.crt"));
    assert_eq!(get(&client).await.unwrap().bytes, b"{}");
    replace(&peer.file("ca.crt"), "no PEM");
    fails(&client, "holds no CA certificate in PEM").await;
    std::fs::remove_file(peer.file("ca.crt")).unwrap();
    fails(&client, "No such file").await;
}

#[tokio::test]
async fn the_systems_cas_do_not_include_a_private_one() {
    let peer = Peer::start().await;
    let error = get(&peer.client(TlsConfig::default())).await.unwrap_err();
    // Without any CA on this machine nothing is asked at all.
    let refused = chain(&error).contains("UnknownIssuer");
    let lacks = matches!(&error, Error::Lacks(why) if why.contains("the system trusts no CA"));
    assert!(refused || lacks, "{error:?}");
    assert_eq!(peer.server.asked().len(), 0);
}

#[tokio::test]
async fn an_expired_certificate_is_refused() {
    let peer = Peer::start().await;
    let expired = serving(&peer.ca.expired("localhost"), None, rustls::ALL_VERSIONS);
    peer.server.speak(expired);
    fails(&peer.client(peer.tls()), "expired").await;
}

#[tokio::test]
async fn a_server_below_the_lowest_version_is_refused() {
    let peer = Peer::start().await;
    let old = serving(&peer.ca.sign("localhost"), None, &[&rustls::version::TLS12]);
    peer.server.speak(old);
    assert_eq!(get(&peer.client(peer.tls())).await.unwrap().bytes, b"{}");
    let tls = TlsConfig {
        min_version: TlsVersion::Tls13,
        ..peer.tls()
    };
    fails(&peer.client(tls), "ProtocolVersion").await;
}

#[tokio::test]
async fn the_server_name_takes_the_hosts_place_in_the_certificate_alone() {
    let peer = Peer::start().await;
    peer.server.show(&peer.ca, "alertmanager.example");
    fails(&peer.client(peer.tls()), "not valid for name").await;
    let tls = TlsConfig {
        server_name: Some("alertmanager.example".to_owned()),
        ..peer.tls()
    };
    assert_eq!(get(&peer.client(tls)).await.unwrap().bytes, b"{}");
    let asked = peer.server.asked().remove(0);
    assert_eq!(asked.host, Some(peer.server.address.clone()));
    assert_eq!(asked.line, "GET /x?y=z");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_no_other_server_gets_the_credentials() {
    let peer = Peer::start().await;
    let elsewhere = PodServer::plain().await;
    replace(&peer.file("token"), "the-secret\n");
    let config = HttpClientConfig {
        authorization: Authorization {
            scheme: "Token".to_owned(),
            credentials_file: Some(peer.file("token")),
        },
        tls_config: peer.tls(),
        ..HttpClientConfig::default()
    };
    let client = HttpClient::new(peer.url(), config, ANSWER_MAX, BlockingPool::new(1));
    for to in [format!("http://{}/", elsewhere.address), peer.url()] {
        peer.server.reply(Reply::redirect(&to));
        assert_eq!(get(&client).await.unwrap().status.as_u16(), 302);
    }
    assert_eq!(elsewhere.asked().len(), 0);
    let asked = peer.server.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1].authorization.as_deref(), Some("Token the-secret"));
}

#[tokio::test]
async fn secrets_are_read_at_each_request_and_are_in_no_text() {
    let peer = Peer::start().await;
    let config = HttpClientConfig {
        basic_auth: BasicAuth {
            username: Some("crisweep".to_owned()),
            password_file: Some(peer.file("password")),
        },
        tls_config: peer.tls(),
        ..HttpClientConfig::default()
    };
    let url = peer.url().replace("https://", "https://u:url-secret@");
    let client = HttpClient::new(url, config, ANSWER_MAX, BlockingPool::new(1));
    fails(&client, "password: No such file").await;
    replace(&peer.file("password"), " \n");
    fails(&client, "holds no password").await;
    replace(&peer.file("password"), "one-secret\n");
    get(&client).await.unwrap();
    replace(&peer.file("password"), "two-secret");
    get(&client).await.unwrap();
    let sent: Vec<_> = peer.server.asked();
    let sent: Vec<_> = sent
        .iter()
        .filter_map(|it| it.authorization.as_deref())
        .collect();
    // crisweep:one-secret, crisweep:two-secret
    let basic = [
        "Basic Y3Jpc3dlZXA6b25lLXNlY3JldA==",
        "Basic Y3Jpc3dlZXA6dHdvLXNlY3JldA==",
    ];
    assert_eq!(sent, basic);
    peer.server.reply(Reply::cut("{\"a\": 1}"));
    let error = get(&client).await.unwrap_err();
    for text in [chain(&error), format!("{error:?}"), format!("{client:?}")] {
        assert!(!text.contains("secret"), "{text}");
    }
}

#[tokio::test]
async fn an_answer_at_the_bound_is_taken_and_one_byte_more_is_not() {
    let peer = Peer::start().await;
    let client = peer.client(peer.tls());
    let body = |length: u64| " ".repeat(usize::try_from(length).unwrap());
    peer.server.reply(Reply::json(&body(ANSWER_MAX)));
    assert_eq!(get(&client).await.unwrap().bytes.len(), 1000);
    peer.server.reply(Reply::json(&body(ANSWER_MAX + 1)));
    fails(&client, "larger than 1000 bytes").await;
    // Without a length in front.
    peer.server.reply(Reply::flood(false));
    fails(&client, "larger than 1000 bytes").await;
}
