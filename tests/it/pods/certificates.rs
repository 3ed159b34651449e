//! Client certificates: the kubelet and the API server know crisweep by one, with or without a token.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::api_server::answer;
use super::{LITTER, cleans, fails, never_logged};
use crate::support::ca::{Ca, replace};
use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, nodes};

/// A server that asks for a client certificate, and files to show it one.
struct Peer {
    server: PodServer,
    clients: Ca,
    files: TempDir,
}

impl Peer {
    async fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let (servers, clients) = (Ca::new(), Ca::new());
        servers.write(&files.path().join("ca.crt"));
        let server = PodServer::plain().await;
        server.speak(servers.server_for("localhost", &clients));
        Self {
            server,
            clients,
            files,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// The configuration of a source with certificate and key in these files.
    fn config(&self, source: &str, (certificate, key): (&str, &str)) -> Value {
        let prefix = source.split('-').next().unwrap();
        let mut pods = json!({ "source": source, "file": null });
        pods[format!("{prefix}_url")] = json!(format!("https://{}", self.server.address));
        pods[format!("{prefix}_ca_file")] = json!(self.file("ca.crt"));
        pods[format!("{prefix}_cert_file")] = json!(self.file(certificate));
        pods[format!("{prefix}_key_file")] = json!(self.file(key));
        json!({ "runtime": { "timeout": "2s" }, "pods": pods })
    }

    fn last_shown(&self) -> Option<Vec<u8>> {
        self.server.asked().pop().unwrap().certificate
    }
}

#[tokio::test]
async fn the_kubelet_is_shown_the_certificate_and_key_of_one_file() {
    let kubelet = Peer::start().await;
    let certificate = kubelet.clients.sign("system:node:node-1");
    let pem = kubelet.file("kubelet-client-current.pem");
    certificate.write(&pem, &pem);
    let names = ("kubelet-client-current.pem", "kubelet-client-current.pem");
    let rig = Rig::start(nodes::litter(LITTER), kubelet.config("kubelet", names)).await;
    kubelet.server.reply(Reply::json(&rig.sim.pods_json()));
    cleans(&rig, "kubelet").await;
    assert_eq!(kubelet.last_shown(), Some(certificate.der));
    assert_eq!(kubelet.server.asked()[0].authorization, None);
}

#[tokio::test]
async fn a_certificate_and_a_token_are_both_shown() {
    let kubelet = Peer::start().await;
    let certificate = kubelet.clients.sign("crisweep");
    certificate.write(&kubelet.file("crt"), &kubelet.file("key"));
    replace(&kubelet.file("token"), "the-secret");
    kubelet.server.expect_token("the-secret");
    let mut config = kubelet.config("kubelet", ("crt", "key"));
    config["pods"]["kubelet_token_file"] = json!(kubelet.file("token"));
    let rig = Rig::start(nodes::litter(LITTER), config).await;
    kubelet.server.reply(Reply::json(&rig.sim.pods_json()));
    cleans(&rig, "kubelet").await;
    assert_eq!(kubelet.last_shown(), Some(certificate.der));
}

#[tokio::test]
async fn the_api_server_knows_a_node_without_a_service_account_by_its_certificate() {
    let api_server = Peer::start().await;
    let certificate = api_server.clients.sign("system:node:node-1");
    certificate.write(&api_server.file("crt"), &api_server.file("key"));
    let config = api_server.config("api-server", ("crt", "key"));
    let rig = Rig::start(nodes::litter(LITTER), config).await;
    let pods = answer(&rig.sim).to_string();
    api_server.server.reply(Reply::json(&pods));
    cleans(&rig, "api-server").await;
    assert_eq!(api_server.last_shown(), Some(certificate.der));
    assert_eq!(api_server.server.asked()[0].authorization, None);
}

#[tokio::test]
async fn a_server_that_does_not_accept_the_certificate_removes_nothing() {
    let kubelet = Peer::start().await;
    let (pem, names) = (kubelet.file("pem"), ("pem", "pem"));
    kubelet.clients.expired("crisweep").write(&pem, &pem);
    let rig = Rig::start(nodes::litter(LITTER), kubelet.config("kubelet", names)).await;
    kubelet.server.reply(Reply::json(&rig.sim.pods_json()));
    // Whether the alert or the closed connection arrives first is a race.
    fails(&rig, "no answer").await;
    Ca::new().sign("crisweep").write(&pem, &pem);
    fails(&rig, "no answer").await;
    assert_eq!(kubelet.server.asked().len(), 0);
    kubelet.clients.sign("crisweep").write(&pem, &pem);
    cleans(&rig, "kubelet").await;
}

#[tokio::test]
async fn files_without_a_usable_certificate_fail_the_source_by_name() {
    let kubelet = Peer::start().await;
    let names = ("crt", "key");
    let rig = Rig::start(nodes::litter(LITTER), kubelet.config("kubelet", names)).await;
    kubelet.server.reply(Reply::json(&rig.sim.pods_json()));
    let (certificate, key) = (kubelet.file("crt"), kubelet.file("key"));
    fails(&rig, "crt: No such file").await;
    replace(&certificate, "text");
    replace(&key, "key-secret");
    fails(&rig, "crt holds no certificate in PEM").await;
    let signed = kubelet.clients.sign("crisweep");
    signed.write_certificate(&certificate);
    fails(&rig, "key holds no private key in PEM").await;
    kubelet
        .clients
        .sign("other")
        .write(&kubelet.file("x"), &key);
    fails(&rig, "the client certificate in").await;
    signed.write(&certificate, &key);
    cleans(&rig, "kubelet").await;
    never_logged(&rig, "key-secret");
}

#[tokio::test]
async fn after_a_reload_with_another_certificate_file_the_former_certificate_is_not_shown() {
    for source in ["kubelet", "api-server"] {
        let peer = Peer::start().await;
        let first = peer.clients.sign("first");
        first.write(&peer.file("crt"), &peer.file("key"));
        let config = peer.config(source, ("crt", "key"));
        let mut rig = Rig::start(nodes::litter(LITTER), config).await;
        let pods = match source {
            "kubelet" => rig.sim.pods_json(),
            _ => answer(&rig.sim).to_string(),
        };
        peer.server.reply(Reply::json(&pods));
        assert_eq!(super::status(&rig).await["known"], true);
        let asked = peer.server.asked().len();
        replace(&peer.file("text"), "text");
        for (name, words) in [
            ("absent", "absent: No such file"),
            ("text", "text holds no certificate in PEM"),
        ] {
            rig.configure(&peer.config(source, (name, name)));
            assert_eq!(rig.post("/-/reload").await.status, 200);
            fails(&rig, words).await;
        }
        assert_eq!(peer.server.asked().len(), asked, "{source}");
        let second = peer.clients.sign("second");
        second.write(&peer.file("text"), &peer.file("text"));
        cleans(&rig, source).await;
        assert_eq!(peer.last_shown(), Some(second.der));
    }
}
