//! `GET /api/v1/snapshot`: the node as a file for `crisweep simulate`.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Problem, Service};
use crate::snapshot::Look;
use crate::snapshot_file;

/// Planning reads the same look: a plan on the file equals `GET /api/v1/plan` at its time.
pub(super) async fn get(State(service): State<Service>) -> Response {
    let look = match service.look().await {
        Ok(look) => look,
        Err(problem) => return problem.into_response(),
    };
    let file = service.heavy(move |service| file(service, &look)).await;
    match file {
        Ok(Ok(file)) => ([(header::CONTENT_TYPE, "application/zstd")], file).into_response(),
        Ok(Err(problem)) | Err(problem) => problem.into_response(),
    }
}

fn file(service: &Service, look: &Look) -> Result<Vec<u8>, Problem> {
    let config = service.config();
    let snapshot = service
        .snapshot(look)
        .map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let file = snapshot_file::encode(&look.about(&config), &config.policy, &snapshot);
    file.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
