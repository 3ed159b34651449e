//! The service itself, as a user runs it: the binary with a configuration file.

use std::fs;
use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::daemon::{Daemon, free_port};
use super::node::Node;
use super::prometheus::http;
use super::wait::{PATIENCE, wait_for};

/// The node's name in configuration and alerts.
pub(crate) const NODE_NAME: &str = "e2e-node";

/// A running service.
pub(crate) struct Crisweep {
    daemon: Daemon,
    /// Its address, `host:port`.
    pub(crate) address: String,
}

impl Crisweep {
    /// Starts it on a node, with the pods of `pods_file`; waits until it is ready.
    ///
    /// It keeps no dead container or sandbox that it need not keep, and rests between batches, so that
    /// batches can be distinguished from outside.
    pub(crate) async fn start(node: &Node, pods_file: &Path) -> Self {
        Self::start_with(node, pods_file, json!({})).await
    }

    /// The same with other sections of the configuration in place of the usual ones.
    pub(crate) async fn start_with(node: &Node, pods_file: &Path, sections: Value) -> Self {
        let (address, config) = usual(node, pods_file, &sections);
        Self::run(node.dir(), address, &config, &[]).await
    }

    /// Starts it among the node's processes and files, with the kubelet's log directories and with these sections in
    /// place of the usual ones; waits until it is ready.
    pub(crate) async fn start_on_node(node: &Node, sections: Value) -> Self {
        let (address, mut config) = usual(node, Path::new("/"), &sections);
        config["policy"]["logs"] = json!({ "grace": "5s" });
        // A section `web` of the test has no address.
        config["web"]["listen"] = json!([address]);
        let command = command(node.dir(), &config, &[]);
        let mut crisweep = Self {
            daemon: Daemon::start_inside(&node.namespaces(), "crisweep", node.dir(), &command),
            address,
        };
        crisweep.ready().await;
        crisweep
    }

    /// Starts it on the demo's node, with sections of a configuration; waits until it is ready.
    pub(crate) async fn demo(dir: &Path, mut config: Value) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        config["web"] = json!({ "listen": [address] });
        Self::run(dir, address, &config, &["demo"]).await
    }

    /// Starts it with a whole configuration, in which it listens on `address`; waits until it is ready.
    pub(crate) async fn run(dir: &Path, address: String, config: &Value, words: &[&str]) -> Self {
        let command = command(dir, config, words);
        let mut crisweep = Self {
            daemon: Daemon::start("crisweep", dir, &command[0], &command[1..]),
            address,
        };
        crisweep.ready().await;
        crisweep
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Reads a page of JSON.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, String> {
        http::json(&self.url(path), &[]).await
    }

    /// Returns the body of an answer with status 200.
    pub(crate) async fn bytes(&self, path: &str) -> Vec<u8> {
        let answer = http::client().get(self.url(path)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        answer.bytes().await.unwrap().to_vec()
    }

    /// Reads the metrics page.
    pub(crate) async fn metrics(&self) -> String {
        let answer = http::client()
            .get(self.url("/metrics"))
            .send()
            .await
            .unwrap();
        answer.text().await.unwrap()
    }

    /// Posts nothing to a path; returns the status and the JSON answer.
    pub(crate) async fn post(&self, path: &str) -> (StatusCode, Value) {
        let answer = http::client().post(self.url(path)).send().await.unwrap();
        (answer.status(), answer.json().await.unwrap())
    }

    /// Starts a pass and returns it when it is done, however long that takes while it makes progress.
    ///
    /// # Panics
    ///
    /// If nothing changes in it for [`PATIENCE`].
    pub(crate) async fn pass(&self, query: &str) -> Value {
        let (status, mut pass) = self.post(&format!("/gc?{query}")).await;
        assert_eq!(status.as_u16(), 202, "{pass}\n{}", self.log_tail());
        let path = format!("/api/v1/passes/{}", pass["id"].as_str().unwrap());
        while pass["state"] != "done" {
            pass = wait_for("the pass to go on", PATIENCE, || async {
                let now = self.get(&path).await?;
                if now == pass {
                    Err(format!("{now}\n{}", self.log_tail()))
                } else {
                    Ok(now)
                }
            })
            .await;
        }
        pass
    }

    /// Returns the end of its log, for messages.
    pub(crate) fn log_tail(&self) -> String {
        self.daemon.log_tail()
    }

    async fn ready(&mut self) {
        let url = self.url("/-/ready");
        wait_for("crisweep to be ready", PATIENCE, || {
            self.daemon.assert_alive();
            let tail = self.daemon.log_tail();
            let url = url.clone();
            async move {
                http::ready(&url)
                    .await
                    .map_err(|error| format!("{error}\n{tail}"))
            }
        })
        .await;
    }
}

/// Returns an address, and the configuration of a service there, with these sections in place of the usual ones.
fn usual(node: &Node, pods_file: &Path, sections: &Value) -> (String, Value) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut config = json!({
        "runtime": { "endpoint": format!("unix://{}", node.socket().display()) },
        "collect": { "max_age": "500ms" },
        "node": { "name": NODE_NAME },
        "policy": {
            "containers": { "min_age": "1s", "max_dead": 0 },
            "sandboxes": { "min_age": "1s", "max_dead": 0 },
            "logs": { "pods_root": node.log_root(), "containers_root": node.link_root() },
        },
        "gc": { "batch_pause": "2s" },
        "quarantine": { "base": "2s" },
        "pods": { "source": "file", "file": pods_file, "settle": "1s", "quiet": "0s" },
        "state": { "dir": node.dir().join("state") },
        "web": { "listen": [address] },
    });
    for (name, section) in sections.as_object().into_iter().flatten() {
        config[name] = section.clone();
    }
    (address, config)
}

/// Writes the configuration, and returns the command that starts the service with it.
fn command(dir: &Path, config: &Value, words: &[&str]) -> Vec<String> {
    // JSON is YAML.
    let config_file = dir.join("crisweep.yaml");
    fs::write(&config_file, config.to_string()).unwrap();
    // Another build, to measure both in one run.
    let other = std::env::var("CRISWEEP").ok();
    let mut command = vec![other.unwrap_or_else(|| env!("CARGO_BIN_EXE_crisweep").to_owned())];
    command.extend(words.iter().map(|&word| word.to_owned()));
    command.push(format!("--config.file={}", config_file.display()));
    command
}
