//! Who may read and who may act: every path with every credential from every kind of peer, over real sockets.

mod http2;
mod table;
mod token_review;
mod unix_socket;
mod web_config;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::wait::until_true;
use crate::support::{Answer, Rig, nodes};

const READ_TOKEN: &str = "token-that-may-read";
const ACT_TOKEN: &str = "token-that-may-act";

/// Writes the two token files and returns the settings that name them.
fn token_files(dir: &Path) -> Value {
    let write = |name: &str, token: &str| {
        let path = dir.join(name);
        fs::write(&path, format!("{token}\n")).unwrap();
        path
    };
    json!({
        "read": [write("prometheus.token", READ_TOKEN)],
        "act": [write("alertmanager.token", ACT_TOKEN)],
    })
}

fn with_token(rig: &Rig, method: &str, path: &str, token: &str) -> reqwest::RequestBuilder {
    rig.request(method, path).bearer_auth(token)
}

#[tokio::test]
async fn a_pass_names_the_token_and_the_receiver_that_asked_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let changes = json!({ "web": { "bearer_token_files": token_files(dir.path()) } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    let act = |path| with_token(&rig, "POST", path, ACT_TOKEN);
    let pass = Answer::of(act("/gc?dry_run=true&wait=60s")).await.json();
    let by = json!({ "kind": "token", "name": "alertmanager.token" });
    assert_eq!(pass["trigger"]["by"], by);
    let webhook = json!({ "version": "4", "receiver": "crisweep-node-1", "alerts": [{
        "status": "firing", "labels": { "alertname": "Full", "crisweep": "containers" },
        "startsAt": "2026-01-01T00:00:00Z", "fingerprint": "f" }] });
    let answer = Answer::of(act("/webhook/alertmanager").json(&webhook)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let id = answer.json()["passes"][0].as_str().unwrap().to_owned();
    let path = format!("/api/v1/passes/{id}");
    let pass = Answer::of(with_token(&rig, "GET", &path, READ_TOKEN))
        .await
        .json();
    assert_eq!(pass["trigger"]["by"], by);
    assert_eq!(pass["trigger"]["alert"]["receiver"], "crisweep-node-1");
    assert!(!rig.log_text().contains(ACT_TOKEN));
}

#[tokio::test]
async fn each_request_that_acts_is_counted_by_what_proved_its_caller_and_a_refused_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let act = token_files(dir.path())["act"].clone();
    for (changes, caller) in [
        (json!({}), "uid"),
        (
            json!({ "web": { "bearer_token_files": { "act": act } } }),
            "token",
        ),
    ] {
        let rig = Rig::start(nodes::litter(1), changes).await;
        let before = rig.metrics().await;
        let series = ["uid", "token"].map(|it| format!("crisweep_acts_total{{caller=\"{it}\"}}"));
        let ask = async |token: &str| {
            let request = with_token(&rig, "POST", "/gc?dry_run=true", token);
            let by_page = request
                .try_clone()
                .unwrap()
                .header("origin", "http://evil.example");
            assert_eq!(Answer::of(by_page).await.status, 403);
            Answer::of(request).await.status
        };
        assert_eq!(ask(ACT_TOKEN).await, 202);
        assert_eq!(ask("wrong").await, if caller == "uid" { 202 } else { 401 });
        let page = rig.metrics().await;
        for of in &series {
            let more = page.get(of).unwrap() - before.get(of).unwrap();
            let wanted = match (of.contains(caller), caller) {
                (false, _) => 0.0,
                (true, "uid") => 2.0,
                (true, _) => 1.0,
            };
            assert!((more - wanted).abs() < 0.5, "{caller} {of}: {more}");
        }
    }
}

#[tokio::test]
async fn a_refused_webhook_is_counted_and_logged_without_its_token() {
    let dir = tempfile::tempdir().unwrap();
    let changes =
        json!({ "web": { "bearer_token_files": { "act": token_files(dir.path())["act"] } } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    for token in ["wrong-token", READ_TOKEN] {
        let answer = Answer::of(with_token(&rig, "POST", "/webhook/alertmanager", token)).await;
        answer.refused(401, "the bearer token is not known");
        let challenge = answer.header("www-authenticate");
        assert_eq!(challenge, Some("Bearer realm=\"crisweep\""));
    }
    let page = rig.metrics().await;
    page.is("crisweep_alerts_total{result=\"refused\"}", 2.0);
    until_true("the log's thread has written both", || {
        rig.logged("refused").len() == 2
    })
    .await;
    assert!(!rig.log_text().contains("wrong-token"));
}

#[tokio::test]
async fn a_reload_takes_new_token_files_and_refuses_unusable_ones() {
    let dir = tempfile::tempdir().unwrap();
    let files = token_files(dir.path());
    let mut rig = Rig::start(nodes::litter(1), json!({})).await;
    rig.configure(&json!({ "web": { "bearer_token_files": { "act": files["act"] } } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    rig.post("/gc").await.refused(401, "needs a credential");
    rig.configure(&json!({ "web": { "bearer_token_files": { "act": ["/nowhere/token"] } } }));
    let reload = || with_token(&rig, "POST", "/-/reload", ACT_TOKEN);
    Answer::of(reload()).await.refused(
        400,
        "web.bearer_token_files.act: cannot read /nowhere/token",
    );
    let allowed = Answer::of(with_token(&rig, "POST", "/gc?dry_run=true", ACT_TOKEN)).await;
    assert_eq!(allowed.status, 202);
}

#[tokio::test]
async fn the_service_does_not_start_with_an_unusable_token_file() {
    let dir = tempfile::tempdir().unwrap();
    let files = token_files(dir.path());
    let shared = dir.path().join("alertmanager.token");
    for (files, words) in [
        (
            json!({ "act": [dir.path().join("missing")] }),
            "cannot read",
        ),
        (
            json!({ "act": files["act"], "read": [shared] }),
            "hold the same token",
        ),
    ] {
        let config = dir.path().join("crisweep.json.yaml");
        let text = json!({
            "web": { "listen": ["127.0.0.1:0"], "bearer_token_files": files },
            "runtime": { "endpoint": dir.path().join("none.sock") }, "state": { "dir": null },
        });
        fs::write(&config, text.to_string()).unwrap();
        let output =
            crate::support::service::run(&["--config.file", config.to_str().unwrap()]).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{error}");
        assert!(!error.contains(ACT_TOKEN), "{error}");
    }
}

#[tokio::test]
async fn a_reload_of_an_emptied_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let changes = json!({ "web": { "bearer_token_files": token_files(dir.path()) } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    fs::write(rig.config_file(), "# a comment\n").unwrap();
    let answer = Answer::of(with_token(&rig, "POST", "/-/reload", ACT_TOKEN)).await;
    answer.refused(400, "the configuration file has become empty");
    rig.get("/metrics").await.refused(401, "needs a credential");
}

#[tokio::test]
async fn clients_that_do_not_read_leave_the_probes_their_places() {
    let rig = Rig::start(nodes::litter(1), json!({})).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        let request = "GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(3_000);
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(2_048).unwrap();
        let stream = socket.connect(rig.address.parse().unwrap()).await.unwrap();
        // As much as the service takes.
        drop(stream.try_write(request.as_bytes()));
        held.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(rig.get("/-/healthy").await.status, 200);
        assert_eq!(rig.get("/-/ready").await.status, 200);
    }
    drop(held);
}
