//! The reading side (explanations, passes, removals, causes of litter, snapshots), and the cancel of a pass.

use axum::Extension;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json as object;

use super::browser::{client, see_other};
use super::guard::Requester;
use super::{HttpError, HttpResult, QueryPairs, Service, clock, json};
use crate::access::ClientKind;
use crate::doctor::{Report, diagnose};
use crate::gc::explain::{ExplainAnswer, NotFound, PREFIX_MIN};
use crate::model::Pass;
use crate::snapshot::Look;
use crate::snapshot_file;
use crate::state::{self, Parameters, PassFilter, RemovalFilter, SnapshotBefore};

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

/// `GET /api/v1/explain/{id}`: why a container, sandbox, image, log or pod is kept or removed.
pub(super) async fn explain(
    State(service): State<Service>,
    PathId(id): PathId,
    NoParameters: NoParameters,
) -> HttpResult {
    let look = service.look().await?;
    let asked = id.clone();
    let answer = service.heavy(move |service| explanation(service, &look, &asked));
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

/// Explains from a look. Does not share a plan.
pub(super) fn explanation(
    service: &Service,
    look: &Look,
    id: &str,
) -> Result<ExplainAnswer, HttpError> {
    let policy = &service.config().policy;
    let answer = service.worker.runner().explain(look, policy, id)?;
    answer.map_err(|error| match error {
        NotFound::Nothing(_) => HttpError::not_found(error.to_string()),
        NotFound::Ambiguous { .. } => HttpError::bad(error.to_string()),
    })
}

/// `GET /api/v1/doctor`: why litter piles up on this node, and what would stop it.
pub(super) async fn doctor(
    State(service): State<Service>,
    NoParameters: NoParameters,
) -> HttpResult {
    let look = service.look().await?;
    let report = report(&service, &look).await?;
    Ok(json(StatusCode::OK, &report))
}

/// Finds the causes on the node of a look.
pub(super) async fn report(service: &Service, look: &Look) -> Result<Report, HttpError> {
    let client = service.observer.client();
    let doctor = &service.fixed.doctor;
    let mut facts = doctor.facts(look, service.config(), &client).await;
    facts.quarantined = service.quarantined_by_class(Some(look));
    service.heavy(move |_service| diagnose(&facts)).await
}

/// `GET /api/v1/snapshot`: the node as a file for `crisweep simulate`. Planning reads the same look: a plan on the file
/// equals `GET /api/v1/plan` at its time. With `pass`, the node before that pass, which the database may have.
pub(super) async fn snapshot(
    State(service): State<Service>,
    Query(query): Query<QueryPairs>,
) -> HttpResult {
    let parameters = Parameters::of(query, &["pass"], clock());
    if let Some(pass) = parameters.map_err(HttpError::bad)?.text("pass") {
        return before(&service, &pass).await;
    }
    let look = service.look().await?;
    let file = service.heavy(move |service| file(service, &look)).await;
    Ok(zstd(file??))
}

async fn before(service: &Service, pass: &str) -> HttpResult {
    let question = SnapshotBefore(pass.to_owned());
    let file = service.stored(question).await?;
    let none = || {
        let error = format!(
            "no snapshot from before pass \"{pass}\" is kept; crisweep keeps those of the last passes that removed \
             something (state.snapshots)"
        );
        HttpError::not_found(error)
    };
    Ok(zstd(file.ok_or_else(none)?))
}

fn zstd(file: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/zstd")], file).into_response()
}

fn file(service: &Service, look: &Look) -> Result<Vec<u8>, HttpError> {
    let config = service.config();
    let snapshot = service.worker.runner().snapshot(look)?;
    let file = snapshot_file::encode(&look.about(&config), &config.policy, &snapshot);
    file.map_err(|error| HttpError::internal(error.to_string()))
}
