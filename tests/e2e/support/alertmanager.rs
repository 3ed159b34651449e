//! A real Alertmanager that sends everything to one webhook.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::daemon::{Daemon, free_port};
use super::prometheus::http;
use super::wait::{PATIENCE, wait_for};

/// A running Alertmanager.
pub(crate) struct Alertmanager {
    #[expect(dead_code, reason = "held for its end")]
    daemon: Daemon,
    /// Its address, `host:port`.
    pub(crate) address: String,
}

impl Alertmanager {
    /// Starts it with its files in `dir` and every alert routed to `webhook`; waits until it is ready.
    pub(crate) async fn start(dir: &Path, webhook: &str) -> Self {
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
        let args = [
            format!("--config.file={}", config_file.display()),
            format!("--storage.path={}", dir.join("data").display()),
            format!("--web.listen-address={address}"),
            // No cluster: no port for it either.
            "--cluster.listen-address=".to_owned(),
        ];
        let mut daemon = Daemon::start("alertmanager", &dir, program(), &args);
        wait_for("Alertmanager to be ready", PATIENCE, || {
            daemon.assert_alive();
            let tail = daemon.log_tail();
            let url = format!("http://{address}/-/ready");
            async move {
                http::ready(&url)
                    .await
                    .map_err(|error| format!("{error}\n{tail}"))
            }
        })
        .await;
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
fn program() -> &'static str {
    let debian = "/usr/bin/prometheus-alertmanager";
    if Path::new(debian).exists() {
        debian
    } else {
        "alertmanager"
    }
}
