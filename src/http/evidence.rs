//! `GET /api/v1/evidence`: what was kept of removed containers, and the ends of their logs.

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json as object;

use super::api::{Id, NoParameters};
use super::audit::unavailable;
use super::{Problem, Service, clock, json};
use crate::access::Peer;
use crate::evidence::{cri_log, unpack};
use crate::model::Evidence;
use crate::state::{EvidenceFilter, EvidenceFound, ID_PREFIX_MIN};

/// Why a client gets no log.
pub(super) const NO_LOGS: &str = "logs are served to processes of this node only, unless reading needs a credential \
                                  (web.bearer_token_files.read, web.config_file, web.token_review)";
/// Why nobody does.
pub(super) const DAMAGED: &str = "the kept log is damaged";

type Pairs = Query<Vec<(String, String)>>;

/// `GET /api/v1/evidence`: newest first, without the logs.
pub(super) async fn list(State(service): State<Service>, Query(pairs): Pairs) -> Response {
    let filter = match EvidenceFilter::read(pairs, clock()) {
        Ok(filter) => filter,
        Err(error) => return Problem::bad(error).into_response(),
    };
    match service.worker.runner().journal.evidence(filter).await {
        Ok(page) => {
            let answer = object!({ "evidence": page.rows, "next": page.next });
            json(StatusCode::OK, &answer)
        }
        Err(error) => unavailable(&error).into_response(),
    }
}

/// `GET /api/v1/evidence/{id}`: by number, container id, or its beginning.
pub(super) async fn one(
    State(service): State<Service>,
    Id(id): Id,
    NoParameters: NoParameters,
) -> Response {
    match found(&service, id).await {
        Ok((evidence, _)) => json(StatusCode::OK, &evidence),
        Err(problem) => problem.into_response(),
    }
}

/// `GET /api/v1/evidence/{id}/log`: what the container wrote last; with `raw=true` the log's bytes.
pub(super) async fn log(
    State(service): State<Service>,
    Extension(peer): Extension<Peer>,
    Id(id): Id,
    Query(pairs): Pairs,
) -> Response {
    if !may_read_logs(&service, &peer) {
        return Problem::new(StatusCode::FORBIDDEN, NO_LOGS).into_response();
    }
    let raw = match pairs.as_slice() {
        [] => false,
        [(key, value)] if key == "raw" && (value == "true" || value == "false") => value == "true",
        _ => return Problem::bad("the only parameter is raw, true or false").into_response(),
    };
    let (evidence, packed) = match found(&service, id).await {
        Ok(found) => found,
        Err(problem) => return problem.into_response(),
    };
    let Some(bytes) = unpack(&packed) else {
        return Problem::new(StatusCode::INTERNAL_SERVER_ERROR, DAMAGED).into_response();
    };
    let bytes = if raw {
        bytes
    } else {
        cri_log::output(&bytes, evidence.log.is_whole)
    };
    ([(header::CONTENT_TYPE, "text/plain")], bytes).into_response()
}

/// Says whether a peer that may read may also read logs: without any credential reading is open to the network; what
/// containers write is not.
pub(super) fn may_read_logs(service: &Service, peer: &Peer) -> bool {
    let is_known = peer.is_loopback() || peer.is_unix() || peer.certificate().is_some();
    service.access.get().guards_reading() || is_known
}

pub(super) async fn found(service: &Service, id: String) -> Result<(Evidence, Vec<u8>), Problem> {
    let journal = &service.worker.runner().journal;
    match journal.evidence_of(id.clone()).await {
        Ok(EvidenceFound::One(evidence, log)) => Ok((*evidence, log)),
        Ok(EvidenceFound::Several) => Err(Problem::bad(format!(
            "\"{id}\" is ambiguous: the ids of several containers begin with it"
        ))),
        Ok(EvidenceFound::None) => Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!(
                "no evidence has the number \"{id}\" or is of a container with this id (its first {ID_PREFIX_MIN} \
                 characters are enough)"
            ),
        )),
        Err(error) => Err(unavailable(&error)),
    }
}
