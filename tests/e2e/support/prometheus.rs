//! A real Prometheus; in the tests it scrapes and evaluates every second.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::alertmanager::Alertmanager;
use super::daemon::{Daemon, free_port};
use super::wait::{PATIENCE, wait_for};

/// A file of rules: its name and its text.
pub(crate) type RuleFile = (String, String);

/// One element of an instant vector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// An alert as Prometheus sees it.
#[derive(Clone, Debug)]
pub(crate) struct Alert {
    pub(crate) labels: BTreeMap<String, String>,
    /// `pending` or `firing`; other alerts are not listed.
    pub(crate) state: String,
}

/// A running Prometheus.
pub(crate) struct Prometheus {
    #[expect(dead_code, reason = "held for its end")]
    daemon: Daemon,
    /// Its address, `host:port`.
    pub(crate) address: String,
}

impl Prometheus {
    /// Starts it with its files in `dir`; waits until it is ready.
    ///
    /// It scrapes itself (job `prometheus`) and `targets` (job `crisweep`, `host:port` each) every second.
    pub(crate) async fn start(
        dir: &Path,
        targets: &[String],
        rules: &[RuleFile],
        alertmanager: &Alertmanager,
    ) -> Self {
        Self::start_every(dir, targets, rules, alertmanager, "1s").await
    }

    /// The same with another time between scrapes and between evaluations.
    pub(crate) async fn start_every(
        dir: &Path,
        targets: &[String],
        rules: &[RuleFile],
        alertmanager: &Alertmanager,
        interval: &str,
    ) -> Self {
        // The second is Prometheus' default.
        let resend = if interval == "1s" { "1s" } else { "1m" };
        let dir = dir.join("prometheus");
        fs::create_dir_all(dir.join("rules")).unwrap();
        for (name, text) in rules {
            fs::write(dir.join("rules").join(name), text).unwrap();
        }
        let address = format!("127.0.0.1:{}", free_port());
        let config_file = dir.join("prometheus.yml");
        fs::write(
            &config_file,
            config(&address, targets, alertmanager, interval).to_string(),
        )
        .unwrap();
        let args = [
            format!("--config.file={}", config_file.display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address={address}"),
            // In a test alerts are resent to Alertmanager at every evaluation, so a lost one does not matter.
            format!("--rules.alert.resend-delay={resend}"),
        ];
        let mut daemon = Daemon::start("prometheus", &dir, "prometheus", &args);
        wait_for("Prometheus to be ready", PATIENCE, || {
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

    /// Evaluates an expression now. A scalar is one sample without labels.
    pub(crate) async fn query(&self, expression: &str) -> Result<Vec<Sample>, String> {
        let data = self.api("query", &[("query", expression)]).await?;
        let result = &data["result"];
        if data["resultType"] == "scalar" {
            return Ok(vec![Sample {
                labels: BTreeMap::new(),
                value: value(result)?,
            }]);
        }
        let items = result.as_array().ok_or_else(|| result.to_string())?;
        let sample = |item: &Value| {
            Ok(Sample {
                labels: labels(&item["metric"]),
                value: value(&item["value"])?,
            })
        };
        items.iter().map(sample).collect()
    }

    /// Evaluates an expression that has exactly one sample.
    pub(crate) async fn query_one(&self, expression: &str) -> Result<f64, String> {
        match self.query(expression).await?.as_slice() {
            [sample] => Ok(sample.value),
            samples => Err(format!(
                "{expression} has {} samples: {samples:?}",
                samples.len()
            )),
        }
    }

    /// Returns every rule with its health and its last error, as the API has it.
    pub(crate) async fn rules(&self) -> Result<Vec<Value>, String> {
        let data = self.api("rules", &[]).await?;
        let groups = data["groups"].as_array().ok_or_else(|| data.to_string())?;
        Ok(groups
            .iter()
            .filter_map(|group| group["rules"].as_array())
            .flatten()
            .cloned()
            .collect())
    }

    /// Returns the alerts that are pending or firing.
    pub(crate) async fn alerts(&self) -> Result<Vec<Alert>, String> {
        let data = self.api("alerts", &[]).await?;
        let alerts = data["alerts"].as_array().ok_or_else(|| data.to_string())?;
        let alert = |alert: &Value| Alert {
            labels: labels(&alert["labels"]),
            state: alert["state"].as_str().unwrap_or_default().to_owned(),
        };
        Ok(alerts.iter().map(alert).collect())
    }

    async fn api(&self, what: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let url = format!("http://{}/api/v1/{what}", self.address);
        let mut answer = http::json(&url, query).await?;
        if answer["status"] == "success" {
            Ok(answer["data"].take())
        } else {
            Err(answer.to_string())
        }
    }
}

/// Returns the rules that this repository ships, with each `for:` shortened to `hold`, for a test that cannot
/// wait for minutes.
pub(crate) fn shipped_rules(hold: &str) -> Vec<RuleFile> {
    let mut rules = shipped_rules_as_they_are();
    for (_, text) in &mut rules {
        *text = with_hold(text, hold);
    }
    rules
}

/// Returns the rules that this repository ships. Skips files in `alerts/` without rules.
pub(crate) fn shipped_rules_as_they_are() -> Vec<RuleFile> {
    let Ok(entries) = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts")) else {
        return Vec::new();
    };
    let mut rules: Vec<RuleFile> = entries
        .flatten()
        .filter(|entry| {
            let path = entry.path();
            path.extension()
                .is_some_and(|ending| ending == "yml" || ending == "yaml")
        })
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .filter(|(_, text)| {
            let has = |key: &str| text.lines().any(|line| line.starts_with(key));
            has("groups:") && !has("rule_files:")
        })
        .collect();
    rules.sort();
    rules
}

fn with_hold(rules: &str, hold: &str) -> String {
    let shorten = |line: &str| {
        let rest = line.trim_start();
        let indent = &line[..line.len() - rest.len()];
        match ["for:", "keep_firing_for:"]
            .iter()
            .find(|key| rest.starts_with(**key))
        {
            Some(key) => format!("{indent}{key} {hold}\n"),
            None => format!("{line}\n"),
        }
    };
    rules.lines().map(shorten).collect()
}

fn config(
    own_address: &str,
    targets: &[String],
    alertmanager: &Alertmanager,
    interval: &str,
) -> Value {
    json!({
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "evaluation_interval": interval,
        },
        "rule_files": ["rules/*.yml", "rules/*.yaml"],
        "alerting": {
            "alertmanagers": [{ "static_configs": [{ "targets": [alertmanager.address] }] }],
        },
        "scrape_configs": [
            { "job_name": "prometheus", "static_configs": [{ "targets": [own_address] }] },
            { "job_name": "crisweep", "static_configs": [{ "targets": targets }] },
        ],
    })
}

fn labels(value: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = value.as_object().into_iter().flatten();
    labels
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// Reads the `[time, "number"]` that the API writes for a value.
fn value(pair: &Value) -> Result<f64, String> {
    let number = pair[1].as_str().and_then(|number| number.parse().ok());
    number.ok_or_else(|| pair.to_string())
}

/// Plain loopback HTTP, never through a proxy from the environment.
pub(crate) mod http {
    use std::time::Duration;

    use reqwest::{Client, Response};
    use serde_json::Value;

    /// Returns a client with a deadline on each request.
    pub(crate) fn client() -> Client {
        // reqwest needs a TLS provider even without TLS; installing it twice fails.
        let _done = rustls::crypto::ring::default_provider().install_default();
        Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(30))
            .build()
            .unwrap()
    }

    /// Says whether a page answers with success.
    pub(crate) async fn ready(url: &str) -> Result<(), String> {
        get(url, &[]).await.map(drop)
    }

    /// Reads a page of JSON.
    pub(crate) async fn json(url: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        get(url, query)
            .await?
            .json()
            .await
            .map_err(|error| format!("{error:?}"))
    }

    /// Reads a page.
    pub(crate) async fn text(url: &str) -> Result<String, String> {
        let answer = get(url, &[]).await?;
        answer.text().await.map_err(|error| format!("{error:?}"))
    }

    async fn get(url: &str, query: &[(&str, &str)]) -> Result<Response, String> {
        let answer = client().get(url).query(query).send().await;
        let answer = answer.map_err(|error| format!("{error:?}"))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(format!(
            "{}: {}",
            answer.status(),
            answer.text().await.unwrap_or_default()
        ))
    }
}
