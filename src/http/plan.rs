//! A plan as JSON, written while it is sent, 64 KiB at a time. The bound on heavy work covers only the
//! planning. A plan of 40,000 objects is about 12 MiB of text.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use tokio::task::spawn_blocking;
use tokio_util::io::{ReaderStream, SyncIoBridge};

use crate::gc::Plan;
use crate::model::escape::JsonWriter;

/// Size of one piece of the text.
pub(super) const PIECE_BYTES: usize = 64 << 10;

pub(super) fn answer(plan: Arc<Plan>) -> Response {
    let (writer, reader) = tokio::io::duplex(PIECE_BYTES);
    let writer = SyncIoBridge::new(writer);
    // A client that leaves closes the pipe, which ends the writing.
    spawn_blocking(move || drop(write(&plan, writer)));
    let body = Body::from_stream(ReaderStream::with_capacity(reader, PIECE_BYTES));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Writes a plan as indented JSON.
fn write(plan: &Plan, to: impl Write) -> io::Result<()> {
    let mut json = JsonWriter(BufWriter::with_capacity(PIECE_BYTES, to));
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

    #[tokio::test]
    async fn a_long_one_comes_whole_and_in_pieces() {
        for plan in [plan(0, 0), plan(1, 0), plan(2_000, 3)] {
            let whole = serde_json::to_string_pretty(&plan).unwrap() + "\n";
            let mut body = answer(Arc::new(plan)).into_body();
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
