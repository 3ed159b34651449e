//! A plan as JSON, written while it is sent, 64 KiB at a time. The bound on heavy work covers only the
//! planning. A plan of 40,000 objects is about 12 MiB of text.

use std::iter;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;

use crate::gc::Plan;
use crate::model::escape;

/// Size of one piece of the text.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// A piece of the text, or why it could not be written.
type TextPiece = Result<String, serde_json::Error>;

pub(super) fn answer(plan: Arc<Plan>) -> Response {
    let body = Body::from_stream(stream::iter(pieces(plan)));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns a plan as indented JSON, in pieces. Together they equal the output of `serde_json` plus a final
/// newline.
fn pieces(plan: Arc<Plan>) -> impl Iterator<Item = TextPiece> {
    let mut parts = parts(plan);
    iter::from_fn(move || {
        let mut piece = String::new();
        while piece.len() < PIECE_BYTES {
            match parts.next() {
                Some(Ok(part)) => piece.push_str(&escape::json(&part)),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        (!piece.is_empty()).then_some(Ok(piece))
    })
}

fn parts(plan: Arc<Plan>) -> impl Iterator<Item = TextPiece> {
    let field = |name: &str, value: TextPiece| value.map(|value| format!("  \"{name}\": {value}"));
    let first = field("taken_at", indented(&plan.taken_at, 1));
    let last = field("summary", indented(&plan.summary, 1));
    let cached = if plan.pods_from_cache {
        "  \"pods_from_cache\": true,\n"
    } else {
        ""
    };
    let of_kept = Arc::clone(&plan);
    let (removals, kept) = (plan.removals.len(), plan.kept.len());
    let removal = move |number: usize| plan.removals.get(number).map(|row| indented(row, 2));
    let stays = move |number: usize| of_kept.kept.get(number).map(|row| indented(row, 2));
    let first = first.map(|first| format!("{{\n{first},\n{cached}"));
    iter::once(first)
        .chain(list("removals", removals, removal))
        .chain(list("kept", kept, stays))
        .chain(iter::once(last.map(|last| format!("{last}\n}}\n"))))
}

fn list(
    name: &str,
    count: usize,
    row: impl Fn(usize) -> Option<TextPiece>,
) -> impl Iterator<Item = TextPiece> {
    let end = if count == 0 { "],\n" } else { "\n  ],\n" };
    let rows = (0..count).filter_map(move |number| {
        let comma = if number > 0 { "," } else { "" };
        let row = row(number)?;
        Some(row.map(|row| format!("{comma}\n    {row}")))
    });
    iter::once(Ok(format!("  \"{name}\": [")))
        .chain(rows)
        .chain(iter::once(Ok(end.to_owned())))
}

/// Indents a value. JSON strings contain no newline, so every newline is layout.
fn indented(value: &impl Serialize, levels: usize) -> TextPiece {
    let text = serde_json::to_string_pretty(value)?;
    Ok(text.replace('\n', &format!("\n{}", "  ".repeat(levels))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::*;
    use crate::gc::{Expected, KeptObject, PodKnowledge, Removal, Subject, Summary};
    use crate::model::{KeepReason, RemoveReason, Target};

    fn subject(number: usize) -> Subject {
        Subject {
            target: Target::Sandboxes,
            id: format!("{number:064x}").into(),
            name: "a \"name\"\nof two lines".into(),
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
            removals: (0..removals).map(removal).collect(),
            kept: (0..kept).map(stays).collect(),
            summary: BTreeMap::from([(Target::Sandboxes, summary)]),
        }
    }

    #[test]
    fn the_pieces_equal_serde_jsons_text_of_the_whole_plan() {
        for plan in [plan(0, 0), plan(1, 0), plan(2, 3)] {
            let whole = serde_json::to_string_pretty(&plan).unwrap() + "\n";
            let pieces: String = pieces(Arc::new(plan)).map(Result::unwrap).collect();
            assert_eq!(pieces, whole);
        }
    }

    #[test]
    fn a_long_one_comes_in_pieces() {
        let pieces = pieces(Arc::new(plan(2_000, 0)));
        let pieces: Vec<String> = pieces.map(Result::unwrap).collect();
        assert!(pieces.len() > 5);
        assert!(pieces.iter().all(|piece| piece.len() < 2 * PIECE_BYTES));
    }
}
