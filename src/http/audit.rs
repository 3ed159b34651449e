//! `GET /api/v1/passes` and `/api/v1/removals`: what was done before, from the database.

use std::collections::BTreeMap;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::json as object;

use super::{Problem, Service, json};
use crate::model::setting::parse_duration;
use crate::model::{Cause, Outcome, RemoveReason, Target};
use crate::state::{self, PASSES_MAX, PassFilter, REMOVALS_MAX, RemovalFilter};

/// The parameters of `GET /api/v1/passes`.
pub(super) const PASSES_PARAMETERS: [&str; 6] =
    ["outcome", "cause", "since", "until", "before", "limit"];

/// The parameters of `GET /api/v1/removals`.
pub(super) const REMOVALS_PARAMETERS: [&str; 11] = [
    "pass",
    "target",
    "id",
    "pod",
    "namespace",
    "reason",
    "result",
    "since",
    "until",
    "before",
    "limit",
];

/// How a removal ended, as the parameter `result` names it.
const RESULTS: [&str; 6] = [
    "removed",
    "already-gone",
    "skipped",
    "failed",
    "lost",
    "unknown",
];

/// Rows of an answer, unless `limit` says otherwise.
const ROWS: u32 = 100;

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
    let filter = match pass_filter(query) {
        Ok(filter) => filter,
        Err(problem) => return problem.into_response(),
    };
    match service.worker.runner().journal.passes(filter).await {
        Ok(page) => json(
            StatusCode::OK,
            &object!({ "passes": page.rows, "next": page.next }),
        ),
        Err(error) => unavailable(&error),
    }
}

/// `GET /api/v1/removals`: removals, newest first, page by page.
pub(super) async fn removals(
    State(service): State<Service>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let filter = match removal_filter(query) {
        Ok(filter) => filter,
        Err(problem) => return problem.into_response(),
    };
    match service.worker.runner().journal.removals(filter).await {
        Ok(page) => json(
            StatusCode::OK,
            &object!({ "removals": page.rows, "next": page.next }),
        ),
        Err(error) => unavailable(&error),
    }
}

pub(super) fn unavailable(error: &state::Error) -> Response {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response()
}

fn pass_filter(query: Vec<(String, String)>) -> Result<PassFilter, Problem> {
    let mut parameters = Parameters::of(query, &PASSES_PARAMETERS)?;
    Ok(PassFilter {
        id: None,
        outcome: parameters.word("outcome", &Outcome::ALL.map(Outcome::label))?,
        cause: parameters.word("cause", &Cause::ALL.map(Cause::label))?,
        since: parameters.time("since")?,
        until: parameters.time("until")?,
        before: parameters.number("before", i64::MAX)?,
        limit: parameters.limit(PASSES_MAX)?,
    })
}

fn removal_filter(query: Vec<(String, String)>) -> Result<RemovalFilter, Problem> {
    let mut parameters = Parameters::of(query, &REMOVALS_PARAMETERS)?;
    let reasons = RemoveReason::ALL.map(RemoveReason::label);
    Ok(RemovalFilter {
        pass: parameters.text("pass"),
        target: parameters.word("target", &Target::ALL.map(Target::label))?,
        id: parameters.text("id"),
        pod: parameters.text("pod"),
        namespace: parameters.text("namespace"),
        reason: parameters.word("reason", &reasons)?,
        result: parameters.word("result", &RESULTS)?,
        since: parameters.time("since")?,
        until: parameters.time("until")?,
        before: parameters.number("before", i64::MAX)?,
        limit: parameters.limit(REMOVALS_MAX)?,
    })
}

/// The parameters of a query, each at most once.
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Refuses a parameter that is not `known`, and one that is there twice.
    pub(super) fn of(query: Vec<(String, String)>, known: &[&str]) -> Result<Self, Problem> {
        let mut parameters = BTreeMap::new();
        for (key, value) in query {
            if !known.contains(&key.as_str()) {
                let known = known.join(", ");
                return Err(Problem::bad(format!(
                    "unknown parameter \"{key}\"; known are {known}"
                )));
            }
            if let Some((key, _)) = parameters.get_key_value(&key) {
                return Err(Problem::bad(format!("{key} is there twice")));
            }
            parameters.insert(key, value);
        }
        Ok(Self(parameters))
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.0.remove(key)
    }

    /// One of these words.
    fn word(&mut self, key: &str, words: &[&str]) -> Result<Option<String>, Problem> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        if words.contains(&text.as_str()) {
            return Ok(Some(text));
        }
        let words = words.join(", ");
        Err(Problem::bad(format!(
            "{key}: \"{text}\" is none of {words}"
        )))
    }

    /// A time, or how long ago it was: `2026-01-31T09:00:00Z` or `2h`.
    pub(super) fn time(&mut self, key: &str) -> Result<Option<Timestamp>, Problem> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        if let Ok(time) = text.parse() {
            return Ok(Some(time));
        }
        let ago = parse_duration(&text).map_err(|_be| {
            Problem::bad(format!(
                "{key}: \"{text}\" is neither a time such as 2026-01-31T09:00:00Z nor a duration such as 2h"
            ))
        })?;
        Ok(Some(
            clock().checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH),
        ))
    }

    /// A whole number from 1 to `max`.
    pub(super) fn number(&mut self, key: &str, max: i64) -> Result<Option<i64>, Problem> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        let number = text
            .parse()
            .ok()
            .filter(|number| (1..=max).contains(number));
        let bound = if max == i64::MAX {
            "a whole number from 1".to_owned()
        } else {
            format!("a whole number from 1 to {max}")
        };
        number
            .map(Some)
            .ok_or_else(|| Problem::bad(format!("{key}: \"{text}\" is not {bound}")))
    }

    /// Most rows of the answer.
    pub(super) fn limit(&mut self, max: u32) -> Result<u32, Problem> {
        let limit = self.number("limit", i64::from(max))?;
        Ok(limit
            .and_then(|limit| limit.try_into().ok())
            .unwrap_or(ROWS))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long ago is told from the wall clock"
)]
fn clock() -> Timestamp {
    Timestamp::now()
}
