//! What the database says of the last 24 hours.

use rusqlite::{Connection, params};

use super::super::{PastQuestion, ask};
use super::*;

const HOUR: i64 = 3600;

fn question(names: &[(&str, &str)]) -> PastQuestion {
    PastQuestion {
        now: Timestamp::from_second(START).unwrap(),
        names: names
            .iter()
            .map(|(uid, name)| ((*uid).to_owned(), (*name).to_owned()))
            .collect(),
    }
}

fn open(dir: &Path) -> Connection {
    live(dir, &[]);
    Connection::open(dir.join(NAME)).unwrap()
}

fn remove(
    sql: &Connection,
    id: &str,
    target: &str,
    result: Option<&str>,
    created_ago: i64,
    removed_ago: i64,
) {
    let at = |ago: i64| (START - ago) * 1000;
    sql.execute(
        "INSERT INTO removals (pass_id, batch, target, id, name, attempt, pod_uid, pod_namespace, pod_name, created_at, \
         reason, intended_at, result) VALUES ('p', 0, ?, ?, 'app', 0, 'u', 'shop', 'web', ?, 'superseded', ?, ?)",
        params![target, id, at(created_ago), at(removed_ago), result],
    )
    .unwrap();
}

fn keep(sql: &Connection, id: &str, facts: &str) {
    sql.execute(
        "INSERT INTO evidence (container_id, kept_at, pod_uid, owner_kind, owner_name, container, is_first, room, facts, \
         log) VALUES (?, 0, 'u', 'Job', 'import', 'app', 0, 0, ?, x'')",
        params![id, facts],
    )
    .unwrap();
}

#[test]
fn removals_count_by_when_their_object_came() {
    let dir = tempfile::tempdir().unwrap();
    let sql = open(dir.path());
    for (id, target, result, created_ago, removed_ago) in [
        ("hour", "containers", Some("removed"), HOUR, 0),
        ("older", "containers", Some("already-gone"), HOUR + 1, 0),
        ("day", "sandboxes", Some("removed"), 24 * HOUR, 0),
        ("before", "sandboxes", Some("removed"), 24 * HOUR + 1, 0),
        ("failed", "containers", Some("failed"), 0, 0),
        ("open", "containers", None, 0, 0),
        ("image", "images", Some("removed"), 0, 0),
        // It ran for a week and ended half an hour ago.
        ("late", "containers", Some("removed"), 168 * HOUR, 0),
        // What was kept of it is not understood: its creation counts.
        ("damaged", "containers", Some("removed"), 168 * HOUR, 0),
    ] {
        remove(&sql, id, target, result, created_ago, removed_ago);
    }
    let ended = Timestamp::from_second(START - HOUR / 2).unwrap();
    keep(&sql, "late", &format!("{{\"finished_at\":\"{ended}\"}}"));
    keep(&sql, "damaged", "{");
    let past = ask(dir.path(), &question(&[])).unwrap();
    let mut counts: Vec<_> = past
        .removed
        .iter()
        .map(|it| (it.target.as_str(), it.came_1h, it.came_24h))
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [("containers", 2, 3), ("sandboxes", 0, 1)]);
    assert!(
        past.removed
            .iter()
            .all(|it| it.pod_uid.as_deref() == Some("u") && it.namespace == "shop")
    );
    let owner = &past.owners["u"];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str()),
        ("Job", "import")
    );
}

#[test]
fn ends_are_those_of_the_wanted_names_and_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let sql = open(dir.path());
    let facts = |attempt: u32| {
        serde_json::json!({
            "number": 0, "kept_at": "2026-01-01T00:00:00Z", "container_id": "c", "container": "app",
            "attempt": attempt, "pod": null, "owner": null, "labels": {}, "image": "", "image_ref": "", "ending": "",
            "exit_code": 1, "reason": "", "message": "", "created_at": "2026-01-01T00:00:00Z", "started_at": null,
            "finished_at": null, "removed_for": "superseded", "pass": "",
            "log": { "path": "", "bytes": 0, "is_whole": true, "masked_bytes": 0, "files": [], "problem": "" },
        })
        .to_string()
    };
    for attempt in 0..40 {
        keep(&sql, &format!("c{attempt}"), &facts(attempt));
    }
    keep(&sql, "damaged", "{}");
    let ends = |names| ask(dir.path(), &question(names)).unwrap().ends;
    let found = ends(&[("u", "app"), ("u", "other"), ("x", "app")]);
    // The newest of the 30 cannot be read.
    let attempts: Vec<u32> = found.iter().map(|it| it.attempt).collect();
    assert_eq!(attempts, (11..40).rev().collect::<Vec<_>>());
    assert!(ends(&[]).is_empty());
}

#[test]
fn without_a_database_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    ask(dir.path(), &question(&[])).unwrap_err();
}
