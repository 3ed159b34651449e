//! A plan as JSON, written as it is sent, 64 KiB at a time on the connection's task; the bound on heavy
//! work covers only the planning. As text a plan of 40,000 objects weighs about 12 MiB.

use std::iter;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

use crate::gc::Plan;

/// What is written at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A part of the text, or why it could not be written.
type Part = Result<String, serde_json::Error>;

/// Answers with a plan.
pub(super) fn answer(plan: Plan) -> Response {
    let body = Body::from_stream(stream::iter(pieces(plan)));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns a plan as JSON that a person can read in a terminal, in pieces. Together they are what
/// `serde_json` makes of the whole, and a line's end.
fn pieces(plan: Plan) -> impl Iterator<Item = Part> {
    let mut parts = parts(plan);
    iter::from_fn(move || {
        let mut piece = String::new();
        while piece.len() < PIECE_BYTES {
            match parts.next() {
                Some(Ok(part)) => piece.push_str(&part),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        (!piece.is_empty()).then_some(Ok(piece))
    })
}

fn parts(plan: Plan) -> impl Iterator<Item = Part> {
    let Plan {
        taken_at,
        removals,
        kept,
        summary,
    } = plan;
    let field = |name: &str, value: Part| value.map(|value| format!("  \"{name}\": {value}"));
    let first = field("taken_at", indented(&taken_at, 1));
    let last = field("summary", indented(&summary, 1));
    iter::once(first.map(|first| format!("{{\n{first},\n")))
        .chain(list("removals", removals))
        .chain(list("kept", kept))
        .chain(iter::once(last.map(|last| format!("{last}\n}}\n"))))
}

fn list<T: Serialize>(name: &str, rows: Vec<T>) -> impl Iterator<Item = Part> {
    let end = if rows.is_empty() { "],\n" } else { "\n  ],\n" };
    let rows = rows.into_iter().enumerate().map(|(number, row)| {
        let comma = if number > 0 { "," } else { "" };
        indented(&row, 2).map(|row| format!("{comma}\n    {row}"))
    });
    iter::once(Ok(format!("  \"{name}\": [")))
        .chain(rows)
        .chain(iter::once(Ok(end.to_owned())))
}

/// No text in JSON has a line's end in it.
fn indented(value: &impl Serialize, levels: usize) -> Part {
    let text = serde_json::to_string_pretty(value)?;
    Ok(text.replace('\n', &format!("\n{}", "  ".repeat(levels))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;
    use crate::gc::{
        Expected, KeepReason, Kept, PodKnowledge, Removal, RemoveReason, Subject, Summary, Target,
    };

    fn subject(number: usize) -> Subject {
        Subject {
            target: Target::Sandboxes,
            id: format!("{number:064x}").into(),
            name: "a \"name\"\nof two lines".into(),
            pod: None,
            pod_state: PodKnowledge::Deleted,
            attempt: 0,
            created_at: Timestamp::UNIX_EPOCH,
            first_seen_at: None,
            age_seconds: 1,
            last_used_at: None,
            size_bytes: None,
        }
    }

    fn plan(removals: usize, kept: usize) -> Plan {
        let removal = |number| Removal {
            subject: subject(number),
            reason: RemoveReason::PodDeleted,
            detail: String::new(),
            expected: Expected::Sandbox,
            outdone_by: Vec::new(),
        };
        let stays = |number| Kept {
            subject: subject(number),
            reason: KeepReason::TooYoung,
            detail: "created 1s ago".to_owned(),
            quarantine: None,
        };
        let mut summary = Summary::default();
        summary.remove.insert(RemoveReason::PodDeleted, removals);
        Plan {
            taken_at: Timestamp::UNIX_EPOCH,
            removals: (0..removals).map(removal).collect(),
            kept: (0..kept).map(stays).collect(),
            summary: BTreeMap::from([(Target::Sandboxes, summary)]),
        }
    }

    #[test]
    fn it_is_what_serde_json_makes_of_the_whole() {
        for plan in [plan(0, 0), plan(1, 0), plan(2, 3)] {
            let whole = serde_json::to_string_pretty(&plan).unwrap() + "\n";
            let pieces: String = pieces(plan).map(Result::unwrap).collect();
            assert_eq!(pieces, whole);
        }
    }

    #[test]
    fn a_long_one_comes_in_pieces() {
        let pieces: Vec<String> = pieces(plan(2_000, 0)).map(Result::unwrap).collect();
        assert!(pieces.len() > 5);
        assert!(pieces.iter().all(|piece| piece.len() < 2 * PIECE_BYTES));
    }
}
