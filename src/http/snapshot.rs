//! `GET /api/v1/snapshot`: the node as a file for `crisweep simulate`.

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::audit::unavailable;
use super::{Problem, Service, clock};
use crate::snapshot::Look;
use crate::snapshot_file;
use crate::state::Parameters;

/// Planning reads the same look: a plan on the file equals `GET /api/v1/plan` at its time. With `pass`, the node before
/// that pass, which the database may have.
pub(super) async fn get(
    State(service): State<Service>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let pass = match Parameters::of(query, &["pass"], clock()) {
        Ok(mut parameters) => parameters.text("pass"),
        Err(error) => return Problem::bad(error).into_response(),
    };
    if let Some(pass) = pass {
        return before(&service, &pass).await;
    }
    let look = match service.look().await {
        Ok(look) => look,
        Err(problem) => return problem.into_response(),
    };
    let file = service.heavy(move |service| file(service, &look)).await;
    match file {
        Ok(Ok(file)) => zstd(file),
        Ok(Err(problem)) | Err(problem) => problem.into_response(),
    }
}

async fn before(service: &Service, pass: &str) -> Response {
    match service.worker.runner().journal.snapshot(pass).await {
        Ok(Some(file)) => zstd(file),
        Ok(None) => {
            let error = format!(
                "no snapshot from before a pass \"{pass}\" is kept: state.snapshots says how many are, of passes that \
                 removed something"
            );
            Problem::new(StatusCode::NOT_FOUND, error).into_response()
        }
        Err(error) => unavailable(&error).into_response(),
    }
}

fn zstd(file: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/zstd")], file).into_response()
}

fn file(service: &Service, look: &Look) -> Result<Vec<u8>, Problem> {
    let config = service.config();
    let snapshot = service
        .snapshot(look)
        .map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let file = snapshot_file::encode(&look.about(&config), &config.policy, &snapshot);
    file.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
