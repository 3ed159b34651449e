//! `GET /api/v1/snapshot`: the node as a file for `crisweep simulate`.

use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::{HttpError, HttpResult, QueryPairs, Service, clock};
use crate::snapshot::Look;
use crate::snapshot_file;
use crate::state::{Parameters, SnapshotBefore};

/// Planning reads the same look: a plan on the file equals `GET /api/v1/plan` at its time. With `pass`, the node before
/// that pass, which the database may have.
pub(super) async fn get(
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
    let snapshot = service.snapshot(look)?;
    let file = snapshot_file::encode(&look.about(&config), &config.policy, &snapshot);
    file.map_err(|error| HttpError::internal(error.to_string()))
}
