//! `GET /api/v1/passes` and `/api/v1/removals`: what was done before, from the database.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json as object;

use super::{Problem, Service, clock, json};
use crate::state::{self, PassFilter, RemovalFilter};

/// `GET /api/v1/passes`: the last passes, newest first, waiting and running ones included; with parameters, those of the
/// database, page by page.
pub(super) async fn passes(
    State(service): State<Service>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    if query.is_empty() {
        let passes = service.worker.passes();
        return json(StatusCode::OK, &object!({ "passes": passes }));
    }
    let filter = match PassFilter::read(query, clock()) {
        Ok(filter) => filter,
        Err(error) => return Problem::bad(error).into_response(),
    };
    match service.worker.runner().journal.passes(filter).await {
        Ok(page) => json(
            StatusCode::OK,
            &object!({ "passes": page.rows, "next": page.next }),
        ),
        Err(error) => unavailable(&error).into_response(),
    }
}

/// `GET /api/v1/removals`: removals, newest first, page by page.
pub(super) async fn removals(
    State(service): State<Service>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let filter = match RemovalFilter::read(query, clock()) {
        Ok(filter) => filter,
        Err(error) => return Problem::bad(error).into_response(),
    };
    match service.worker.runner().journal.removals(filter).await {
        Ok(page) => json(
            StatusCode::OK,
            &object!({ "removals": page.rows, "next": page.next }),
        ),
        Err(error) => unavailable(&error).into_response(),
    }
}

/// The refusal of a question that the database does not answer.
pub(super) fn unavailable(error: &state::Error) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}
