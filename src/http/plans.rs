//! `/api/v1/plans`: plans that are saved, to be read and carried out later (`POST /gc?plan=`).

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::api::{NoParameters, PathId};
use super::ask::{PLAN_PARAMETERS, PassRequest, read};
use super::guard::Requester;
use super::saved_plans::{KeptPlan, SavedPlanText, pack};
use super::{HttpError, HttpResult, QueryPairs, Service, body, json, plan};
use crate::model::Caller;
use crate::snapshot::Look;
use crate::system::clock;

/// `POST /api/v1/plans`: plans and keeps the plan; removes nothing.
pub(super) async fn save(
    State(service): State<Service>,
    Extension(Requester(by)): Extension<Requester>,
    Query(query): Query<QueryPairs>,
    request: Request,
) -> HttpResult {
    let body = body(&service.fixed.limits, request.into_body()).await?;
    let ask = read(query, &body, &PLAN_PARAMETERS)?;
    let look = service.look().await?;
    let saved = service.heavy(move |service| keep(service, &look, ask, by));
    let kept = saved.await??;
    let location = format!("/api/v1/plans/{}", kept.head.id);
    tracing::info!(plan.id = %kept.head.id, "plan saved");
    let location = [(header::LOCATION, location)];
    Ok((StatusCode::CREATED, location, sent(kept)).into_response())
}

fn keep(
    service: &Service,
    look: &Arc<Look>,
    ask: PassRequest,
    by: Option<Caller>,
) -> Result<KeptPlan, HttpError> {
    let mut policy = service.config().policy.clone();
    ask.options.apply_to(&mut policy);
    let made = service.plan_under(look, &policy, &ask.targets)?;
    let plans = &service.fixed.saved_plans;
    let head = plans.head(&made, &ask.targets, &ask.options, by);
    let packed = pack(&SavedPlanText {
        head: &head,
        plan: &made,
    });
    let kept = packed.and_then(|it| plans.keep((head, ask.options), &made, it));
    kept.map_err(|error| HttpError::new(StatusCode::INSUFFICIENT_STORAGE, error.to_string()))
}

/// `GET /api/v1/plans`: the saved plans, newest first.
pub(super) async fn list(State(service): State<Service>, NoParameters: NoParameters) -> Response {
    let plans = service.fixed.saved_plans.list(clock());
    json(StatusCode::OK, &serde_json::json!({ "plans": plans }))
}

/// `GET /api/v1/plans/{id}`.
pub(super) async fn get(
    State(service): State<Service>,
    PathId(id): PathId,
    NoParameters: NoParameters,
) -> HttpResult {
    let kept = service.fixed.saved_plans.get(&id, clock())?;
    Ok(sent(kept).into_response())
}

/// `DELETE /api/v1/plans/{id}`: forgets a plan.
pub(super) async fn forget(
    State(service): State<Service>,
    PathId(id): PathId,
    NoParameters: NoParameters,
) -> HttpResult {
    let head = service.fixed.saved_plans.forget(&id, clock())?;
    Ok(json(StatusCode::OK, &head))
}

/// Has a pass carry out a saved plan: it defaults to the plan's targets and options.
pub(super) async fn put_into(service: &Service, ask: &mut PassRequest) -> Result<(), HttpError> {
    let Some(id) = ask.plan.take() else {
        return Ok(());
    };
    let kept = service.fixed.saved_plans.get(&id, clock())?;
    let (head, made_with) = (kept.head.clone(), kept.options.clone());
    let saved = service.heavy(move |_service| kept.plan()).await?;
    let saved = saved.map_err(|error| {
        let text = format!("plan {id} cannot be read; this is a bug in crisweep: {error}");
        HttpError::internal(text)
    })?;
    if !ask.names_targets {
        ask.targets = head.targets;
    }
    let options = &mut ask.options;
    let after = options.assume_finished_after;
    options.assume_finished_after = after.or(made_with.assume_finished_after);
    options.max_dead = options.max_dead.or(made_with.max_dead);
    options.plan = Some(Arc::new(saved));
    Ok(())
}

fn sent(kept: KeptPlan) -> impl IntoResponse {
    let body = Body::from_stream(stream::iter(kept.pieces(plan::PIECE_BYTES)));
    ([(header::CONTENT_TYPE, "application/json")], body)
}
