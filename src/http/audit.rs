//! `GET /api/v1/passes` and `/api/v1/removals`: what was done before, from the database.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json as object;

use super::{HttpError, Service, clock, json};
use crate::state::{PassFilter, RemovalFilter};

/// `GET /api/v1/passes`: the last passes, newest first, waiting and running ones included; with parameters, those of the
/// database, page by page.
pub(super) async fn passes(
    State(service): State<Service>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, HttpError> {
    if query.is_empty() {
        let passes = service.worker.passes();
        return Ok(json(StatusCode::OK, &object!({ "passes": passes })));
    }
    let filter = PassFilter::read(query, clock()).map_err(HttpError::bad)?;
    let page = service.worker.runner().journal.ask(filter).await?;
    let answer = object!({ "passes": page.rows, "next": page.next });
    Ok(json(StatusCode::OK, &answer))
}

/// `GET /api/v1/removals`: removals, newest first, page by page.
pub(super) async fn removals(
    State(service): State<Service>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, HttpError> {
    let filter = RemovalFilter::read(query, clock()).map_err(HttpError::bad)?;
    let page = service.worker.runner().journal.ask(filter).await?;
    let answer = object!({ "removals": page.rows, "next": page.next });
    Ok(json(StatusCode::OK, &answer))
}
