//! The reading side (plan, passes, removals), and the cancel of a pass.

use axum::Extension;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde_json::json as object;

use super::ask::{self, PLAN_PARAMETERS};
use super::browser::{client, see_other};
use super::guard::Requester;
use super::{HttpError, HttpResult, QueryPairs, Service, clock, json};
use crate::access::ClientKind;
use crate::model::Pass;
use crate::state::{self, PassFilter, RemovalFilter};

/// `GET /api/v1/plan?target=`: what a pass would do now, with a reason for every object.
pub(super) async fn plan(
    State(service): State<Service>,
    Query(query): Query<QueryPairs>,
) -> HttpResult {
    let ask = ask::read(query, b"", &PLAN_PARAMETERS)?;
    let look = service.look().await?;
    let plan = service.heavy(move |service| {
        let mut policy = service.config().policy.clone();
        ask.options.apply_to(&mut policy);
        service.plan_under(&look, &policy, &ask.targets)
    });
    Ok(super::plan::answer(plan.await??))
}

/// The id in a path. An invalid id is refused in JSON, like every other error.
pub(super) struct PathId(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(error) => Err(HttpError::bad(error.body_text())),
        }
    }
}

/// Refuses every parameter: a misspelt or misplaced one must not be ignored.
pub(super) struct NoParameters;

impl<S: Send + Sync> FromRequestParts<S> for NoParameters {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, HttpError> {
        let query = Query::<QueryPairs>::from_request_parts(parts, state).await;
        let Ok(Query(query)) = query else {
            return Err(HttpError::bad("the query could not be read"));
        };
        match query.first() {
            None => Ok(Self),
            Some((key, _)) => {
                let path = parts.uri.path();
                let error = format!("unknown parameter \"{key}\"; {path} takes none");
                Err(HttpError::bad(error))
            }
        }
    }
}

/// `GET /api/v1/passes`: the last passes, newest first, waiting and running ones included; with parameters, those of the
/// database, page by page.
pub(super) async fn passes(
    State(service): State<Service>,
    Query(query): Query<QueryPairs>,
) -> HttpResult {
    if query.is_empty() {
        let passes = service.worker.passes();
        return Ok(json(StatusCode::OK, &object!({ "passes": passes })));
    }
    let filter = PassFilter::read(query, clock()).map_err(HttpError::bad)?;
    let page = service.stored(filter).await?;
    let answer = object!({ "passes": page.rows, "next": page.next });
    Ok(json(StatusCode::OK, &answer))
}

/// `GET /api/v1/removals`: removals, newest first, page by page.
pub(super) async fn removals(
    State(service): State<Service>,
    Query(query): Query<QueryPairs>,
) -> HttpResult {
    let filter = RemovalFilter::read(query, clock()).map_err(HttpError::bad)?;
    let page = service.stored(filter).await?;
    let answer = object!({ "removals": page.rows, "next": page.next });
    Ok(json(StatusCode::OK, &answer))
}

/// `GET /api/v1/passes/{id}`.
pub(super) async fn pass(
    State(service): State<Service>,
    PathId(id): PathId,
    NoParameters: NoParameters,
) -> HttpResult {
    Ok(json(StatusCode::OK, &found(&service, &id).await?))
}

pub(super) async fn found(service: &Service, id: &str) -> Result<Pass, HttpError> {
    if let Some(record) = service.worker.find(id) {
        return Ok(record.pass());
    }
    // The pass may be older than the history. Without a database no such pass is known.
    match service.worker.runner().journal.pass(id).await {
        Ok(Some(pass)) => Ok(pass),
        Ok(None) | Err(state::Error::Closed) => Err(unknown_pass(id)),
        Err(error) => Err(error.into()),
    }
}

/// `DELETE /api/v1/passes/{id}`, and `POST` to its `cancel` for forms, which cannot delete: drops a waiting pass. A
/// running pass starts no further removal, and ends after those in flight.
pub(super) async fn cancel(
    State(service): State<Service>,
    Extension(Requester(by)): Extension<Requester>,
    PathId(id): PathId,
    NoParameters: NoParameters,
    headers: HeaderMap,
) -> HttpResult {
    let record = service.worker.find(&id).ok_or_else(|| unknown_pass(&id))?;
    if record.pass().is_done() {
        let error = format!("pass {id} is already done");
        return Err(HttpError::new(StatusCode::CONFLICT, error));
    }
    let caller = by.as_ref().map(ToString::to_string);
    tracing::info!(pass.id = %id, by = caller, "pass cancelled by request");
    service.worker.cancel(&id, by);
    if client(&headers) == ClientKind::Browser {
        return Ok(see_other(&format!("/api/v1/passes/{id}/cancel"), &id));
    }
    Ok(json(StatusCode::ACCEPTED, &record.pass()))
}

fn unknown_pass(id: &str) -> HttpError {
    let error = format!("no pass has the id \"{id}\"");
    HttpError::not_found(error)
}
