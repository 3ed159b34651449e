//! Asks the service of this configuration, or the one that was named, what it knows.

use reqwest::StatusCode;
use serde_json::Value;

use crate::cli::service::{ServiceFailureKind, ServiceQuery};
use crate::health::{HealthFacts, HealthFinding, HealthReport, LOOK_AGE_MAX, RuntimeHealth};
use crate::model::NodeFigures;

impl ServiceFailureKind {
    /// Says in the result that the runtime was asked, and why.
    pub(super) fn runtime_asked(self) -> &'static str {
        match self {
            Self::NotAsked => "runtime",
            Self::Down => "runtime; service down",
            Self::NoAnswer => "runtime; service silent",
            Self::Hangs => "runtime; service hangs",
            Self::Refuses => "runtime; service refuses",
            Self::Foreign => "runtime; no service",
        }
    }

    /// Says in a line why the service told nothing; `crisweep status` says more.
    pub(super) fn line(self) -> &'static str {
        match self {
            Self::NoAnswer => "service gives no answer",
            Self::Hangs => "service hangs, restart it",
            Self::Refuses => "service refuses; crisweep status says why",
            Self::NotAsked | Self::Down | Self::Foreign => {
                "no crisweep answers; crisweep status says more"
            }
        }
    }

    /// A service that is down is no finding: a node may do without one, and `--self` asks for it.
    pub(super) fn finding(self) -> Option<HealthFinding> {
        match self {
            Self::Hangs => Some(HealthFinding::problem(self.line())),
            Self::NoAnswer => Some(HealthFinding::unknown(self.line())),
            Self::NotAsked | Self::Down | Self::Refuses | Self::Foreign => None,
        }
    }
}

impl ServiceQuery {
    /// Asks both probes, for a container's health check: exits 0 or 1.
    pub(super) async fn probes(&self) -> HealthReport {
        let found = match self.reach().await {
            Ok(found) => found,
            Err(failure) => return failed(failure.kind.line()),
        };
        match self.get(found, "/-/ready").await {
            Ok((StatusCode::OK, _)) => {
                HealthReport::of(None, "service is healthy and ready", Some("service"))
            }
            Ok(_) => failed("service is not ready: runtime not reached or not listed yet"),
            Err(_failure) => failed("service gives no answer"),
        }
    }

    /// Returns what the service knows of the node.
    pub(super) async fn facts(&self) -> Result<HealthFacts, ServiceFailureKind> {
        let answer = self.answer("/api/v1/status").await;
        match answer.map_err(|failure| failure.kind)? {
            (_, StatusCode::OK, body) => {
                let status = serde_json::from_slice(&body).ok();
                status
                    .as_ref()
                    .and_then(facts)
                    .ok_or(ServiceFailureKind::Foreign)
            }
            (_, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Err(ServiceFailureKind::Refuses)
            }
            (_, status, _) if status.is_server_error() => Err(ServiceFailureKind::NoAnswer),
            _ => Err(ServiceFailureKind::Foreign),
        }
    }
}

fn failed(text: &str) -> HealthReport {
    HealthReport::of(Some(HealthFinding::problem(text)), "", Some("service"))
}

/// Returns the facts in an answer of `GET /api/v1/status`; `None` if it is no such answer.
pub(super) fn facts(status: &Value) -> Option<HealthFacts> {
    let at = |path: &str| status.pointer(path).unwrap_or(&Value::Null);
    let up = at("/runtime/up").as_bool()?;
    let age = at("/look/age_seconds").as_f64().unwrap_or(f64::INFINITY);
    let is_young = up || age <= LOOK_AGE_MAX.as_secs_f64();
    let runtime = match (up, at("/runtime/error").is_null()) {
        (true, _) => RuntimeHealth::Answers,
        (false, true) if age.is_finite() => RuntimeHealth::Slow,
        (false, _) => RuntimeHealth::Silent,
    };
    let figures: Option<NodeFigures> = serde_json::from_value(at("/figures").clone()).ok()?;
    let figures = figures.filter(|_| is_young).unwrap_or_default();
    let ratio = |list: &str| {
        let number = |key: &str| at(&format!("/lists/{list}/{key}")).as_f64();
        let ratio = number("bytes")? / number("limit_bytes")?.max(1.0);
        is_young.then_some(ratio)
    };
    let incomplete = |list: &&str| {
        let is = |key: &str| at(&format!("/lists/{list}/{key}"));
        is_young && is("mode").is_string() && *is("complete") == Value::Bool(false)
    };
    let source = at("/pods/state").as_str().filter(|_| up);
    Some(HealthFacts {
        runtime,
        exited_containers: figures.exited_containers,
        not_ready_sandboxes: figures.not_ready_sandboxes,
        lists: ["containers", "sandboxes", "images"]
            .map(|list| (list, ratio(list)))
            .into(),
        incomplete: ["containers", "sandboxes", "images"]
            .into_iter()
            .filter(incomplete)
            .collect(),
        image_fs_used_percent: figures.image_fs_used_ratio.map(|ratio| 100.0 * ratio),
        image_fs_inodes_used_percent: figures.image_fs_inodes_used_ratio().map(|it| 100.0 * it),
        pod_source: ["failed", "incomplete"]
            .into_iter()
            .find(|state| source == Some(*state)),
        service: None,
    })
}
