//! Alertmanager calls the nodes: a receiver for each, or a template that makes the URL of the alert's labels.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{X, Y, always, fire, forky, trixie};
use crate::support::alertmanager::{Alertmanager, arguments};
use crate::support::daemon::free_port;
use crate::support::release::Release;
use crate::support::sim_node::SimNode;
use crate::support::wait::{PATIENCE, wait_for};

/// The nodes' addresses, and their first labels below the Service's name.
const ADDRESSES: [(&str, &str); 2] = [("127.0.0.2", "127-0-0-2"), ("127.0.0.3", "127-0-0-3")];
const SERVICE: &str = "crisweep.crisweep.svc.cluster.local";
const TOKEN: &str = "e2e-token";

/// Runs its other arguments with these files in place of the machine's, which only they see: the names of the
/// nodes, and a DNS server that does not answer.
const WITH_NAMES: &str = r#"
mount --bind "$0/hosts" /etc/hosts
[ ! -e /etc/resolv.conf ] || mount --bind "$0/resolv.conf" /etc/resolv.conf
exec "$@"
"#;

/// Two nodes that Alertmanagers call with a token, on one port of two addresses.
struct Fleet {
    dir: TempDir,
    port: u16,
    x: SimNode,
    y: SimNode,
}

impl Fleet {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let token = dir.path().join("token");
        fs::write(&token, TOKEN).unwrap();
        let sections = json!({ "web": {
            "bearer_token_files": { "act": [token] },
            "trusted_hosts": [format!(".{SERVICE}")],
        } });
        let port = free_port();
        let [x, y] = ADDRESSES.map(|(address, _)| format!("{address}:{port}"));
        let x = SimNode::start(X, x, &sections).await;
        let y = SimNode::start(Y, y, &sections).await;
        Self { dir, port, x, y }
    }

    /// Makes a receiver that calls a URL.
    fn receiver(&self, name: &str, url: &str) -> Value {
        let authorization = json!({ "credentials_file": self.dir.path().join("token") });
        let webhook = json!({
            "url": url, "send_resolved": true, "http_config": { "authorization": authorization },
        });
        json!({ "name": name, "webhook_configs": [webhook] })
    }

    /// A receiver for each node, a route that mutes, and one that is wrong: it calls Y about other nodes.
    fn static_config(&self) -> Value {
        let url = |address: &str| format!("http://{address}:{}/webhook/alertmanager", self.port);
        let [x, y] = ADDRESSES.map(|(address, _)| url(address));
        json!({
            "route": {
                "receiver": "people", "group_by": ["alertname", "node"], "group_wait": "0s", "group_interval": "1s",
                "routes": [
                    { "receiver": Y, "matchers": ["alertname=\"Wrong\""] },
                    { "receiver": X, "matchers": ["alertname=\"Muted\""], "mute_time_intervals": ["always"] },
                    { "receiver": X, "matchers": [format!("node=\"{X}\"")] },
                    { "receiver": Y, "matchers": [format!("node=\"{Y}\"")] },
                ],
            },
            "time_intervals": always(),
            "receivers": [self.receiver(X, &x), self.receiver(Y, &y), { "name": "people" }],
        })
    }

    /// The shipped URL, for these nodes' port.
    fn template_config(&self) -> Value {
        let url = shipped_url().replace(":20950", &format!(":{}", self.port));
        let node = json!({
            "receiver": "node", "matchers": ["crisweep=~\".+\"", "pod_host=~\".+\""],
            "group_by": ["alertname", "node", "pod_host"], "group_wait": "0s", "group_interval": "1s",
        });
        json!({
            "route": { "receiver": "people", "routes": [node] },
            "receivers": [self.receiver("node", &url), { "name": "people" }],
        })
    }

    async fn called_by_a_receiver_for_each_node(&self, release: &Release) {
        let dir = tempfile::tempdir().unwrap();
        let config = self.static_config();
        let calls = Alertmanager::start_release(dir.path(), &release.program, &config, &[]).await;
        fire(&calls, "Muted", X, &json!({})).await;
        fire(&calls, "Static", X, &json!({})).await;
        self.x.obeys("Static", "alert").await;
        assert_eq!(self.x.dead(), 0);
        self.x.did_not_obey("Muted").await;
        self.y.is_untouched().await;
        fire(&calls, "Wrong", X, &json!({})).await;
        self.y_refuses(1.0).await;
        self.x.did_not_obey("Wrong").await;
        // Refused with an answer that Alertmanager does not repeat.
        let failed = "alertmanager_notification_requests_failed_total{integration=\"webhook\"";
        assert!(calls.metric(failed).await < 1.0);
        fire(&calls, "Static", Y, &json!({})).await;
        self.y.obeys("Static", "alert").await;
        assert_eq!(self.x.passes_for("Static").await.unwrap().len(), 1);
    }

    /// Waits until Y has refused so many alerts because they are about another node.
    async fn y_refuses(&self, count: f64) {
        wait_for("Y to refuse an alert about X", PATIENCE, || async {
            let now = self.y.alerts("other-node").await;
            if now >= count {
                Ok(())
            } else {
                Err(now.to_string())
            }
        })
        .await;
        assert!(self.y.alerts("other-node").await < count + 1.0);
    }

    async fn called_by_the_shipped_template(&self, release: &Release) {
        let dir = tempfile::tempdir().unwrap();
        let wrapper = with_names(dir.path());
        let config = self.template_config();
        let calls =
            Alertmanager::start_release(dir.path(), &release.program, &config, &wrapper).await;
        let [x, y] = ADDRESSES.map(|(_, label)| json!({ "pod_host": label }));
        fire(&calls, "Template", X, &x).await;
        self.x.obeys("Template", "alert").await;
        self.y.did_not_obey("Template").await;
        fire(&calls, "Template", Y, &y).await;
        self.y.obeys("Template", "alert").await;
        assert_eq!(self.x.passes_for("Template").await.unwrap().len(), 1);
        let refused = self.y.alerts("other-node").await;
        fire(&calls, "WrongPod", X, &y).await;
        self.y_refuses(refused + 1.0).await;
        self.y.did_not_obey("WrongPod").await;
        no_label_takes_the_token_elsewhere(&calls).await;
    }
}

/// Returns the URL of the sample for the operator.
fn shipped_url() -> String {
    let sample =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/alertmanagerconfig.sample.yaml");
    let sample = fs::read_to_string(sample).unwrap();
    let line = sample.lines().find(|line| line.contains("http://{{"));
    let url = line.unwrap().trim().to_owned();
    assert!(url.contains(SERVICE), "{url}");
    url
}

/// Returns the words that run a program with the nodes' names.
fn with_names(dir: &Path) -> Vec<String> {
    let names = ADDRESSES.map(|(address, label)| format!("{address} {label}.{SERVICE}\n"));
    fs::write(
        dir.join("hosts"),
        format!("127.0.0.1 localhost\n{}", names.concat()),
    )
    .unwrap();
    fs::write(dir.join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
    let dir = dir.display().to_string();
    ["unshare", "--mount", "sh", "-ec", WITH_NAMES, &dir]
        .map(str::to_owned)
        .into()
}

/// Labels that would name another host, if the URL's host were the label alone or did not escape it.
async fn no_label_takes_the_token_elsewhere(calls: &Alertmanager) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let other = listener.local_addr().unwrap();
    let failed = "alertmanager_notification_requests_failed_total{integration=\"webhook\"";
    for host in [
        format!("{other}"),
        format!("{other}/"),
        format!("{other}#"),
        format!("x@{other}/?"),
        "localhost".to_owned(),
    ] {
        let before = calls.metric(failed).await;
        fire(calls, "Elsewhere", X, &json!({ "pod_host": host })).await;
        wait_for(&format!("a call for {host} to fail"), PATIENCE, || async {
            let now = calls.metric(failed).await;
            if now > before {
                Ok(())
            } else {
                Err(now.to_string())
            }
        })
        .await;
        let taken = listener.accept();
        assert!(taken.is_err(), "{host}: {taken:?}");
    }
}

/// Asserts that an Alertmanager without templates does not start with one.
fn refuses_the_template(release: &Release, config: &Value) {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("timeout");
    command.arg("60").arg(&release.program);
    let output = command
        .args(arguments(dir.path(), &address, config))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("in host name"), "{said}");
}

async fn called(release: Release) {
    let fleet = Fleet::start().await;
    fleet.called_by_a_receiver_for_each_node(&release).await;
    if release.has_templates() {
        fleet.called_by_the_shipped_template(&release).await;
    } else {
        refuses_the_template(&release, &fleet.template_config());
    }
}

#[tokio::test]
async fn the_installed_alertmanager_calls_the_nodes() {
    called(Release::installed()).await;
}

#[tokio::test]
async fn the_alertmanager_of_trixie_calls_the_nodes() {
    if let Some(release) = trixie() {
        called(release).await;
    }
}

#[tokio::test]
async fn the_alertmanager_of_forky_calls_the_nodes() {
    if let Some(release) = forky() {
        called(release).await;
    }
}
