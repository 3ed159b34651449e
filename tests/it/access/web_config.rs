//! The web configuration file at work: TLS, users, client certificates, headers and the rate limit.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use reqwest::{Certificate, Identity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{ACT_TOKEN, READ_TOKEN, token_files};
use crate::support::ca::{Ca, replace};
use crate::support::raw::exchange;
use crate::support::wait::until_true;
use crate::support::{Answer, Rig, nodes, until};

/// Of the password `secret`, with the lowest cost.
pub(super) const HASH: &str = "$2b$04$McHJsvJ6j7l34FYdKf1RFOC3GwktfB2TdaLDFWTRjRyxNjLG6Rafm";

pub(super) const TLS: &str =
    "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

pub(super) struct Files {
    dir: TempDir,
    pub(super) ca: Ca,
}

impl Files {
    pub(super) fn new(web: &str) -> Self {
        let files = Self {
            dir: TempDir::new().unwrap(),
            ca: Ca::new(),
        };
        files.ca.write(&files.path("ca.crt"));
        files.sign_server();
        fs::write(files.path("web.yml"), web).unwrap();
        files
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Lets a client trust the CA, and show a certificate of one for a name.
    pub(super) fn trusting(
        &self,
        builder: reqwest::ClientBuilder,
        shown: Option<(&Ca, &str)>,
    ) -> reqwest::ClientBuilder {
        trusting(builder, self.dir.path(), shown)
    }

    fn sign_server(&self) -> Vec<u8> {
        let server = self.ca.sign("localhost");
        server.write(&self.path("server.crt"), &self.path("server.key"));
        server.der
    }

    fn client(&self, name: Option<&str>) -> reqwest::Client {
        client(&self.ca, self.dir.path(), name)
    }

    pub(super) async fn start(&self, web: Value) -> Rig {
        let mut web = web;
        web["config_file"] = json!(self.path("web.yml"));
        let rig = Rig::unready(
            nodes::litter(1).build(),
            crisweep_sim::Options::default(),
            json!({ "web": web }),
        );
        rig.await
    }
}

/// A client that trusts the CA, with a certificate of it for a name.
fn client(ca: &Ca, dir: &Path, name: Option<&str>) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy();
    let builder = trusting(builder, dir, name.map(|name| (ca, name)));
    builder.build().unwrap()
}

fn trusting(
    builder: reqwest::ClientBuilder,
    dir: &Path,
    shown: Option<(&Ca, &str)>,
) -> reqwest::ClientBuilder {
    let pem = fs::read(dir.join("ca.crt")).unwrap();
    let builder = builder.tls_certs_only([Certificate::from_pem(&pem).unwrap()]);
    let Some((ca, name)) = shown else {
        return builder;
    };
    let pem = dir.join("client.pem");
    ca.sign(name).write(&pem, &pem);
    builder.identity(Identity::from_pem(&fs::read(pem).unwrap()).unwrap())
}

fn url(rig: &Rig, path: &str) -> String {
    let port = rig.address.rsplit_once(':').unwrap().1;
    format!("https://localhost:{port}{path}")
}

async fn get(client: &reqwest::Client, rig: &Rig, path: &str) -> Answer {
    Answer::of(client.get(url(rig, path))).await
}

async fn post(client: &reqwest::Client, rig: &Rig, path: &str) -> Answer {
    Answer::of(client.post(url(rig, path))).await
}

#[tokio::test]
async fn users_may_read_and_act_and_others_may_do_neither() {
    let files = Files::new(&format!(
        "{TLS}basic_auth_users: {{ops: {HASH}, reader: {HASH}}}\n"
    ));
    let rig = files.start(json!({ "act_users": ["ops"] })).await;
    let client = files.client(None);
    assert_eq!(get(&client, &rig, "/-/healthy").await.status, 200);
    for path in ["/metrics", "/", "/api/v1/status", "/nowhere"] {
        let answer = get(&client, &rig, path).await;
        answer.refused(401, "needs a credential");
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Basic realm="), "{challenge}");
    }
    let ask = |user: &str, password: &str| {
        let request = client.post(url(&rig, "/gc?dry_run=true&wait=60s"));
        Answer::of(request.basic_auth(user, Some(password)))
    };
    let pass = ask("ops", "secret").await;
    assert_eq!(
        pass.json()["trigger"]["by"],
        json!({ "kind": "user", "name": "ops" }),
        "{}",
        pass.text
    );
    ask("ops", "wrong")
        .await
        .refused(401, "the user or the password is wrong");
    ask("nobody", "secret")
        .await
        .refused(401, "the user or the password is wrong");
    ask("reader", "secret")
        .await
        .refused(403, "user reader may read, but not act");
    let read = client
        .get(url(&rig, "/metrics"))
        .basic_auth("reader", Some("secret"));
    assert_eq!(Answer::of(read).await.status, 200);
}

#[tokio::test]
async fn tokens_and_users_work_beside_each_other() {
    let files = Files::new(&format!("{TLS}basic_auth_users: {{ops: {HASH}}}\n"));
    let tokens = token_files(files.dir.path());
    let rig = files.start(json!({ "bearer_token_files": tokens })).await;
    let client = files.client(None);
    for (token, path, status) in [
        (READ_TOKEN, "/metrics", 200),
        (ACT_TOKEN, "/metrics", 200),
        ("wrong", "/metrics", 401),
    ] {
        let answer = Answer::of(client.get(url(&rig, path)).bearer_auth(token)).await;
        assert_eq!(answer.status, status, "{token} {path}: {}", answer.text);
    }
    let twice = client
        .get(url(&rig, "/metrics"))
        .bearer_auth(ACT_TOKEN)
        .bearer_auth(ACT_TOKEN);
    Answer::of(twice).await.refused(400, "repeated");
}

#[tokio::test]
async fn a_client_certificate_with_an_allowed_name_may_act() {
    let web = format!(
        "{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n  client_allowed_sans: [alertmanager.example]\n"
    );
    let files = Files::new(&web);
    let rig = files.start(json!({})).await;
    let allowed = files.client(Some("alertmanager.example"));
    let pass = post(&allowed, &rig, "/gc?dry_run=true&wait=60s").await;
    let by = json!({ "kind": "certificate", "name": "alertmanager.example" });
    assert_eq!(pass.json()["trigger"]["by"], by, "{}", pass.text);
    assert_eq!(get(&allowed, &rig, "/metrics").await.status, 200);
    for client in [files.client(Some("other.example")), files.client(None)] {
        assert!(client.get(url(&rig, "/metrics")).send().await.is_err());
    }
    // A certificate of another CA with the right name.
    let other = client(&Ca::new(), files.dir.path(), Some("alertmanager.example"));
    assert!(other.get(url(&rig, "/metrics")).send().await.is_err());
    for why in [
        "the client showed no certificate",
        "the client's certificate has no name of client_allowed_sans",
        "the client's certificate is of no CA in client_ca_file",
    ] {
        until_true(why, || rig.log_text().contains(why)).await;
    }
}

/// It waits for the answer to its request, or means harm.
#[tokio::test]
async fn a_refused_certificate_is_logged_although_the_client_stays() {
    let web =
        format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n");
    let files = Files::new(&web);
    let rig = files.start(json!({})).await;
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(files.ca.pem().as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(&rig.address).await.unwrap();
    let client = TlsConnector::from(Arc::new(config));
    let stays = client.connect("localhost".try_into().unwrap(), stream);
    let stays = stays.await.unwrap();
    until_true("the refusal is logged", || {
        rig.log_text().contains("the client showed no certificate")
    })
    .await;
    drop(stays);
}

/// Its request is on the way by then, and a connection that is reset loses the refusal.
#[tokio::test]
async fn a_client_without_a_certificate_hears_that_one_is_required() {
    let web =
        format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n");
    let files = Files::new(&web);
    let rig = files.start(json!({})).await;
    for _ in 0..20 {
        let mut curl = tokio::process::Command::new("curl");
        curl.arg("-kSs").arg(url(&rig, "/metrics"));
        let said = curl.output().await.expect("curl is installed").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("certificate required"), "{said}");
    }
}

#[tokio::test]
async fn a_certificate_of_the_ca_alone_may_read_and_not_act() {
    let web =
        format!("{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.crt\n");
    let files = Files::new(&web);
    let rig = files.start(json!({})).await;
    let verified = files.client(Some("scraper.example"));
    assert_eq!(get(&verified, &rig, "/metrics").await.status, 200);
    let answer = post(&verified, &rig, "/gc").await;
    answer.refused(403, "certificate scraper.example may read, but not act");
    let without = post(&files.client(None), &rig, "/gc").await;
    without.refused(401, "needs a credential");
}

#[tokio::test]
async fn certificates_and_users_change_under_load_without_a_failed_request() {
    let files = Files::new(&format!("{TLS}basic_auth_users: {{ops: {HASH}}}\n"));
    let rig = files.start(json!({})).await;
    let ask = || async {
        // A new connection for each request, so that each shakes hands.
        let request = files.client(None).get(url(&rig, "/api/v1/passes"));
        let answer = Answer::of(request.basic_auth("ops", Some("secret"))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    // It listens before it reads the files; what it reads first is no change.
    ask().await;
    for _ in 0..3 {
        let read_again = rig
            .logged("the web configuration file or its certificates were read again")
            .len();
        files.sign_server();
        until("the certificate is read again", || async {
            ask().await;
            let lines =
                rig.logged("the web configuration file or its certificates were read again");
            (lines.len() > read_again).then_some(())
        })
        .await;
    }
    // Half a file changes nothing.
    replace(
        &files.path("server.crt"),
        "-----BEGIN CERTIFICATE-----\nMII",
    );
    until("the error is logged", || async {
        ask().await;
        rig.log_text()
            .contains("the old one stays in force")
            .then_some(())
    })
    .await;
    ask().await;
}

#[tokio::test]
async fn a_client_that_speaks_plain_http_is_told_so() {
    let files = Files::new(TLS);
    let rig = files.start(json!({})).await;
    let request = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let (status, text) = exchange(&rig.address, request).await;
    assert_eq!(
        (status, text.as_str()),
        (400, "crisweep speaks TLS here: use https\n")
    );
}

#[tokio::test]
async fn the_rate_limit_and_the_headers_of_the_file_hold() {
    let web = "rate_limit: {interval: 1h, burst: 2}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n";
    let files = Files::new(web);
    let rig = files.start(json!({})).await;
    for status in [200, 200, 429, 429] {
        let answer = rig.get("/api/v1/passes").await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert_eq!(answer.header("x-frame-options"), Some("deny"));
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
    }
    assert_eq!(rig.get("/-/healthy").await.status, 200);
    // Alertmanager repeats after a 5xx alone.
    let webhook = rig.post("/webhook/alertmanager").await;
    webhook.refused(503, "the rate limit");
    rig.logs(1, "refused").await;
}

#[tokio::test]
async fn an_emptied_file_opens_nothing_until_a_reload_takes_it() {
    let files = Files::new(&format!("basic_auth_users: {{ops: {HASH}}}\n"));
    let rig = files.start(json!({})).await;
    // Only a service that answers has read the file.
    rig.get("/metrics").await.refused(401, "needs a credential");
    for text in ["", "rate_limit: {interval: 1s, burst: 9}\n"] {
        let errors = rig.log_text().matches("the old one stays in force").count();
        fs::write(files.path("web.yml"), text).unwrap();
        until("the error is logged", || async {
            let now = rig.log_text().matches("the old one stays in force").count();
            (now > errors).then_some(())
        })
        .await;
        rig.get("/metrics").await.refused(401, "needs a credential");
    }
    let reload = rig.request("POST", "/-/reload");
    let answer = Answer::of(reload.basic_auth("ops", Some("secret"))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(rig.get("/metrics").await.status, 200);
}

#[tokio::test]
async fn an_open_connection_loses_what_its_certificate_may_no_longer_do() {
    let web = |name: &str| {
        format!(
            "{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.crt\n  client_allowed_sans: [{name}]\n"
        )
    };
    let files = Files::new(&web("alertmanager.example"));
    let rig = files.start(json!({})).await;
    let client = files.client(Some("alertmanager.example"));
    assert_eq!(post(&client, &rig, "/gc?dry_run=true").await.status, 202);
    replace(&files.path("web.yml"), &web("other.example"));
    let message = "the web configuration file or its certificates were read again";
    until("the file is read again", || async {
        (!rig.logged(message).is_empty()).then_some(())
    })
    .await;
    let answer = post(&client, &rig, "/gc?dry_run=true").await;
    answer.refused(401, "needs a credential");
    assert_eq!(answer.header("connection"), Some("close"));
    // A new handshake refuses the name.
    assert!(client.get(url(&rig, "/metrics")).send().await.is_err());
}

#[tokio::test]
async fn a_credential_that_suffices_counts_beside_one_that_does_not() {
    let web = format!(
        "{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.crt\n  client_allowed_sans: [am.example]\n"
    );
    let files = Files::new(&web);
    let tokens = token_files(files.dir.path());
    let rig = files.start(json!({ "bearer_token_files": tokens })).await;
    let client = files.client(Some("am.example"));
    for token in [READ_TOKEN, "wrong"] {
        let request = client
            .post(url(&rig, "/gc?dry_run=true"))
            .bearer_auth(token);
        assert_eq!(Answer::of(request).await.status, 202, "{token}");
    }
}

#[tokio::test]
async fn names_that_nothing_can_prove_are_refused() {
    let files = Files::new(&format!("basic_auth_users: {{ops: {HASH}}}\n"));
    let mut rig = files.start(json!({})).await;
    let reload = async |rig: &Rig| {
        let request = rig.request("POST", "/-/reload");
        Answer::of(request.basic_auth("ops", Some("secret"))).await
    };
    for (web, words) in [
        (
            json!({ "act_users": ["ops", "opps"] }),
            "web.act_users: \"opps\"",
        ),
        (
            json!({ "act_users": [], "act_client_sans": ["a"] }),
            "web.act_client_sans",
        ),
    ] {
        rig.configure(&json!({ "web": web }));
        reload(&rig).await.refused(400, words);
    }
    rig.configure(&json!({ "web": { "act_users": ["ops"], "act_client_sans": [] } }));
    assert_eq!(reload(&rig).await.status, 200);
}

#[tokio::test]
async fn an_unusable_file_stops_the_start_by_its_key() {
    for (web, words) in [
        ("tls_server_config: {cert_file: server.crt}", "key_file"),
        (
            "tls_server_config: {cert_file: none.crt, key_file: server.key}",
            "none.crt",
        ),
        ("basic_auth_user: {}", "basic_auth_user"),
    ] {
        let files = Files::new(web);
        let config = files.path("crisweep.yaml");
        let text = json!({
            "web": { "listen": ["127.0.0.1:0"], "config_file": files.path("web.yml") },
            "runtime": { "endpoint": files.path("none.sock") }, "state": { "dir": null },
        });
        fs::write(&config, text.to_string()).unwrap();
        let output =
            crate::support::service::run(&["--config.file", config.to_str().unwrap()]).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains(words),
            "{web}: {error}"
        );
        assert!(error.contains("web.yml"), "{web}: {error}");
    }
}
