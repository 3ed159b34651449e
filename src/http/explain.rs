//! `GET /api/v1/explain/{id}`: why a container, sandbox, image, log or pod is kept or removed.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::api::{Id, NoParameters};
use super::{Problem, Service, json};
use crate::gc;
use crate::gc::explain::{Explainer, NotFound};
use crate::model::{PodSandboxId, Target};
use crate::snapshot::Look;

pub(super) async fn get(
    State(service): State<Service>,
    Id(id): Id,
    NoParameters: NoParameters,
) -> Result<Response, Problem> {
    let look = service.look().await?;
    let answer = service.heavy(move |service| answer(service, &look, &id));
    Ok(json(StatusCode::OK, &answer.await??))
}

/// Plans anew instead of sharing a plan: explanation and verdict must come from one snapshot and one policy.
pub(super) fn answer(service: &Service, look: &Look, id: &str) -> Result<Value, Problem> {
    let policy = &service.config().policy;
    let (next_attempts, quarantine) = {
        let mut quarantine = service.lock_quarantine();
        (quarantine.next_attempts(look.taken_at), quarantine.clone())
    };
    let snapshot = look.snapshot(next_attempts)?;
    let plan = gc::plan(&snapshot, policy, &Target::ALL.into());
    let explainer = Explainer::of(&snapshot, policy, &plan, look.pod_origin.source);
    let failures = |id: &str| quarantine.get(&PodSandboxId::new(id)?).cloned();
    match explainer.answer(id, failures) {
        Ok(answer) => serde_json::to_value(answer)
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        Err(error @ NotFound::Nothing(_)) => {
            Err(Problem::new(StatusCode::NOT_FOUND, error.to_string()))
        }
        Err(error @ NotFound::Ambiguous { .. }) => Err(Problem::bad(error.to_string())),
    }
}
