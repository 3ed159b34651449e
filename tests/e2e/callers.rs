//! Callers of another network namespace, as they are on another machine: a real curl, a real Prometheus and a real
//! Alertmanager, each with every kind of credential, against the service behind TLS.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::alertmanager::program as alertmanager;
use crate::support::ca::{Ca, replace};
use crate::support::daemon::{Daemon, free_port};
use crate::support::wait::{PATIENCE, wait_for};

/// bcrypt of `e2e-secret`.
const HASH: &str = "$2b$10$abcdefghijklmnopqrstuuxzmkStS3uSmMugJ5ch2hL3I9ZSalY7y";
const NAME: &str = "alertmanager.example";

/// A network namespace with a link to this one, until it is dropped.
struct Namespace {
    name: String,
    /// The address of this side of the link.
    address: String,
}

fn ip(words: &str) -> Output {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {output:?}");
    output
}

impl Namespace {
    fn new() -> Self {
        let number = std::process::id() % 100_000;
        let (name, link) = (format!("crisweep-{number}"), format!("cs{number}"));
        let net = format!("10.213.{}", number % 250);
        ip(&format!("netns add {name}"));
        let namespace = Self {
            name: name.clone(),
            address: format!("{net}.1"),
        };
        ip(&format!(
            "link add {link} type veth peer name eth0 netns {name}"
        ));
        ip(&format!("addr add {net}.1/30 dev {link}"));
        ip(&format!("link set {link} up"));
        ip(&format!("-n {name} addr add {net}.2/30 dev eth0"));
        ip(&format!("-n {name} link set eth0 up"));
        ip(&format!("-n {name} link set lo up"));
        namespace
    }

    /// Starts a program inside.
    fn start(&self, name: &str, dir: &Path, program: &str, args: &[String]) -> Daemon {
        let mut all: Vec<String> = ["netns", "exec", &self.name, program]
            .map(str::to_owned)
            .into();
        all.extend_from_slice(args);
        Daemon::start(name, dir, "ip", &all)
    }

    /// Runs curl inside; returns the status and the body.
    fn curl(&self, args: &[&str]) -> (u16, String) {
        let output = Command::new("ip")
            .args([
                "netns",
                "exec",
                &self.name,
                "curl",
                "-sS",
                "-m",
                "20",
                "-w",
                "\n%{http_code}",
            ])
            .args(args)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = text.rsplit_once('\n').unwrap_or_default();
        (status.parse().unwrap_or_default(), body.to_owned())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its end of the link goes with it, and this end with that.
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.name])
            .status();
    }
}

/// The service behind TLS with every kind of credential.
struct Guarded {
    dir: TempDir,
    daemon: Daemon,
    namespace: Namespace,
    url: String,
}

impl Guarded {
    async fn start() -> Self {
        let (dir, namespace) = (tempfile::tempdir().unwrap(), Namespace::new());
        let file = |name: &str| dir.path().join(name);
        let ca = Ca::new();
        ca.write(&file("ca.crt"));
        ca.sign(&namespace.address)
            .write(&file("server.crt"), &file("server.key"));
        ca.sign(NAME)
            .write(&file("client.crt"), &file("client.key"));
        ca.sign("other.example")
            .write(&file("other.crt"), &file("other.key"));
        for (name, token) in [
            ("act", "act-token"),
            ("read", "read-token"),
            ("password", "e2e-secret"),
        ] {
            replace(&file(name), token);
        }
        let web = json!({
            "tls_server_config": {
                "cert_file": "server.crt", "key_file": "server.key", "client_ca_file": "ca.crt",
                "client_auth_type": "VerifyClientCertIfGiven", "client_allowed_sans": [NAME],
            },
            "basic_auth_users": { "ops": HASH },
        });
        fs::write(file("web.yml"), web.to_string()).unwrap();
        let port = free_port();
        let config = json!({
            "log": { "level": "info,crisweep::http=debug" },
            "node": { "name": "e2e-node" }, "brakes": { "cooldown": "0s", "max_passes_per_hour": 0 },
            "web": {
                "listen": [format!("{}:{port}", namespace.address)], "config_file": file("web.yml"),
                "bearer_token_files": { "read": [file("read")], "act": [file("act")] },
            },
        });
        let config_file = file("crisweep.yaml");
        fs::write(&config_file, config.to_string()).unwrap();
        let args = [
            "demo".to_owned(),
            format!("--config.file={}", config_file.display()),
        ];
        let daemon = Daemon::start(
            "crisweep",
            dir.path(),
            env!("CARGO_BIN_EXE_crisweep"),
            &args,
        );
        let url = format!("https://{}:{port}", namespace.address);
        let mut guarded = Self {
            dir,
            daemon,
            namespace,
            url,
        };
        wait_for("crisweep to be ready", PATIENCE, || {
            guarded.daemon.assert_alive();
            let (status, body) = guarded.curl(&[], "/-/ready");
            async move {
                if status == 200 {
                    Ok(())
                } else {
                    Err(format!("{status} {body}"))
                }
            }
        })
        .await;
        guarded
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn curl(&self, args: &[&str], path: &str) -> (u16, String) {
        let (ca, url) = (self.file("ca.crt"), format!("{}{path}", self.url));
        let mut all = vec!["--cacert", ca.to_str().unwrap()];
        all.extend_from_slice(args);
        all.push(&url);
        self.namespace.curl(&all)
    }

    fn passes(&self) -> Vec<Value> {
        let (_, body) = self.curl(
            &["-H", "authorization: Bearer read-token"],
            "/api/v1/passes",
        );
        let passes: Value = serde_json::from_str(&body).unwrap_or_default();
        passes["passes"].as_array().cloned().unwrap_or_default()
    }
}

#[tokio::test]
async fn curl_on_another_machine_may_do_what_its_credential_says() {
    let guarded = Guarded::start().await;
    let pair = |name: &str| {
        let path = |end: &str| guarded.file(&format!("{name}.{end}")).display().to_string();
        (path("crt"), path("key"))
    };
    let ((certificate, key), (other, other_key)) = (pair("client"), pair("other"));
    let none: &[&str] = &[];
    for (credential, read, act) in [
        (none, 401, 401),
        (&["-H", "authorization: Bearer wrong"], 401, 401),
        (&["-H", "authorization: Bearer read-token"], 200, 403),
        (&["-H", "authorization: Bearer act-token"], 200, 200),
        (&["-u", "ops:wrong"], 401, 401),
        (&["-u", "ops:e2e-secret"], 200, 200),
        (&["--cert", &certificate, "--key", &key], 200, 200),
        // Refused in the handshake.
        (&["--cert", &other, "--key", &other_key], 0, 0),
    ] {
        let reads = guarded.curl(credential, "/metrics");
        assert_eq!(reads.0, read, "{credential:?}: {}", reads.1);
        let post = [&["-X", "POST"], credential].concat();
        let acts = guarded.curl(&post, "/gc?dry_run=true&wait=60s");
        assert_eq!(acts.0, act, "{credential:?}: {}", acts.1);
    }
    let plain = guarded.url.replace("https", "http");
    let told = guarded.namespace.curl(&[&plain]);
    assert_eq!(
        told,
        (400, "crisweep speaks TLS here: use https\n".to_owned())
    );
}

#[tokio::test]
async fn prometheus_on_another_machine_scrapes_with_a_token_over_tls() {
    let guarded = Guarded::start().await;
    let config = json!({
        "global": { "scrape_interval": "1s" },
        "scrape_configs": [{
            "job_name": "crisweep", "scheme": "https",
            "static_configs": [{ "targets": [guarded.url.trim_start_matches("https://")] }],
            "authorization": { "credentials_file": guarded.file("read") },
            "tls_config": { "ca_file": guarded.file("ca.crt") },
        }],
    });
    fs::write(guarded.file("prometheus.yml"), config.to_string()).unwrap();
    let args = [
        format!("--config.file={}", guarded.file("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", guarded.file("tsdb").display()),
        "--web.listen-address=127.0.0.1:9090".to_owned(),
    ];
    let _prometheus =
        guarded
            .namespace
            .start("prometheus", guarded.dir.path(), "prometheus", &args);
    wait_for("a good scrape", PATIENCE, || async {
        let query = "http://127.0.0.1:9090/api/v1/query?query=cri_up";
        let (_, body) = guarded.namespace.curl(&[query]);
        if body.contains(r#","1"]"#) {
            Ok(())
        } else {
            Err(body)
        }
    })
    .await;
    let log = guarded.daemon.log();
    assert!(log.contains("a client speaks HTTP/2"), "{log}");
    assert!(log.contains("https://"), "the demo's greeting: {log}");
}

/// Writes a configuration with a receiver for each kind of credential; returns Alertmanager's arguments.
fn alertmanager_args(guarded: &Guarded) -> [String; 4] {
    let tls = json!({ "ca_file": guarded.file("ca.crt") });
    let with_certificate = json!({
        "ca_file": guarded.file("ca.crt"), "cert_file": guarded.file("client.crt"),
        "key_file": guarded.file("client.key"),
    });
    let kinds = [
        (
            "token",
            json!({ "tls_config": tls, "authorization": { "credentials_file": guarded.file("act") } }),
        ),
        (
            "user",
            json!({ "tls_config": tls,
            "basic_auth": { "username": "ops", "password_file": guarded.file("password") } }),
        ),
        ("certificate", json!({ "tls_config": with_certificate })),
    ];
    let url = format!("{}/webhook/alertmanager", guarded.url);
    let receivers: Vec<Value> = kinds
        .iter()
        .map(|(kind, http)| json!({ "name": kind, "webhook_configs": [{ "url": url, "http_config": http }] }))
        .collect();
    let routes: Vec<Value> = kinds
        .iter()
        .map(|(kind, _)| json!({ "receiver": kind, "matchers": [format!("alertname=\"{kind}\"")] }))
        .collect();
    let config = json!({
        "route": { "receiver": "token", "group_wait": "0s", "group_interval": "1s", "routes": routes },
        "receivers": receivers,
    });
    fs::write(guarded.file("alertmanager.yml"), config.to_string()).unwrap();
    [
        format!(
            "--config.file={}",
            guarded.file("alertmanager.yml").display()
        ),
        format!("--storage.path={}", guarded.file("am").display()),
        "--web.listen-address=127.0.0.1:9093".to_owned(),
        "--cluster.listen-address=".to_owned(),
    ]
}

#[tokio::test]
async fn alertmanager_on_another_machine_sweeps_with_each_kind_of_credential() {
    let guarded = Guarded::start().await;
    let args = alertmanager_args(&guarded);
    let _daemon =
        guarded
            .namespace
            .start("alertmanager", guarded.dir.path(), alertmanager(), &args);
    for (kind, name) in [("token", "act"), ("user", "ops"), ("certificate", NAME)] {
        let labels = json!({ "alertname": kind, "node": "e2e-node", "crisweep": "images" });
        let alerts = json!([{ "labels": labels }]).to_string();
        wait_for("Alertmanager to take the alert", PATIENCE, || async {
            let post = [
                "-H",
                "content-type: application/json",
                "-d",
                &alerts,
                "http://127.0.0.1:9093/api/v2/alerts",
            ];
            let (status, body) = guarded.namespace.curl(&post);
            if status == 200 {
                Ok(())
            } else {
                Err(format!("{status} {body}"))
            }
        })
        .await;
        let by = json!({ "kind": kind, "name": name });
        wait_for("a pass for the alert", PATIENCE, || async {
            let passes = guarded.passes();
            let found =
                |pass: &&Value| pass["trigger"]["alert"]["name"] == kind && pass["state"] == "done";
            match passes.iter().find(found) {
                Some(pass)
                    if pass["trigger"]["by"] == by
                        && pass["trigger"]["alert"]["receiver"] == kind =>
                {
                    Ok(())
                }
                other => Err(format!("{other:?}\n{}", guarded.daemon.log_tail())),
            }
        })
        .await;
    }
}
