//! `GET /api/v1/evidence`: what was kept of removed containers, and the ends of their logs.

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde_json::json as object;

use super::api::{NoParameters, PathId};
use super::{HttpError, HttpResult, QueryPairs, Service, clock, json};
use crate::access::Peer;
use crate::evidence::{cri_log, unpack};
use crate::model::Evidence;
use crate::state::{EvidenceFilter, EvidenceFound, EvidenceOf, ID_PREFIX_MIN, Parameters};

/// Why a client gets no log.
pub(super) const NO_LOGS: &str = "logs are served to processes of this node only, unless reading needs a credential \
                                  (web.bearer_token_files.read, web.config_file, web.token_review)";
/// Why no client gets this log.
pub(super) const DAMAGED: &str = "the kept log is damaged";

/// `GET /api/v1/evidence`: newest first, without the logs.
pub(super) async fn list(
    State(service): State<Service>,
    Query(pairs): Query<QueryPairs>,
) -> HttpResult {
    let filter = EvidenceFilter::read(pairs, clock()).map_err(HttpError::bad)?;
    let page = service.stored(filter).await?;
    let answer = object!({ "evidence": page.rows, "next": page.next });
    Ok(json(StatusCode::OK, &answer))
}

/// `GET /api/v1/evidence/{id}`: by number, container id, or its beginning.
pub(super) async fn one(
    State(service): State<Service>,
    PathId(id): PathId,
    NoParameters: NoParameters,
) -> HttpResult {
    let (evidence, _) = found(&service, id).await?;
    Ok(json(StatusCode::OK, &evidence))
}

/// `GET /api/v1/evidence/{id}/log`: what the container wrote last; with `raw=true` the log's bytes.
pub(super) async fn log(
    State(service): State<Service>,
    Extension(peer): Extension<Peer>,
    PathId(id): PathId,
    Query(pairs): Query<QueryPairs>,
) -> HttpResult {
    if !may_read_logs(&service, &peer) {
        return Err(HttpError::new(StatusCode::FORBIDDEN, NO_LOGS));
    }
    let given = Parameters::of(pairs, &["raw"], clock());
    let raw = given.and_then(|mut given| given.word("raw", &["true", "false"]));
    let is_raw = raw.map_err(HttpError::bad)?.as_deref() == Some("true");
    let (evidence, packed) = found(&service, id).await?;
    // `raw` returns the kept bytes, even none; an empty text would say that the container wrote none.
    if let Some(why) = evidence.log.missing().filter(|_| !is_raw) {
        return Err(HttpError::not_found(format!(
            "nothing of the log is kept: {why}"
        )));
    }
    let damaged = || HttpError::internal(DAMAGED);
    let bytes = unpack(&packed).ok_or_else(damaged)?;
    let bytes = if is_raw {
        bytes
    } else {
        cri_log::output(&bytes, evidence.log.is_whole)
    };
    Ok(([(header::CONTENT_TYPE, "text/plain")], bytes).into_response())
}

/// Says whether a peer that may read may also read logs: without any credential reading is open to the network; what
/// containers write is not.
pub(super) fn may_read_logs(service: &Service, peer: &Peer) -> bool {
    let is_known = peer.is_on_node() || peer.certificate().is_some();
    service.access.get().guards_reading() || is_known
}

pub(super) async fn found(service: &Service, id: String) -> Result<(Evidence, Vec<u8>), HttpError> {
    match service.stored(EvidenceOf(id.clone())).await? {
        EvidenceFound::One(evidence, log) => Ok((*evidence, log)),
        EvidenceFound::Several => Err(HttpError::bad(format!(
            "\"{id}\" is ambiguous: the ids of several containers begin with it"
        ))),
        EvidenceFound::None => Err(HttpError::not_found(format!(
            "no evidence has the number or container id \"{id}\" (give at least {ID_PREFIX_MIN} characters of an id)"
        ))),
    }
}
