//! The reading side (status, plan, passes), and the cancel of a pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};

use super::{Problem, Service, json, targets};
use crate::gc::knowledge::{Knowledge, SourceState};
use crate::gc::{self};
use crate::model::{Brake, Coverage, Pods, Target};
use crate::runtime::Listed;
use crate::snapshot::{Look, Part, Weight};
use crate::state;

/// How long the status waits for a new look.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);

/// `GET /api/v1/status`: the node, the service, and which brakes hold. If the runtime does not answer in time,
/// the latest look is shown with its age.
pub(super) async fn status(State(service): State<Service>) -> Response {
    let (node, error) = match tokio::time::timeout(LOOK_PATIENCE, service.look()).await {
        Ok(Ok(look)) => (node_part(&service, &look, true).await, None),
        Ok(Err(problem)) => (down(&service), Some(problem.error)),
        // While the runtime hangs the client wants to know exactly that; the age shows how old the rest is.
        Err(_elapsed) => {
            let node = match service.observer.latest() {
                Some(look) => node_part(&service, &look, false).await,
                None => down(&service),
            };
            let error = "the runtime does not answer in time; this is what the last look found";
            (node, Some(error.to_owned()))
        }
    };
    let latest = service.observer.latest();
    let config = service.config();
    let brakes = config.brakes;
    let holding = service.worker.holding().into_iter().map(Brake::label);
    let passes = service.worker.passes();
    let waiting = passes
        .iter()
        .filter(|pass| pass.started_at.is_none() && !pass.is_done());
    let head = object!({
        "node": config.node.name,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": service.fixed.started.elapsed().as_secs(),
        "mode": config.mode.label(),
        "paused": brakes.pause,
        "config": config_part(&service),
        "look_error": error,
    });
    let tail = object!({
        "state": service.worker.runner().journal.status(),
        "quarantined_sandboxes": service.quarantined_by_class(latest.as_deref()),
        "quarantine": service.quarantined_first(latest.as_deref()),
        "brakes": {
            "cooldown_seconds": brakes.cooldown.as_secs(),
            "max_passes_per_hour": brakes.max_passes_per_hour,
            "pause": brakes.pause,
            "failure_ratio": config.gc.failure_ratio,
            "holding": holding.collect::<Vec<_>>(),
        },
        "fleet": service.worker.fleet().status(),
        "assume_finished_after_seconds":
            config.policy.assume_finished_after.map(|after| after.as_secs()),
        "running": service.worker.running(),
        "waiting": waiting.map(|pass| &pass.id).collect::<Vec<_>>(),
        "last_pass": passes.iter().find(|pass| pass.is_done()),
    });
    let mut answer = serde_json::Map::new();
    for part in [head, node, tail] {
        if let Value::Object(part) = part {
            answer.extend(part);
        }
    }
    json(StatusCode::OK, &answer)
}

/// The configuration in force, and the result of the last reload.
fn config_part(service: &Service) -> Value {
    let config = service.config();
    let last = service.last_reload().clone();
    object!({
        "hash": config.hash(),
        "loaded_at": last.loaded_at,
        "last_reload_error": last.refused,
        "needs_restart": config.needs_restart,
    })
}

/// The answer for a node that was never observed.
fn down(service: &Service) -> Value {
    object!({ "runtime": { "endpoint": service.endpoint(), "up": false } })
}

/// The node's part of the status. A look that is not `young` does not show whether the runtime is up.
async fn node_part(service: &Service, look: &Arc<Look>, young: bool) -> Value {
    let judged = {
        let look = Arc::clone(look);
        service.heavy(move |service| judge(service, &look)).await
    };
    let judged = judged.ok().flatten();
    let runtime = look.runtime.as_ref();
    // If the lists could not be read, the pod list cannot be compared with them.
    let (state, why) = match (&look.pods, &judged) {
        (_, Some(judged)) => (judged.pods, judged.pods_doubt.clone()),
        (Pods::Unknown(why), None) => (why.into(), Some(why.to_string())),
        (Pods::Known(_), None) => (SourceState::Known, None),
    };
    object!({
        "look": {
            "taken_at": look.taken_at,
            "age_seconds": look.started.elapsed().as_secs_f64(),
            "duration_seconds": look.duration.as_secs_f64(),
            "exit_times_unknown": look.exits_unknown,
            "errors": errors(look),
        },
        "runtime": {
            "endpoint": service.endpoint(),
            "up": young && runtime.is_ok(),
            "name": runtime.ok().map(|runtime| &runtime.runtime),
            "version": runtime.ok().map(|runtime| &runtime.version),
            "error": runtime.err().map(ToString::to_string),
        },
        "figures": look.figures(),
        "lists": lists(look),
        "pods": {
            "configured": service.config().pods.source.label(),
            "source": look.pod_origin.source.label(),
            "chosen": look.pod_origin.why,
            "from_cache": look.pods.is_cached(),
            "known": state == SourceState::Known,
            "state": state.label(),
            "why": why,
        },
        "removable": judged.map(|judged| judged.removable),
    })
}

/// How each list was read, and whether rows may be missing. A list that failed for its size has no mode. Omits
/// lists that could not be read for another reason.
fn lists(look: &Look) -> BTreeMap<&'static str, Value> {
    fn list<T>(part: &Part<Listed<T>>, weight: Weight) -> Option<Value> {
        let listed = part.as_ref().ok();
        (listed.is_some() || weight.bytes.is_some()).then(|| {
            object!({
                "mode": listed.map(|listed| listed.mode.label()),
                "complete": listed.is_some_and(|listed| listed.coverage == Coverage::Whole),
                "bytes": weight.bytes,
                "limit_bytes": weight.limit_bytes,
            })
        })
    }
    let weights = look.weights();
    let lists = [
        ("containers", list(&look.containers, weights.containers)),
        ("sandboxes", list(&look.sandboxes, weights.sandboxes)),
        ("images", list(&look.images, weights.images)),
    ];
    lists
        .into_iter()
        .filter_map(|(name, list)| Some((name, list?)))
        .collect()
}

/// What could not be read or written, and why.
fn errors(look: &Look) -> BTreeMap<&'static str, String> {
    let part = |error: Option<&crate::runtime::Error>| error.map(ToString::to_string);
    let of_logs: Vec<&str> = [&look.logs.unread, &look.logs.unwritable]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    let parts = [
        ("runtime", part(look.runtime.as_ref().err())),
        ("containers", part(look.containers.as_ref().err())),
        ("sandboxes", part(look.sandboxes.as_ref().err())),
        ("images", part(look.images.as_ref().err())),
        ("filesystems", part(look.filesystems.as_ref().err())),
        ("logs", (!of_logs.is_empty()).then(|| of_logs.join("; "))),
    ];
    parts
        .into_iter()
        .filter_map(|(name, error)| Some((name, error?)))
        .collect()
}

struct Judged {
    removable: BTreeMap<Target, usize>,
    pods: SourceState,
    pods_doubt: Option<String>,
}

fn judge(service: &Service, look: &Look) -> Option<Judged> {
    let snapshot = service.snapshot(look).ok()?;
    let policy = &service.config().policy;
    let counts = gc::plan::summarize(&snapshot, policy, &Target::ALL.into()).into_iter();
    let knowledge = Knowledge::of(&snapshot, policy);
    Some(Judged {
        removable: counts
            .map(|(target, summary)| (target, summary.remove.values().sum()))
            .collect(),
        pods: knowledge.source_state(),
        pods_doubt: knowledge.source_doubt(),
    })
}

/// `GET /api/v1/plan?target=`: what a pass would do now, with a reason for every object.
pub(super) async fn plan(
    State(service): State<Service>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    if let Some((key, _)) = query.iter().find(|(key, _)| key != "target") {
        return Problem::bad(format!(
            "unknown parameter \"{key}\"; the only one is target"
        ))
        .into_response();
    }
    let targets = match targets(query.iter().map(|(_, word)| word.as_str())) {
        Ok(targets) => targets,
        Err(error) => return Problem::bad(error.to_string()).into_response(),
    };
    let look = match service.look().await {
        Ok(look) => look,
        Err(problem) => return problem.into_response(),
    };
    let answer = service
        .heavy(move |service| match service.plan(&look, &targets) {
            Ok(plan) => super::plan::answer(plan),
            Err(error) => {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response()
            }
        })
        .await;
    answer.unwrap_or_else(IntoResponse::into_response)
}

/// The id in a path. An invalid id is refused in JSON, like every other error.
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(error) => Err(Problem::bad(error.body_text())),
        }
    }
}

/// `GET /api/v1/passes/{id}`.
pub(super) async fn pass(State(service): State<Service>, Id(id): Id) -> Response {
    if let Some(record) = service.worker.find(&id) {
        return json(StatusCode::OK, &record.pass());
    }
    // Of an earlier time than the history goes back. Without a database no such pass is known.
    match service.worker.runner().journal.pass(&id).await {
        Ok(Some(pass)) => json(StatusCode::OK, &pass),
        Ok(None) | Err(state::Error::Closed) => unknown_pass(&id),
        Err(error) => super::audit::unavailable(&error),
    }
}

/// `DELETE /api/v1/passes/{id}`: drops a waiting pass; a running pass starts nothing more and ends after the
/// removals in flight.
pub(super) async fn cancel(State(service): State<Service>, Id(id): Id) -> Response {
    match service.worker.find(&id) {
        None => unknown_pass(&id),
        Some(record) if record.pass().is_done() => {
            let error = format!("pass {id} is already done");
            Problem::new(StatusCode::CONFLICT, error).into_response()
        }
        Some(record) => {
            tracing::info!(pass.id = %id, "pass cancelled by request");
            service.worker.cancel(&id);
            json(StatusCode::ACCEPTED, &record.pass())
        }
    }
}

fn unknown_pass(id: &str) -> Response {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("no pass \"{id}\" is remembered"),
    )
    .into_response()
}
