//! `POST /gc`: a manual pass.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use tokio::time::Instant;

use super::ask::{PASS_PARAMETERS, PassRequest, read};
use super::browser::{UNBUFFERED, client, see_other};
use super::connections::Exchange;
use super::guard::Requester;
use super::limits::Class;
use super::{HttpError, HttpResult, QueryPairs, Service, body, json, page, plans};
use crate::access::ClientKind;
use crate::model::{AlertResult, Caller, Cause, PassState, TriggerInfo};
use crate::pass::record::PassRecord;
use crate::trigger::{Admission, Trigger};

/// The header that says whether a request brought a pass about (`accepted`) or joined one (`merged`).
pub const ADMISSION: &str = "crisweep-admission";

/// How long a followed pass says nothing: proxies and clients give up on an answer that is silent for a minute.
const SILENCE_MAX: Duration = Duration::from_secs(15);

pub(super) async fn post(
    State(service): State<Service>,
    Extension(exchange): Extension<Exchange>,
    Extension(Requester(by)): Extension<Requester>,
    Query(query): Query<QueryPairs>,
    request: Request,
) -> HttpResult {
    let client = client(request.headers());
    let is_form = client == ClientKind::Browser && page::is_form(request.headers());
    let read = |mut query: QueryPairs, body: &[u8]| {
        if !is_form {
            return read(query, body, &PASS_PARAMETERS);
        }
        query.extend(page::form(body)?);
        read(query, &[], &PASS_PARAMETERS)
    };
    let body = body(&service.fixed.limits, request.into_body()).await?;
    let mut ask = read(query, &body)?;
    plans::put_into(&service, &mut ask).await?;
    if ask.follow || ask.wait.is_some() {
        // Taken before the pass is queued: a refused request must not have started a pass.
        match service.fixed.limits.take(Class::Wait) {
            Some(place) => exchange.hold(place),
            None => return Ok(Class::Wait.full()),
        }
    }
    let (record, result) = submit(&service, &ask, by)?;
    let mut response = match client {
        _ if ask.follow => follow(&record),
        ClientKind::Browser => see_other("/gc", &record.id),
        ClientKind::Program => answer(record, ask.wait).await,
    };
    let result = HeaderValue::from_static(result.label());
    response.headers_mut().insert(ADMISSION, result);
    Ok(response)
}

type Admitted = (Arc<PassRecord>, AlertResult);

fn submit(service: &Service, ask: &PassRequest, by: Option<Caller>) -> Result<Admitted, HttpError> {
    let trigger = Trigger {
        info: TriggerInfo {
            by,
            ..Cause::Manual.into()
        },
        targets: ask.targets.clone(),
        options: ask.options.clone(),
    };
    let admission = service.worker.submit(vec![trigger]).pop();
    if let Some(admission) = &admission
        && let Some(id) = &admission.pass
        && let Some(record) = service.worker.find(id)
    {
        return Ok((record, admission.result));
    }
    let why = |it: &Admission| it.why.clone().unwrap_or_default();
    let text = admission.as_ref().map(why).unwrap_or_default();
    match admission.map(|it| it.result) {
        Some(AlertResult::Braked) => Err(HttpError::new(
            StatusCode::CONFLICT,
            format!("{text}; force=true overrides it (crisweep gc --force)"),
        )),
        Some(_) | None => Err(HttpError::unavailable(text)),
    }
}

/// 202 with the pass's location. With `wait`: 200 and the finished pass if it ends in time, 503 if the node
/// could not be observed.
async fn answer(record: Arc<PassRecord>, wait: Option<Duration>) -> Response {
    let mut status = StatusCode::ACCEPTED;
    if let Some(wait) = wait {
        let mut watch = record.watch();
        let done = tokio::time::timeout(wait, watch.wait_for(crate::model::Pass::is_done)).await;
        if matches!(done, Ok(Ok(_))) {
            status = if record.has_not_looked() {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::OK
            };
        }
    }
    let pass = record.pass();
    let location = format!("/api/v1/passes/{}", pass.id);
    let mut response = json(status, &pass);
    if let Ok(location) = location.parse() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Streams the pass's progress line by line until the pass is done.
fn follow(record: &Arc<PassRecord>) -> Response {
    let location = format!("/api/v1/passes/{}", record.id);
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (header::LOCATION, location),
    ];
    let lines = Body::from_stream(lines(record));
    ([UNBUFFERED], headers, lines).into_response()
}

/// Returns the lines as they come. Where none comes for [`SILENCE_MAX`], a line says that the pass waits or runs.
fn lines(record: &Arc<PassRecord>) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let state = (Arc::clone(record), record.watch(), 0_usize, false);
    futures_util::stream::unfold(state, |(record, mut watch, sent, over)| async move {
        if over {
            return None;
        }
        let silence_ends = Instant::now() + SILENCE_MAX;
        loop {
            // Read the state before the lines: all lines are written before the state becomes final.
            let done = watch.borrow_and_update().is_done();
            let lines = record.lines_from(sent);
            if done || !lines.is_empty() {
                let text = lines
                    .iter()
                    .fold(String::new(), |text, line| text + line + "\n");
                let next = (record, watch, sent + lines.len(), done);
                return Some((Ok(Bytes::from(text)), next));
            }
            if let Ok(changed) = tokio::time::timeout_at(silence_ends, watch.changed()).await {
                changed.ok()?;
                continue;
            }
            let is_running = watch.borrow().state == PassState::Running;
            let does = if is_running { "runs" } else { "waits" };
            let text = format!("pass {} {does}\n", record.id);
            return Some((Ok(Bytes::from(text)), (record, watch, sent, false)));
        }
    })
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use crate::model::{Pass, Target};

    #[tokio::test(start_paused = true)]
    async fn a_silent_pass_says_now_and_then_that_it_waits_or_runs() {
        let now = "2026-01-02T12:00:00Z".parse().unwrap();
        let pass = Pass::queued("p".to_owned(), Cause::Manual.into(), Target::ALL, now);
        let record = Arc::new(PassRecord::new(pass));
        let mut lines = std::pin::pin!(lines(&record));
        assert_eq!(lines.next().await.unwrap().unwrap(), "pass p waits\n");
        record.update(|pass| pass.state = PassState::Running);
        assert_eq!(lines.next().await.unwrap().unwrap(), "pass p runs\n");
        record.line("a step".to_owned());
        assert_eq!(lines.next().await.unwrap().unwrap(), "a step\n");
        record.update(|pass| pass.state = PassState::Done);
        assert_eq!(lines.next().await.unwrap().unwrap(), "");
        assert!(lines.next().await.is_none());
    }
}
