//! A real Alertmanager that sends everything to one webhook.

use std::fs;
use std::path::Path;

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

    /// Starts it behind TLS and credentials, as its web configuration file `web` says; `client` is the
    /// `http_client_config` of its clients.
    pub(crate) async fn start_behind(dir: &Path, web: &Value, client: &Value) -> Self {
        let web_file = dir.join("web.yml");
        fs::write(&web_file, web.to_string()).unwrap();
        let flag = format!("--web.config.file={}", web_file.display());
        let mut started = Self::launch(dir, "http://127.0.0.1:9/", &[flag]);
        let url = started.secure_url("/-/ready");
        let ask = async || curl(client, &[&url]).await.map(drop);
        started.ready(ask).await;
        started
    }

    /// Returns the URL of a path, where it is behind TLS.
    pub(crate) fn secure_url(&self, path: &str) -> String {
        let host = self.address.replace("127.0.0.1", "localhost");
        format!("https://{host}{path}")
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

/// Runs curl with the credentials of an `http_client_config`; returns the answer's text, or why there is none.
pub(crate) async fn curl(client: &Value, args: &[&str]) -> Result<String, String> {
    let mut command = tokio::process::Command::new("curl");
    command.args(["--silent", "--show-error", "--fail", "--max-time", "20"]);
    let tls = &client["tls_config"];
    for (option, file) in [
        ("--cacert", &tls["ca_file"]),
        ("--cert", &tls["cert_file"]),
        ("--key", &tls["key_file"]),
    ] {
        command.args(file.as_str().iter().flat_map(|file| [option, file]));
    }
    let basic = &client["basic_auth"];
    if let (Some(user), Some(file)) = (basic["username"].as_str(), basic["password_file"].as_str())
    {
        let password = fs::read_to_string(file).map_err(|error| error.to_string())?;
        command.args(["--user", &format!("{user}:{}", password.trim())]);
    }
    let output = command.args(args).output().await;
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
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
