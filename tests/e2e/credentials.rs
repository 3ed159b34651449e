//! An Alertmanager behind TLS and credentials is polled: `alertmanager.http_client_config`.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::alertmanager::{Alertmanager, curl};
use crate::support::ca::{Ca, replace};
use crate::support::crisweep::Crisweep;
use crate::support::wait::{PATIENCE, wait_for};

/// bcrypt of `e2e-secret`.
const HASH: &str = "$2b$10$abcdefghijklmnopqrstuuxzmkStS3uSmMugJ5ch2hL3I9ZSalY7y";

/// Starts an Alertmanager with `web` and the demo with `client`, and asserts that an alert at the former brings a
/// pass of the latter.
async fn is_polled(dir: &Path, web: Value, client: Value) {
    let alertmanager = Alertmanager::start_behind(dir, &web, &client).await;
    let labels = json!({ "alertname": "EndToEnd", "node": "e2e-node", "crisweep": "images" });
    let alerts = json!([{ "labels": labels }]).to_string();
    let url = alertmanager.secure_url("/api/v2/alerts");
    let is_json = "content-type: application/json";
    let post = ["--header", is_json, "--data", &alerts, &url];
    curl(&client, &post).await.unwrap();
    let url = alertmanager.secure_url("");
    let sections = json!({
        "node": { "name": "e2e-node" },
        "alertmanager": { "poll": [url], "interval": "1s", "http_client_config": client },
    });
    let demo = Crisweep::demo(dir, sections).await;
    wait_for("a pass for the alert", PATIENCE, || async {
        let passes = demo.get("/api/v1/passes").await?;
        let mut all = passes["passes"].as_array().unwrap().iter();
        if all.any(|pass| pass["trigger"]["alert"]["name"] == "EndToEnd") {
            Ok(())
        } else {
            Err(format!("{passes}\n{}", demo.log_tail()))
        }
    })
    .await;
}

#[tokio::test]
async fn an_alertmanager_behind_tls_and_a_password_is_polled() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let ca = Ca::new();
    ca.write(&file("ca.crt"));
    ca.sign("localhost").write(&file("am.crt"), &file("am.key"));
    replace(&file("password"), "e2e-secret\n");
    let web = json!({
        "tls_server_config": { "cert_file": file("am.crt"), "key_file": file("am.key") },
        "basic_auth_users": { "crisweep": HASH },
    });
    let client = json!({
        "basic_auth": { "username": "crisweep", "password_file": file("password") },
        "tls_config": { "ca_file": file("ca.crt") },
    });
    is_polled(dir.path(), web, client).await;
}

#[tokio::test]
async fn an_alertmanager_that_asks_for_a_client_certificate_is_polled() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (servers, clients) = (Ca::new(), Ca::new());
    servers.write(&file("ca.crt"));
    clients.write(&file("clients.crt"));
    servers
        .sign("localhost")
        .write(&file("am.crt"), &file("am.key"));
    clients
        .sign("crisweep")
        .write(&file("own.pem"), &file("own.pem"));
    let web = json!({
        "tls_server_config": {
            "cert_file": file("am.crt"),
            "key_file": file("am.key"),
            "client_ca_file": file("clients.crt"),
            "client_auth_type": "RequireAndVerifyClientCert",
        },
    });
    let tls = json!({
        "ca_file": file("ca.crt"), "cert_file": file("own.pem"), "key_file": file("own.pem"),
    });
    is_polled(dir.path(), web, json!({ "tls_config": tls })).await;
}
