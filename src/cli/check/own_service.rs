//! Asks the service of this configuration what it knows. Sends no credential.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::findings::{self, Facts, Finding, Verdict};
use crate::cli::local_service::{Way, ways};
use crate::config::Config;
use crate::http::HANGS;
use crate::model::NodeFigures;

/// How it names itself.
const USER_AGENT: &str = concat!("crisweep-check/", env!("CARGO_PKG_VERSION"));
/// The largest answer that is read.
const ANSWER_MAX_BYTES: usize = 4 << 20;
/// While the runtime gives no answer in time the service tells its last look. Older figures do not count.
const LOOK_AGE_MAX_SECONDS: f64 = 60.0;

/// Why the service told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Silence {
    /// Nothing listens there, or the service has no address that can be known.
    Down,
    /// It did not answer in time.
    NoAnswer,
    /// It says itself that it hangs.
    Hangs,
    /// It wants a credential for reading.
    Refuses,
    /// Something else answered.
    Foreign,
}

impl Silence {
    /// Says in the result that the runtime was asked, and why.
    pub(super) fn runtime_asked(self) -> &'static str {
        match self {
            Self::Down => "runtime; service down",
            Self::NoAnswer => "runtime; service silent",
            Self::Hangs => "runtime; service hangs",
            Self::Refuses => "runtime; service refuses",
            Self::Foreign => "runtime; no service",
        }
    }

    /// A service that is down is no finding: a node may do without one, and `--self` asks for it.
    pub(super) fn finding(self) -> Option<Finding> {
        match self {
            Self::Hangs => Some(Finding::problem("service hangs, restart it")),
            Self::NoAnswer => Some(Finding::unknown("service gives no answer")),
            Self::Down | Self::Refuses | Self::Foreign => None,
        }
    }
}

/// Questions to the service, within a time.
pub(in crate::cli) struct Question {
    ways: Vec<Way>,
    /// When a probe that was sent now must be answered: a service that works answers at once.
    patience: Duration,
    by: Instant,
}

impl Question {
    pub(in crate::cli) async fn new(config: &Config, limit: Duration, by: Instant) -> Self {
        Self {
            ways: ways(config, limit / 4).await,
            patience: limit / 4,
            by,
        }
    }

    /// Asks both probes, for a container's health check: exits 0 or 1.
    pub(super) async fn probes(&self) -> Verdict {
        let (way, client) = match self.reach().await {
            Ok(found) => found,
            Err(Silence::Hangs) => return failed("service is not healthy: it hangs, restart it"),
            Err(Silence::NoAnswer) => return failed("service gives no answer"),
            Err(Silence::Down | Silence::Refuses | Silence::Foreign) => {
                return failed("no service answers at the addresses of web.listen");
            }
        };
        match get(&client, &way.url("/-/ready"), self.by).await {
            Ok((StatusCode::OK, _)) => {
                Verdict::of(None, "service is healthy and ready", Some("service"))
            }
            Ok(_) => failed("service is not ready: runtime not reached or not listed yet"),
            Err(_silence) => failed("service gives no answer"),
        }
    }

    /// Returns what the service knows of the node.
    pub(super) async fn facts(&self) -> Result<Facts, Silence> {
        let (way, client) = self.reach().await?;
        match get(&client, &way.url("/api/v1/status"), self.by).await? {
            (StatusCode::OK, body) => {
                let status = serde_json::from_slice::<Status>(&body);
                status.map(Status::facts).map_err(|_error| Silence::Foreign)
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Err(Silence::Refuses),
            (status, _) if status.is_server_error() => Err(Silence::NoAnswer),
            _ => Err(Silence::Foreign),
        }
    }

    /// Asks the service for a path; returns its answer, whatever the status.
    pub(in crate::cli) async fn get(&self, path: &str) -> Result<(StatusCode, Vec<u8>), Silence> {
        let (way, client) = self.reach().await?;
        get(&client, &way.url(path), self.by).await
    }

    /// Finds the first address where a healthy service answers.
    async fn reach(&self) -> Result<(&Way, Client), Silence> {
        let mut silence = Silence::Down;
        for way in &self.ways {
            let Ok(client) = way.client(USER_AGENT) else {
                continue;
            };
            let by = self.by.min(Instant::now() + self.patience);
            match get(&client, &way.url("/-/healthy"), by).await {
                Ok((StatusCode::OK, body)) if body.starts_with(b"crisweep") => {
                    return Ok((way, client));
                }
                Ok((StatusCode::SERVICE_UNAVAILABLE, body)) => {
                    let says_so = body.windows(HANGS.len()).any(|it| it == HANGS.as_bytes());
                    return Err(if says_so {
                        Silence::Hangs
                    } else {
                        Silence::NoAnswer
                    });
                }
                Ok(_) => silence = Silence::Foreign,
                Err(Silence::Down) => {}
                Err(other) => silence = other,
            }
        }
        Err(silence)
    }
}

fn failed(text: &str) -> Verdict {
    Verdict::of(Some(Finding::problem(text)), "", Some("service"))
}

async fn get(client: &Client, url: &str, by: Instant) -> Result<(StatusCode, Vec<u8>), Silence> {
    let answer = async {
        let mut response = client.get(url).send().await?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_MAX_BYTES {
                break;
            }
        }
        Ok((response.status(), body))
    };
    match timeout_at(by, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let error: reqwest::Error = error;
            Err(if error.is_connect() {
                Silence::Down
            } else {
                Silence::Foreign
            })
        }
        Err(_elapsed) => Err(Silence::NoAnswer),
    }
}

/// What is read of `GET /api/v1/status`.
#[derive(Deserialize)]
struct Status {
    runtime: Runtime,
    look: Option<LookPart>,
    figures: Option<NodeFigures>,
    #[serde(default)]
    lists: BTreeMap<String, List>,
    pods: Option<PodsPart>,
}

#[derive(Deserialize)]
struct Runtime {
    up: bool,
    error: Option<String>,
}

#[derive(Deserialize)]
struct LookPart {
    age_seconds: f64,
}

#[derive(Deserialize)]
struct List {
    bytes: Option<u64>,
    limit_bytes: u64,
}

#[derive(Deserialize)]
struct PodsPart {
    state: String,
}

impl Status {
    fn facts(self) -> Facts {
        let age = self.look.map_or(f64::INFINITY, |look| look.age_seconds);
        let is_young = self.runtime.up || age <= LOOK_AGE_MAX_SECONDS;
        let runtime = match &self.runtime {
            Runtime { up: true, .. } => findings::Runtime::Answers,
            Runtime { error: None, .. } if is_young => findings::Runtime::Slow,
            Runtime { .. } => findings::Runtime::Silent,
        };
        let figures = self.figures.filter(|_| is_young).unwrap_or_default();
        let ratio = |list: &str| {
            let list = self.lists.get(list).filter(|_| is_young)?;
            list.ratio()
        };
        let pods = self.pods.filter(|_| self.runtime.up);
        Facts {
            runtime,
            exited_containers: figures.exited_containers,
            not_ready_sandboxes: figures.not_ready_sandboxes,
            lists: ["containers", "sandboxes", "images"]
                .map(|list| (list, ratio(list)))
                .into(),
            image_fs_used_percent: figures.image_fs_used_ratio.map(|ratio| 100.0 * ratio),
            pod_source: pods.and_then(|pods| match &*pods.state {
                "failed" => Some("failed"),
                "incomplete" => Some("incomplete"),
                _ => None,
            }),
            service: None,
        }
    }
}

impl List {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for a threshold")]
    fn ratio(&self) -> Option<f64> {
        Some(self.bytes? as f64 / self.limit_bytes.max(1) as f64)
    }
}
