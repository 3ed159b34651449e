//! `alertmanager.http_client_config`: an Alertmanager that is not open to all.

use serde_json::{Value, json};

use super::pass_by;
use super::poll::{asks, polled, reply};
use crate::support::ca::{Ca, replace};
use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, nodes, until};

/// Starts the service, which polls over TLS as `client` says.
async fn rig(alertmanager: &PodServer, client: Value) -> Rig {
    let section = json!({
        "poll": [format!("https://{}", alertmanager.address)],
        "interval": "50ms",
        "http_client_config": client,
    });
    let changes = json!({ "alertmanager": section, "log": { "level": "info,hyper_util=trace,reqwest=trace" } });
    Rig::start(nodes::litter(2), changes).await
}

fn never_logged(rig: &Rig, secret: &str) {
    for line in rig.log() {
        assert!(!line.to_string().contains(secret), "{line}");
    }
}

#[tokio::test]
async fn a_token_from_a_file_is_shown_and_its_rotation_needs_no_reload() {
    let (files, ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let (ca_file, token) = (files.path().join("ca.crt"), files.path().join("token"));
    ca.write(&ca_file);
    replace(&token, "first-secret");
    let alertmanager = PodServer::secure(&ca, "localhost").await;
    alertmanager.reply(reply(&json!([])));
    alertmanager.expect_token("first-secret");
    let client = json!({
        "authorization": { "credentials_file": token },
        "tls_config": { "ca_file": ca_file },
    });
    let rig = rig(&alertmanager, client).await;
    polled(&rig, "ok").await;
    alertmanager.expect_token("second-secret");
    polled(&rig, "refused").await;
    alertmanager.reply(reply(&json!([asks("node-1")])));
    replace(&token, "second-secret");
    assert_eq!(pass_by(&rig, "poll").await["outcome"], "completed");
    never_logged(&rig, "first-secret");
    never_logged(&rig, "second-secret");
}

#[tokio::test]
async fn a_user_and_a_password_from_a_file_are_shown_and_a_redirect_gets_neither() {
    let (files, ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let (ca_file, password) = (files.path().join("ca.crt"), files.path().join("password"));
    ca.write(&ca_file);
    replace(&password, "the-secret");
    let alertmanager = PodServer::secure(&ca, "localhost").await;
    let elsewhere = PodServer::plain().await;
    elsewhere.reply(reply(&json!([asks("node-1")])));
    // crisweep:the-secret
    alertmanager.expect_authorization("Basic Y3Jpc3dlZXA6dGhlLXNlY3JldA==");
    let to = format!("http://{}/api/v2/alerts", elsewhere.address);
    alertmanager.reply(Reply::redirect(&to));
    let client = json!({
        "basic_auth": { "username": "crisweep", "password_file": password },
        "tls_config": { "ca_file": ca_file },
    });
    let rig = rig(&alertmanager, client).await;
    polled(&rig, "refused").await;
    assert_eq!(elsewhere.asked().len(), 0);
    rig.nothing_was_touched();
    alertmanager.reply(reply(&json!([asks("node-1")])));
    assert_eq!(pass_by(&rig, "poll").await["outcome"], "completed");
    never_logged(&rig, "the-secret");
}

#[tokio::test]
async fn a_client_certificate_is_shown_and_its_rotation_costs_no_request() {
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| files.path().join(name);
    let (servers, clients) = (Ca::new(), Ca::new());
    servers.write(&file("ca.crt"));
    clients.sign("crisweep").write(&file("crt"), &file("key"));
    let alertmanager = PodServer::plain().await;
    alertmanager.speak(servers.server_for("localhost", &clients));
    alertmanager.reply(reply(&json!([])));
    let tls = json!({
        "ca_file": file("ca.crt"), "cert_file": file("crt"), "key_file": file("key"),
    });
    let rig = rig(&alertmanager, json!({ "tls_config": tls })).await;
    let shown = |der: Vec<u8>| {
        let asked = alertmanager.asked();
        let last = asked.last().and_then(|asked| asked.certificate.clone());
        (last == Some(der)).then_some(())
    };
    polled(&rig, "ok").await;
    for _ in 0..5 {
        let next = clients.sign("crisweep");
        let before = alertmanager.asked().len();
        next.write_certificate(&file("crt"));
        until("polls with half a rotation", || async {
            (alertmanager.asked().len() > before + 2).then_some(())
        })
        .await;
        next.write(&file("crt"), &file("key"));
        until("the new certificate", || async { shown(next.der.clone()) }).await;
    }
    let page = rig.metrics().await;
    for result in ["unreachable", "refused", "malformed"] {
        let series = format!("crisweep_alertmanager_polls_total{{result=\"{result}\"}}");
        assert!(page.get(&series) < Some(1.0), "{result}");
    }
    alertmanager.reply(reply(&json!([asks("node-1")])));
    assert_eq!(pass_by(&rig, "poll").await["outcome"], "completed");
}

#[tokio::test]
async fn an_alertmanager_with_a_certificate_of_another_ca_is_not_believed() {
    let (files, ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let ca_file = files.path().join("ca.crt");
    Ca::new().write(&ca_file);
    let alertmanager = PodServer::secure(&ca, "localhost").await;
    alertmanager.reply(reply(&json!([asks("node-1")])));
    let client = json!({ "tls_config": { "ca_file": ca_file } });
    let rig = rig(&alertmanager, client).await;
    polled(&rig, "unreachable").await;
    let said = rig.logged("the Alertmanager cannot be polled");
    assert!(said[0].to_string().contains("UnknownIssuer"), "{said:#?}");
    rig.nothing_was_touched();
    ca.write(&ca_file);
    assert_eq!(pass_by(&rig, "poll").await["outcome"], "completed");
}
