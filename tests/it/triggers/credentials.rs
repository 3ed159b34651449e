//! `alertmanager.http_client_config`: an Alertmanager that is not open to all.

use serde_json::{Value, json};

use super::pass_by;
use super::poll::{asks, polled, reply};
use crate::support::ca::{Ca, replace};
use crate::support::kubelet::PodServer;
use crate::support::{Rig, nodes};

/// Starts the service, which polls over TLS as `client` says.
async fn rig(alertmanager: &PodServer, client: Value) -> Rig {
    let section = json!({
        "poll": [format!("https://{}", alertmanager.address)],
        "interval": "100ms",
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
async fn an_alertmanager_with_a_certificate_of_another_ca_is_not_believed() {
    let (files, ca) = (tempfile::tempdir().unwrap(), Ca::new());
    let ca_file = files.path().join("ca.crt");
    Ca::new().write(&ca_file);
    let alertmanager = PodServer::secure(&ca, "localhost").await;
    alertmanager.reply(reply(&json!([asks("node-1")])));
    let client = json!({ "tls_config": { "ca_file": ca_file } });
    let rig = rig(&alertmanager, client).await;
    polled(&rig, "unreachable").await;
    let said = rig.logs(1, "the Alertmanager cannot be polled").await;
    assert!(said[0].to_string().contains("UnknownIssuer"), "{said:#?}");
    rig.nothing_was_touched();
    ca.write(&ca_file);
    assert_eq!(pass_by(&rig, "poll").await["outcome"], "completed");
}
