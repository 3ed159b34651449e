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

    /// Starts the program of a release with a configuration and its files in `dir`, under `wrapper` if it has
    /// words; waits until it is ready.
    pub(crate) async fn start_release(
        dir: &Path,
        program: &Path,
        config: &Value,
        wrapper: &[String],
    ) -> Self {
        let command = [wrapper, &[program.display().to_string()]].concat();
        let mut started = Self::run(dir, &command, config, &[]);
        let url = started.url("/-/ready");
        started.ready(|| http::ready(&url)).await;
        started
    }

    fn launch(dir: &Path, webhook: &str, flags: &[String]) -> Self {
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
        Self::run(dir, &[program().to_owned()], &config, flags)
    }

    fn run(dir: &Path, command: &[String], config: &Value, flags: &[String]) -> Self {
        let dir = dir.join("alertmanager");
        fs::create_dir_all(&dir).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let args = [&command[1..], &arguments(&dir, &address, config), flags].concat();
        let daemon = Daemon::start("alertmanager", &dir, &command[0], &args);
        Self { daemon, address }
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Posts JSON to its API; returns the answer's text.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> String {
        let url = self.url(path);
        let answer = http::client().post(&url).json(body).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{url}: {status} {text}");
        text
    }

    /// Returns the sum of one of its own series.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let page = http::text(&self.url("/metrics")).await.unwrap();
        sum(&page, series)
    }

    /// Returns its active alerts, as its API has them.
    pub(crate) async fn alerts(&self) -> Result<Vec<Value>, String> {
        let answer = http::json(&self.url("/api/v2/alerts?active=true"), &[]).await?;
        answer.as_array().cloned().ok_or_else(|| answer.to_string())
    }
}

/// Writes a configuration into `dir`; returns the arguments to run with it.
pub(crate) fn arguments(dir: &Path, address: &str, config: &Value) -> Vec<String> {
    let config_file = dir.join("alertmanager.yml");
    fs::write(&config_file, config.to_string()).unwrap();
    vec![
        format!("--config.file={}", config_file.display()),
        format!("--storage.path={}", dir.join("data").display()),
        format!("--web.listen-address={address}"),
        // No cluster: no port for it either.
        "--cluster.listen-address=".to_owned(),
    ]
}

/// Returns the sum of the samples on a metrics page whose names and labels begin so.
pub(crate) fn sum(page: &str, series: &str) -> f64 {
    let samples = page.lines().filter(|line| line.starts_with(series));
    let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
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
