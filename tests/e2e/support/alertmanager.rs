//! A real Alertmanager that sends everything to one webhook.

use std::fs;
use std::path::Path;

use crisweep::outgoing::{HttpClient, HttpClientConfig};
use crisweep::system::blocking::BlockingPool;
use crisweep::telemetry;
use serde_json::{Value, json};

use super::daemon::{Daemon, free_port};
use super::prometheus::http;
use super::wait::{PATIENCE, wait_for};

/// A running Alertmanager.
pub(crate) struct Alertmanager {
    daemon: Daemon,
    /// Its address, `host:port`.
    pub(crate) address: String,
}

impl Alertmanager {
    /// Starts it with its files in `dir` and every alert routed to `webhook`; waits until it is ready.
    pub(crate) async fn start(dir: &Path, webhook: &str) -> Self {
        let mut started = Self::launch(dir, webhook, &[]);
        let url = format!("http://{}/-/ready", started.address);
        started.ready(|| http::ready(&url)).await;
        started
    }

    /// Starts it behind TLS and credentials, as its web configuration file `web` says; returns a client of it.
    pub(crate) async fn start_behind(
        dir: &Path,
        web: &Value,
        config: &HttpClientConfig,
    ) -> (Self, HttpClient) {
        let web_file = dir.join("web.yml");
        fs::write(&web_file, web.to_string()).unwrap();
        let flag = format!("--web.config.file={}", web_file.display());
        let mut started = Self::launch(dir, "http://127.0.0.1:9/", &[flag]);
        let url = started.address.replace("127.0.0.1", "https://localhost");
        let client = HttpClient::new(url, config.clone(), 1 << 20, BlockingPool::new(1));
        started
            .ready(
                async || match client.get(client.url("/-/ready").unwrap()).await {
                    Ok(answer) if answer.status.is_success() => Ok(()),
                    Ok(answer) => Err(answer.status.to_string()),
                    Err(error) => Err(telemetry::chain(&error)),
                },
            )
            .await;
        (started, client)
    }

    async fn ready(&mut self, ask: impl AsyncFn() -> Result<(), String>) {
        wait_for("Alertmanager to be ready", PATIENCE, || {
            self.daemon.assert_alive();
            let tail = self.daemon.log_tail();
            let asking = ask();
            async move { asking.await.map_err(|error| format!("{error}\n{tail}")) }
        })
        .await;
    }

    fn launch(dir: &Path, webhook: &str, flags: &[String]) -> Self {
        let dir = dir.join("alertmanager");
        fs::create_dir_all(&dir).unwrap();
        let config = json!({
            "route": {
                "receiver": "webhook",
                "group_by": ["alertname", "node"],
                "group_wait": "1s",
                "group_interval": "2s",
                "repeat_interval": "1h",
            },
            "receivers": [{
                "name": "webhook",
                "webhook_configs": [{ "url": webhook, "send_resolved": true }],
            }],
        });
        let config_file = dir.join("alertmanager.yml");
        fs::write(&config_file, config.to_string()).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let mut args = vec![
            format!("--config.file={}", config_file.display()),
            format!("--storage.path={}", dir.join("data").display()),
            format!("--web.listen-address={address}"),
            // No cluster: no port for it either.
            "--cluster.listen-address=".to_owned(),
        ];
        args.extend_from_slice(flags);
        let daemon = Daemon::start("alertmanager", &dir, program(), &args);
        Self { daemon, address }
    }

    /// Returns its active alerts, as its API has them.
    pub(crate) async fn alerts(&self) -> Result<Vec<Value>, String> {
        let url = format!("http://{}/api/v2/alerts?active=true", self.address);
        let answer = http::json(&url, &[]).await?;
        answer.as_array().cloned().ok_or_else(|| answer.to_string())
    }
}

/// Debian uses a longer name.
pub(crate) fn program() -> &'static str {
    let debian = "/usr/bin/prometheus-alertmanager";
    if Path::new(debian).exists() {
        debian
    } else {
        "alertmanager"
    }
}
