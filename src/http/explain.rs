//! `GET /api/v1/explain/{id}`: why a container, sandbox, image, log or pod is kept or removed.

use axum::extract::State;
use axum::http::StatusCode;

use super::api::{NoParameters, PathId};
use super::{HttpError, HttpResult, Service, json};
use crate::gc;
use crate::gc::explain::{ExplainAnswer, Explainer, NotFound, PREFIX_MIN, PlanFacts};
use crate::model::{PodSandboxId, Target};
use crate::snapshot::Look;
use crate::state::RemovalFilter;

pub(super) async fn get(
    State(service): State<Service>,
    PathId(id): PathId,
    NoParameters: NoParameters,
) -> HttpResult {
    let look = service.look().await?;
    let asked = id.clone();
    let answer = service.heavy(move |service| answer(service, &look, &asked));
    match answer.await? {
        Err(error) if error.status == StatusCode::NOT_FOUND => {
            let gone = gone(&service, &id).await;
            Err(gone.map_or(error, HttpError::not_found))
        }
        answer => Ok(json(StatusCode::OK, &answer?)),
    }
}

/// Says which pass removed the latest object whose id begins so, and why.
async fn gone(service: &Service, id: &str) -> Option<String> {
    if id.len() < PREFIX_MIN {
        return None;
    }
    let filter = RemovalFilter {
        id: Some(id.to_owned()),
        result: Some("removed".to_owned()),
        limit: 1,
        ..RemovalFilter::default()
    };
    let removal = service.stored(filter).await.ok()?.rows.pop()?;
    let (id, pass, at) = (removal.id, removal.pass, removal.ended_at?);
    Some(format!(
        "{id} ({}) is gone: pass {pass} removed it at {at} ({}); \"crisweep passes {pass}\" says more",
        removal.target, removal.reason
    ))
}

/// Plans anew instead of sharing a plan: explanation and verdict must come from one snapshot and one policy.
pub(super) fn answer(service: &Service, look: &Look, id: &str) -> Result<ExplainAnswer, HttpError> {
    let policy = &service.config().policy;
    let (next_attempts, quarantine) = {
        let mut quarantine = service.quarantine.lock();
        (quarantine.next_attempts(look.taken_at), quarantine.clone())
    };
    let snapshot = look.snapshot(next_attempts)?;
    let plan = gc::plan(&snapshot, policy, &Target::ALL.into());
    let facts = PlanFacts::of(&snapshot, policy, &plan);
    let explainer = Explainer::of(&facts, &plan, look.pod_origin.source);
    let failures = |id: &str| quarantine.get(&PodSandboxId::new(id)?).cloned();
    let answer = explainer.answer(id, failures);
    answer.map_err(|error| match error {
        NotFound::Nothing(_) => HttpError::not_found(error.to_string()),
        NotFound::Ambiguous { .. } => HttpError::bad(error.to_string()),
    })
}
