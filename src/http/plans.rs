//! Plans as JSON, which is sent in pieces; and `/api/v1/plans`: plans that are saved, to be read and carried out later
//! (`POST /gc?plan=`).

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::task::spawn_blocking;
use tokio_util::io::{ReaderStream, SyncIoBridge};

use super::api::{NoParameters, PathId};
use super::ask::{PLAN_PARAMETERS, PassRequest, read};
use super::guard::Requester;
use super::saved_plans::{KeptPlan, SavedPlanText, pack};
use super::{HttpError, HttpResult, QueryPairs, Service, body, json};
use crate::gc::Plan;
use crate::model::Caller;
use crate::model::escape::JsonWriter;
use crate::snapshot::{Look, NoSnapshot};
use crate::system::clock;

/// Size of one piece of the text.
const PIECE_BYTES: usize = 64 << 10;

/// `GET /api/v1/plan?target=`: what a pass would do now, with a reason for every object.
pub(super) async fn plan(
    State(service): State<Service>,
    Query(query): Query<QueryPairs>,
) -> HttpResult {
    let ask = read(query, b"", &PLAN_PARAMETERS)?;
    let look = service.look().await?;
    let plan = service.heavy(move |service| planned(service, &look, &ask));
    Ok(written(plan.await??))
}

fn planned(
    service: &Service,
    look: &Arc<Look>,
    ask: &PassRequest,
) -> Result<Arc<Plan>, NoSnapshot> {
    let mut policy = service.config().policy.clone();
    ask.options.apply_to(&mut policy);
    service.plan_under(look, &policy, &ask.targets)
}

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
    let made = planned(service, look, &ask)?;
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
    let body = Body::from_stream(stream::iter(kept.pieces(PIECE_BYTES)));
    ([(header::CONTENT_TYPE, "application/json")], body)
}

/// Answers with a plan, whose JSON is written while it is sent: the bound on heavy work covers only the planning. A plan
/// of 40,000 objects is about 12 MiB of text.
fn written(plan: Arc<Plan>) -> Response {
    let (writer, reader) = tokio::io::duplex(PIECE_BYTES);
    let writer = SyncIoBridge::new(writer);
    // A client that leaves closes the pipe, which ends the writing.
    spawn_blocking(move || drop(write(&plan, writer)));
    let body = Body::from_stream(ReaderStream::with_capacity(reader, PIECE_BYTES));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Writes a plan as indented JSON.
fn write(plan: &Plan, to: impl Write) -> io::Result<()> {
    let mut json = BufWriter::with_capacity(PIECE_BYTES, JsonWriter(to));
    serde_json::to_writer_pretty(&mut json, plan)?;
    writeln!(json)?;
    json.flush()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http_body_util::BodyExt;
    use jiff::Timestamp;

    use super::*;
    use crate::gc::{Expected, KeptObject, PodKnowledge, Removal, Subject, Summary};
    use crate::model::{KeepReason, RemoveReason, Target};

    fn subject(number: usize) -> Subject {
        Subject {
            target: Target::Sandboxes,
            id: format!("{number:064x}").into(),
            name: "a \"größe\"\nof two lines\u{9b}".into(),
            pod: None,
            pod_state: PodKnowledge::Deleted,
            attempt: 0,
            created_at: Timestamp::UNIX_EPOCH,
            age_seconds: 1,
            image: None,
        }
    }

    fn plan(removals: usize, kept: usize) -> Plan {
        let removal = |number| Removal {
            subject: subject(number),
            reason: RemoveReason::PodDeleted,
            detail: Box::default(),
            expected: Expected::Sandbox,
            superseded_by: Arc::default(),
        };
        let stays = |number| KeptObject {
            subject: subject(number),
            reason: KeepReason::TooYoung,
            detail: "created 1s ago".into(),
            quarantine: None,
        };
        let mut summary = Summary::default();
        summary.remove.insert(RemoveReason::PodDeleted, removals);
        Plan {
            taken_at: Timestamp::UNIX_EPOCH,
            pods_from_cache: removals == 1,
            doubts: Vec::from_iter((kept > 0).then(|| "a list is incomplete".to_owned())),
            at_risk: BTreeMap::from_iter((kept > 0).then_some((Target::Sandboxes, kept))),
            removals: (0..removals).map(removal).collect(),
            kept: (0..kept).map(stays).collect(),
            summary: BTreeMap::from([(Target::Sandboxes, summary)]),
        }
    }

    #[tokio::test]
    async fn a_long_one_comes_whole_and_in_pieces() {
        for plan in [plan(0, 0), plan(1, 0), plan(2_000, 3)] {
            let whole = serde_json::to_string_pretty(&plan).unwrap() + "\n";
            let whole = crate::model::escape::json(&whole).into_owned();
            let mut body = written(Arc::new(plan)).into_body();
            let mut text = Vec::new();
            while let Some(frame) = body.frame().await {
                let piece = frame.unwrap().into_data().unwrap();
                assert!(piece.len() <= PIECE_BYTES);
                text.extend_from_slice(&piece);
            }
            assert!(String::from_utf8(text).unwrap() == whole);
        }
    }
}
