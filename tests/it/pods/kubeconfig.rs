//! The API server of a kubeconfig file: certificates, tokens and plugins, in the file or beside it, and rotated.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::api_server::answer;
use super::{LITTER, cleans, fails, never_logged, status};
use crate::support::ca::{Ca, replace};
use crate::support::kubelet::{PodServer, Reply};
use crate::support::{Rig, nodes, until};

/// An API server, and the directory of a kubeconfig file for it.
struct Cluster {
    server: PodServer,
    servers: Ca,
    clients: Ca,
    files: TempDir,
}

impl Cluster {
    /// One that accepts tokens.
    async fn start() -> Self {
        let (files, servers, clients) = (tempfile::tempdir().unwrap(), Ca::new(), Ca::new());
        let server = PodServer::secure(&servers, "localhost").await;
        Self {
            server,
            servers,
            clients,
            files,
        }
    }

    /// One that accepts client certificates alone.
    async fn with_certificates() -> Self {
        let cluster = Self::start().await;
        let tls = cluster.servers.server_for("localhost", &cluster.clients);
        cluster.server.speak(tls);
        cluster
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn cluster(&self) -> Value {
        json!({
            "server": format!("https://{}", self.server.address),
            "certificate-authority-data": STANDARD.encode(self.servers.pem()),
        })
    }

    /// Writes the kubeconfig file with one context.
    fn write(&self, user: &Value) {
        self.write_all(&json!({
            "clusters": [{ "name": "c", "cluster": self.cluster() }],
            "users": [{ "name": "u", "user": user }],
            "contexts": [{ "name": "one", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "one",
        }));
    }

    fn write_all(&self, config: &Value) {
        let mut config = config.clone();
        config["apiVersion"] = json!("v1");
        config["kind"] = json!("Config");
        // JSON is YAML.
        replace(&self.file("kubeconfig"), &config.to_string());
    }

    /// Writes a plugin, a shell script.
    fn plugin(&self, script: &str) -> Value {
        let path = self.file("plugin");
        replace(&path, &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./plugin",
            "args": ["get-token"],
            "env": [{ "name": "REALM", "value": "blue" }],
            "interactiveMode": "IfAvailable",
        } })
    }

    /// Starts the service with it.
    async fn rig(&self) -> Rig {
        self.rig_with(&json!({})).await
    }

    /// The same with brakes of the fleet.
    async fn rig_with(&self, fleet: &Value) -> Rig {
        let pods = json!({ "source": "api-server", "file": null, "api_kubeconfig": self.file("kubeconfig") });
        let config = json!({ "pods": pods, "fleet": fleet });
        let rig = Rig::start(nodes::litter(LITTER), config).await;
        self.server
            .reply(Reply::json(&answer(&rig.sim).to_string()));
        rig
    }

    fn last_shown(&self) -> Option<Vec<u8>> {
        self.server.asked().pop().unwrap().certificate
    }
}

fn credential(status: &Value) -> String {
    let printed = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    format!("cat <<'END'\n{printed}\nEND")
}

#[tokio::test]
async fn a_certificate_within_the_file_is_shown() {
    let cluster = Cluster::with_certificates().await;
    let signed = cluster.clients.sign("system:node:node-1");
    let (certificate, key) = signed.pem();
    cluster.write(&json!({
        "client-certificate-data": STANDARD.encode(certificate),
        "client-key-data": STANDARD.encode(key),
    }));
    let rig = cluster.rig().await;
    let known = status(&rig).await;
    let chosen = known["chosen"].as_str().unwrap();
    assert!(chosen.contains("pods.source"), "{chosen}");
    cleans(&rig, "api-server").await;
    assert_eq!(cluster.last_shown(), Some(signed.der.clone()));
    assert_eq!(cluster.server.asked()[0].authorization, None);
}

#[tokio::test]
async fn a_certificate_beside_the_file_is_shown_and_its_rotation_is_noticed() {
    let cluster = Cluster::with_certificates().await;
    let pem = cluster.file("kubelet-client-current.pem");
    let first = cluster.clients.sign("first");
    first.write(&pem, &pem);
    // As the kubelet's own file: relative here, absolute there.
    cluster.write(&json!({
        "client-certificate": "kubelet-client-current.pem",
        "client-key": "kubelet-client-current.pem",
    }));
    let rig = cluster.rig().await;
    assert_eq!(status(&rig).await["known"], true);
    assert_eq!(cluster.last_shown(), Some(first.der));
    let second = cluster.clients.sign("second");
    second.write(&pem, &pem);
    assert_eq!(status(&rig).await["known"], true);
    assert_eq!(cluster.last_shown(), Some(second.der));
    cleans(&rig, "api-server").await;
}

#[tokio::test]
async fn the_former_users_certificate_is_not_shown_for_another_user() {
    let cluster = Cluster::with_certificates().await;
    let first = cluster.clients.sign("first");
    first.write(&cluster.file("first"), &cluster.file("first"));
    let user = |file: &str| json!({ "client-certificate": file, "client-key": file });
    cluster.write(&user("first"));
    let rig = cluster.rig().await;
    assert_eq!(status(&rig).await["known"], true);
    let asked = cluster.server.asked().len();
    cluster.write(&user("absent"));
    fails(&rig, "absent: No such file").await;
    assert_eq!(cluster.server.asked().len(), asked);
}

#[tokio::test]
async fn a_token_file_is_read_again_and_goes_before_a_token() {
    let cluster = Cluster::start().await;
    replace(&cluster.file("token"), "first-secret\n");
    cluster.server.expect_token("first-secret");
    cluster.write(&json!({ "tokenFile": "token", "token": "old-secret" }));
    let rig = cluster.rig().await;
    assert_eq!(status(&rig).await["known"], true);
    cluster.server.expect_token("second-secret");
    fails(&rig, "rejects the user of").await;
    fails(&rig, "pods.api_kubeconfig").await;
    replace(&cluster.file("token"), "second-secret");
    cleans(&rig, "api-server").await;
    cluster.write(&json!({ "token": "third-secret" }));
    cluster.server.expect_token("third-secret");
    assert_eq!(status(&rig).await["known"], true);
    never_logged(&rig, "-secret");
}

#[tokio::test]
async fn the_context_is_the_files_or_the_configured_one() {
    let cluster = Cluster::start().await;
    cluster.server.expect_token("the-token");
    let elsewhere = json!({ "server": "https://localhost:1" });
    cluster.write_all(&json!({
        "clusters": [
            { "name": "other", "cluster": elsewhere },
            { "name": "c", "cluster": cluster.cluster() },
        ],
        "users": [{ "name": "u", "user": { "token": "the-token" } }],
        "contexts": [
            { "name": "other", "context": { "cluster": "other", "user": "u" } },
            { "name": "here", "context": { "cluster": "c", "user": "u" } },
            { "name": "broken", "context": { "cluster": "gone", "user": "u" } },
        ],
        "current-context": "other",
    }));
    let mut rig = cluster.rig().await;
    fails(&rig, "look at server in").await;
    for (context, words) in [
        (
            "none",
            "it has no context \"none\": it has other, here, broken (pods.api_context)",
        ),
        (
            "broken",
            "its context names the cluster \"gone\", which it does not have",
        ),
    ] {
        rig.configure(&json!({ "pods": { "api_context": context } }));
        assert_eq!(rig.post("/-/reload").await.status, 200);
        fails(&rig, words).await;
    }
    rig.configure(&json!({ "pods": { "api_context": "here" } }));
    assert_eq!(rig.post("/-/reload").await.status, 200);
    cleans(&rig, "api-server").await;
}

#[tokio::test]
async fn the_tls_server_name_takes_the_hosts_place_in_the_certificate_alone() {
    let cluster = Cluster::start().await;
    cluster.server.show(&cluster.servers, "kubernetes.default");
    let write = |name: &str| {
        let mut named = cluster.cluster();
        named["tls-server-name"] = json!(name);
        cluster.write_all(&json!({
            "clusters": [{ "name": "c", "cluster": named }],
            "users": [{ "name": "u", "user": { "token": "the-token" } }],
            "contexts": [{ "name": "one", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "one",
        }));
    };
    write("other.default");
    let rig = cluster.rig().await;
    fails(&rig, "look at tls-server-name in").await;
    assert_eq!(cluster.server.asked().len(), 0);
    write("kubernetes.default");
    // The first request to another server fails for that alone.
    rig.gc("").await;
    cleans(&rig, "api-server").await;
    let asked = cluster.server.asked().pop().unwrap();
    assert_eq!(asked.host, Some(cluster.server.address.clone()));
}

/// What the former server said, and since when, must not count for the new one.
#[tokio::test]
async fn another_server_in_the_file_fails_the_source_once() {
    let (cluster, other) = (Cluster::start().await, Cluster::start().await);
    let user = json!({ "token": "the-token" });
    cluster.write(&user);
    let rig = cluster.rig().await;
    assert_eq!(status(&rig).await["known"], true);
    other
        .server
        .reply(Reply::json(&answer(&rig.sim).to_string()));
    cluster.write_all(&json!({
        "clusters": [{ "name": "c", "cluster": other.cluster() }],
        "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "one", "context": { "cluster": "c", "user": "u" } }],
        "current-context": "one",
    }));
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    assert!(
        errors.contains("names another server than before"),
        "{pass:#}"
    );
    rig.nothing_was_touched();
    cleans(&rig, "api-server").await;
}

#[tokio::test]
async fn a_file_that_cannot_be_used_fails_the_source_by_name() {
    let cluster = Cluster::start().await;
    cluster.write(&json!({ "token": "the-secret" }));
    let rig = cluster.rig().await;
    let file = cluster.file("kubeconfig").display().to_string();
    let with = |cluster: &Cluster, key: &str, value: Value| {
        let mut changed = cluster.cluster();
        changed[key] = value;
        cluster.write_all(&json!({
            "clusters": [{ "name": "c", "cluster": changed }],
            "users": [{ "name": "u", "user": { "token": "the-secret" } }],
            "contexts": [{ "name": "one", "context": { "cluster": "c", "user": "u" } }],
            "current-context": "one",
        }));
    };
    for (key, value, words) in [
        (
            "proxy-url",
            json!("http://localhost:1"),
            "proxy-url is refused",
        ),
        (
            "insecure-skip-tls-verify",
            json!(true),
            "insecure-skip-tls-verify is refused",
        ),
        (
            "server",
            json!("http://example.com"),
            "must be an https:// URL",
        ),
        (
            "tls-server-name",
            json!("127.0.0.1"),
            "tls-server-name must be a host's name, not an address",
        ),
        (
            "certificate-authority-data",
            json!("%"),
            "certificate-authority-data is not in base64",
        ),
        (
            "certificate-authority-data",
            json!("eA=="),
            "holds no CA certificate in PEM",
        ),
        (
            "certificate-authority-data",
            json!(STANDARD.encode(Ca::new().pem())),
            "look at certificate-authority in",
        ),
    ] {
        with(&cluster, key, value);
        // With another CA the first request after the change fails for that alone.
        rig.gc("").await;
        fails(&rig, words).await;
        fails(&rig, &file).await;
    }
    never_logged(&rig, "the-secret");
}

#[tokio::test]
async fn a_user_that_crisweep_cannot_be_and_a_broken_file_fail_the_source() {
    let cluster = Cluster::start().await;
    cluster.write(&json!({ "token": "the-secret" }));
    let rig = cluster.rig().await;
    let path = cluster.file("kubeconfig");
    for (user, words) in [
        (
            json!({ "as": "root", "token": "the-secret" }),
            "as is refused",
        ),
        (
            json!({ "auth-provider": { "name": "gcp" } }),
            "auth-provider is refused",
        ),
        (
            json!({ "username": "u", "password": "the-secret" }),
            "username is refused",
        ),
        (
            json!({ "client-certificate": "crt" }),
            "a client-certificate and no client-key",
        ),
        (
            json!({ "exec": { "command": "x" } }),
            "exec.apiVersion must be",
        ),
    ] {
        cluster.write(&user);
        fails(&rig, words).await;
    }
    replace(
        &path,
        "users: [{name: u, user: {token: the-secret, token: {}}}]",
    );
    fails(&rig, "it is no kubeconfig: line 1").await;
    std::fs::remove_file(&path).unwrap();
    fails(&rig, "No such file").await;
    cluster.write(&json!({ "token": "the-secret" }));
    cleans(&rig, "api-server").await;
    never_logged(&rig, "the-secret");
}

#[tokio::test]
async fn a_plugin_is_told_what_it_needs_and_its_token_is_kept_until_it_ends() {
    let cluster = Cluster::start().await;
    cluster.server.expect_token("blue-get-token-secret");
    let runs = cluster.file("runs");
    let script = format!(
        "echo \"$KUBERNETES_EXEC_INFO\" >> '{}'\n{}",
        runs.display(),
        credential(&json!({ "token": "TOKEN", "expirationTimestamp": "2999-01-01T00:00:00Z" }))
            .replace("'END'", "END")
            .replace("TOKEN", "$REALM-$1-secret")
    );
    cluster.write(&cluster.plugin(&script));
    let rig = cluster.rig().await;
    cleans(&rig, "api-server").await;
    let told = std::fs::read_to_string(&runs).unwrap();
    assert_eq!(told.lines().count(), 1, "{told}");
    let told: Value = serde_json::from_str(told.trim()).unwrap();
    assert_eq!(
        told,
        json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "spec": { "interactive": false } })
    );
    never_logged(&rig, "-secret");
}

#[tokio::test]
async fn a_plugin_may_give_a_certificate_and_is_run_again_after_a_401() {
    let cluster = Cluster::with_certificates().await;
    let signed = cluster.clients.sign("crisweep");
    let (certificate, key) = signed.pem();
    let status_with = |token: &str| {
        credential(
            &json!({ "token": token, "clientCertificateData": certificate, "clientKeyData": key }),
        )
    };
    cluster.server.expect_token("first");
    cluster.write(&cluster.plugin(&status_with("first")));
    let rig = cluster.rig().await;
    assert_eq!(status(&rig).await["known"], true);
    assert_eq!(cluster.last_shown(), Some(signed.der.clone()));
    cluster.server.expect_token("second");
    cluster.plugin(&status_with("second"));
    // Two runs are at least five seconds apart.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(status(&rig).await["known"], false);
    cleans(&rig, "api-server").await;
}

#[tokio::test]
async fn a_plugin_that_fails_or_prints_something_else_fails_the_source() {
    let cluster = Cluster::start().await;
    let wrong = json!({ "apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
        "status": { "token": "the-secret" } });
    for (script, words) in [
        (
            "echo 'no session: log in' >&2; exit 3".to_owned(),
            "failed (exit status: 3); the log says more",
        ),
        (
            "echo the-secret".to_owned(),
            "printed no ExecCredential: that is no such JSON",
        ),
        (
            format!("echo '{wrong}'"),
            "it must be of client.authentication.k8s.io/v1",
        ),
        (
            credential(&json!({})),
            "it has neither a token nor a certificate",
        ),
        (
            credential(&json!({ "token": "x", "clientKeyData": "y" })),
            "a certificate and its key come together",
        ),
        (
            credential(&json!({ "token": "x", "expirationTimestamp": "soon" })),
            "expirationTimestamp is no time",
        ),
        (
            "head -c 300000 /dev/zero".to_owned(),
            "printed more than 262144 bytes",
        ),
        ("kill -9 $$".to_owned(), "failed (signal: 9"),
    ] {
        let user = cluster.plugin(&script);
        cluster.write(&user);
        let rig = cluster.rig().await;
        fails(&rig, words).await;
        fails(&rig, "the credential plugin").await;
        never_logged(&rig, "the-secret");
    }
    assert_eq!(cluster.server.asked().len(), 0);
}

#[tokio::test]
async fn what_a_plugin_says_and_its_hint_are_in_the_log_and_no_reader_sees_them() {
    let cluster = Cluster::start().await;
    // It asks the same API server.
    let fleet = json!({ "namespace": "gc", "hold_config_map": "brakes" });
    let mut absent = cluster.plugin("echo 'no (session): for ops' >&2; kill -9 $$");
    let failing = absent.clone();
    absent["exec"]["command"] = json!("./absent");
    absent["exec"]["installHint"] = json!("ask ops for it");
    for (user, shown, said) in [
        (
            failing,
            "failed (signal: 9 (SIGKILL)); the log says more",
            "no (session): for ops",
        ),
        (
            absent,
            "cannot be started: No such file or directory (os error 2); the log says more",
            "ask ops for it",
        ),
    ] {
        cluster.write(&user);
        let rig = cluster.rig_with(&fleet).await;
        fails(&rig, shown).await;
        until("the switch shows it too", || async {
            let status = rig.get("/api/v1/status").await.json();
            let error = status["fleet"]["hold"]["error"].as_str()?.to_owned();
            error.contains(shown).then_some(())
        })
        .await;
        let passes = rig.get("/api/v1/passes").await.text;
        for path in ["/api/v1/status", "/api/v1/plan", "/metrics", "/"] {
            let text = rig.get(path).await.text;
            assert!(
                !text.contains("for ops") && !text.contains("ops for"),
                "{path}: {text}"
            );
        }
        assert!(
            !passes.contains("for ops") && !passes.contains("ops for"),
            "{passes}"
        );
        assert!(rig.log_text().contains(said), "{said}");
    }
    assert_eq!(cluster.server.asked().len(), 0);
}

#[tokio::test]
async fn a_plugin_that_hangs_holds_no_look_and_ends_with_what_it_started() {
    let cluster = Cluster::start().await;
    let child = cluster.file("child");
    let script = format!("sleep 1000 & echo $! > '{}'\nwait", child.display());
    cluster.write(&cluster.plugin(&script));
    let pods = json!({ "source": "api-server", "file": null, "api_kubeconfig": cluster.file("kubeconfig") });
    let changes = json!({ "runtime": { "timeout": "2s" }, "pods": pods });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    let began = Instant::now();
    let pass = rig.gc("").await;
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    assert!(
        pass["errors"].to_string().contains("gave no answer in"),
        "{pass:#}"
    );
    rig.nothing_was_touched();
    assert!(began.elapsed() < Duration::from_secs(30));
    let child = std::fs::read_to_string(&child).unwrap();
    let process = PathBuf::from("/proc").join(child.trim());
    let began = Instant::now();
    while is_running(&process) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the plugin's child still runs"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_plugin_whose_disk_hangs_at_its_start_holds_no_pass() {
    let cluster = Cluster::start().await;
    cluster.write(&cluster.plugin("exit 1"));
    let _held = hold(&cluster.file("plugin")).await;
    let pods = json!({ "source": "api-server", "file": null, "api_kubeconfig": cluster.file("kubeconfig") });
    // Longer than a plugin may take to start.
    let changes = json!({ "runtime": { "timeout": "30s" }, "pods": pods });
    let rig = Rig::start(nodes::litter(LITTER), changes).await;
    let began = Instant::now();
    let pass = rig.gc("").await;
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(pass["outcome"], "partial", "{pass:#}");
    let errors = pass["errors"].to_string();
    assert!(
        errors.contains("cannot be started: the file system"),
        "{pass:#}"
    );
    rig.nothing_was_touched();
}

/// Makes every start of a program wait, as a disk that hangs does, while the returned process runs: it has a write
/// lease on the file and does not give it back.
async fn hold(program: &std::path::Path) -> tokio::process::Child {
    const SCRIPT: &str = r#"
        $SIG{IO} = "IGNORE";
        open(my $file, "+<", $ARGV[0]) or die "open: $!";
        fcntl($file, 1024, 1) or die "F_SETLEASE: $!";
        $| = 1;
        print "held\n";
        sleep 120;
    "#;
    let mut perl = tokio::process::Command::new("perl");
    perl.args(["-e", SCRIPT]).arg(program);
    perl.stdout(std::process::Stdio::piped()).kill_on_drop(true);
    let mut perl = perl.spawn().unwrap();
    let mut said = [0; 5];
    let out = perl.stdout.as_mut().unwrap();
    tokio::io::AsyncReadExt::read_exact(out, &mut said)
        .await
        .expect("the lease is given");
    perl
}

/// Says whether a process runs: one that nobody has waited for yet does not.
fn is_running(process: &std::path::Path) -> bool {
    let state = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    let state = state.rsplit(") ").next().unwrap_or_default();
    !(state.is_empty() || state.starts_with('Z'))
}
