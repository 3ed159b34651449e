//! Asks the service of this configuration, or the one that was named, what it knows.

use std::collections::BTreeMap;

use reqwest::StatusCode;
use serde::Deserialize;

use crate::cli::service::{ServiceFailureKind, ServiceQuery};
use crate::health::{self, HealthFacts, HealthFinding, HealthReport, LOOK_AGE_MAX};
use crate::model::NodeFigures;

impl ServiceFailureKind {
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

    /// Says why a service that was named told nothing: nothing else can tell of that node.
    pub(super) fn of_named(self, has_credential: bool) -> &'static str {
        match self {
            Self::Down => "no service answers at --service.url",
            Self::NoAnswer => "service gives no answer",
            Self::Hangs => "service hangs",
            Self::Refuses if has_credential => "service refuses, with its credential too",
            Self::Refuses => "service refuses; --service.token-file names a credential",
            Self::Foreign => "what answers at --service.url is no crisweep",
        }
    }

    /// A service that is down is no finding: a node may do without one, and `--self` asks for it.
    pub(super) fn finding(self) -> Option<HealthFinding> {
        match self {
            Self::Hangs => Some(HealthFinding::problem("service hangs, restart it")),
            Self::NoAnswer => Some(HealthFinding::unknown("service gives no answer")),
            Self::Down | Self::Refuses | Self::Foreign => None,
        }
    }
}

impl ServiceQuery {
    /// Asks both probes, for a container's health check: exits 0 or 1.
    pub(super) async fn probes(&self) -> HealthReport {
        let found = match self.reach().await {
            Ok(found) => found,
            Err(failure) => return failed(without_answer(failure.kind)),
        };
        match self.get(&found, "/-/ready").await {
            Ok((StatusCode::OK, _)) => {
                HealthReport::of(None, "service is healthy and ready", Some("service"))
            }
            Ok(_) => failed("service is not ready: runtime not reached or not listed yet"),
            Err(_failure) => failed("service gives no answer"),
        }
    }

    /// Returns what the service knows of the node.
    pub(super) async fn facts(&self) -> Result<HealthFacts, ServiceFailureKind> {
        let found = self.reach().await.map_err(|failure| failure.kind)?;
        let answer = self.get(&found, "/api/v1/status").await;
        match answer.map_err(|failure| failure.kind)? {
            (StatusCode::OK, body) => {
                let status = serde_json::from_slice::<ShownStatus>(&body);
                status
                    .map(ShownStatus::facts)
                    .map_err(|_error| ServiceFailureKind::Foreign)
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Err(ServiceFailureKind::Refuses)
            }
            (status, _) if status.is_server_error() => Err(ServiceFailureKind::NoAnswer),
            _ => Err(ServiceFailureKind::Foreign),
        }
    }
}

fn without_answer(kind: ServiceFailureKind) -> &'static str {
    match kind {
        ServiceFailureKind::Hangs => "service is not healthy: it hangs, restart it",
        ServiceFailureKind::NoAnswer => "service gives no answer",
        ServiceFailureKind::Down | ServiceFailureKind::Refuses | ServiceFailureKind::Foreign => {
            "no service answers at the addresses of web.listen"
        }
    }
}

fn failed(text: &str) -> HealthReport {
    HealthReport::of(Some(HealthFinding::problem(text)), "", Some("service"))
}

/// What is read of `GET /api/v1/status`.
#[derive(Deserialize)]
struct ShownStatus {
    runtime: ShownRuntime,
    look: Option<LookPart>,
    figures: Option<NodeFigures>,
    #[serde(default)]
    lists: BTreeMap<String, ShownList>,
    pods: Option<PodsPart>,
}

#[derive(Deserialize)]
struct ShownRuntime {
    up: bool,
    error: Option<String>,
}

#[derive(Deserialize)]
struct LookPart {
    age_seconds: f64,
}

#[derive(Deserialize)]
struct ShownList {
    bytes: Option<u64>,
    limit_bytes: u64,
}

#[derive(Deserialize)]
struct PodsPart {
    state: String,
}

/// Returns the facts in an answer of `GET /api/v1/status`.
///
/// # Errors
/// If it is no such answer.
pub(super) fn facts(status: serde_json::Value) -> serde_json::Result<HealthFacts> {
    serde_json::from_value(status).map(ShownStatus::facts)
}

impl ShownStatus {
    fn facts(self) -> HealthFacts {
        let age = self.look.map(|look| look.age_seconds);
        let runtime = match &self.runtime {
            ShownRuntime { up: true, .. } => health::RuntimeHealth::Answers,
            ShownRuntime { error: None, .. } if age.is_some() => health::RuntimeHealth::Slow,
            ShownRuntime { .. } => health::RuntimeHealth::Silent,
        };
        let is_young = self.runtime.up || age.is_some_and(|age| age <= LOOK_AGE_MAX.as_secs_f64());
        let figures = self.figures.filter(|_| is_young).unwrap_or_default();
        let ratio = |list: &str| {
            let list = self.lists.get(list).filter(|_| is_young)?;
            list.ratio()
        };
        let pods = self.pods.filter(|_| self.runtime.up);
        HealthFacts {
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

impl ShownList {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for a threshold")]
    fn ratio(&self) -> Option<f64> {
        Some(self.bytes? as f64 / self.limit_bytes.max(1) as f64)
    }
}
