//! Passes, removals and the quarantine in the database.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, Row, named_params};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::database::Writing;
use crate::gc::Removal;
use crate::model::{
    Outcome, Pass, PassState, PastFailure, RemovalOutcome, RemoveReason, Target, Text,
};

/// The most passes taken from the database at a start; the newest.
const PASSES_MAX: usize = 100;
/// The most failed sandboxes in the database; those with the latest failures.
pub(super) const FAILURES_MAX: usize = 4096;
/// The longest report of a pass; unbounded fields are cut.
const REPORT_MAX_BYTES: usize = 16 << 10;
/// Length to which names from outside are cut, and the texts of a too long report.
const TEXT_MAX: usize = 200;
/// Length to which ids are cut: a log's is its path.
const ID_MAX: usize = 1000;
/// Length to which errors of the runtime are cut.
const ERROR_MAX: usize = 2000;
/// Errors that a too long report keeps.
const ERRORS_MAX: usize = 20;
/// What is said of a removal that was intended and did not begin: the pass had to end, or another client was quicker.
const NOT_BEGUN: &str = "its removal had not begun when the pass ended";
/// Now, in milliseconds.
pub(super) const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// The passes in the database, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Ended passes.
    pub ended: Vec<Pass>,
    /// Passes whose process ended before them, as far as they are known.
    pub interrupted: Vec<Pass>,
    /// Sandboxes whose removal failed and that have not been seen to go since, with their last failure;
    /// earliest failure first.
    pub failures: Vec<PastFailure>,
}

/// Marks a pass as interrupted by the end of its process.
pub fn interrupt(pass: &mut Pass, now: Timestamp) {
    pass.state = PassState::Done;
    pass.outcome = Some(Outcome::Interrupted);
    pass.finished_at = Some(now);
}

/// An object that is about to be removed, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RemovalIntent {
    batch: u64,
    target: Target,
    id: String,
    name: String,
    pod_uid: Option<String>,
    pod_namespace: Option<String>,
    pod_name: Option<String>,
    attempt: u32,
    created_at: Timestamp,
    reason: RemoveReason,
}

impl RemovalIntent {
    pub(super) fn new(batch: u64, removal: &Removal) -> Self {
        let subject = &removal.subject;
        let pod = subject.pod.as_ref();
        Self {
            batch,
            target: subject.target,
            id: cut_at(&subject.id, ID_MAX),
            name: cut(&subject.name),
            pod_uid: pod.map(|pod| cut(pod.uid.as_str())),
            pod_namespace: pod.map(|pod| cut(&pod.namespace)),
            pod_name: pod.map(|pod| cut(&pod.name)),
            attempt: subject.attempt,
            created_at: subject.created_at,
            reason: removal.reason,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RemovalEnd {
    pass: String,
    /// The object: its intent may not have been written.
    #[serde(flatten)]
    object: RemovalIntent,
    #[serde(flatten)]
    outcome: RemovalOutcome,
    duration_ms: u64,
}

impl RemovalEnd {
    pub(super) fn new(
        pass: &str,
        removal: &Removal,
        outcome: RemovalOutcome,
        took: Duration,
    ) -> Self {
        Self {
            pass: pass.to_owned(),
            object: RemovalIntent::new(0, removal),
            outcome: if outcome == RemovalOutcome::NotBegun {
                RemovalOutcome::skipped(NOT_BEGUN)
            } else {
                outcome
            },
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Writes a pass that begins, how far it is, or that it is over.
pub(super) fn put(writing: &Writing<'_>, pass: &Pass) -> rusqlite::Result<()> {
    let sql = writing.sql;
    // Passes run one at a time: the ends of earlier ones of this process could not be written. One that never began
    // may end while another runs.
    if pass.started_at.is_some() {
        sql.prepare_cached("DELETE FROM passes WHERE NOT is_done AND process = ? AND id != ?")?
            .execute((writing.process, &pass.id))?;
    }
    let put = "INSERT INTO passes (id, process, is_done, cause, outcome, dry_run, queued_at, finished_at, report) \
        VALUES (:id, :process, :is_done, :cause, :outcome, :dry_run, :queued_at, :finished_at, :report) \
        ON CONFLICT (id) DO UPDATE SET is_done = :is_done, outcome = :outcome, dry_run = :dry_run, \
        finished_at = :finished_at, report = :report";
    sql.prepare_cached(put)?.execute(named_params! {
        ":id": pass.id,
        ":process": writing.process,
        ":is_done": pass.is_done(),
        ":cause": pass.trigger.cause.label(),
        ":outcome": pass.outcome.map(Outcome::label),
        ":dry_run": pass.dry_run,
        ":queued_at": pass.queued_at.as_millisecond(),
        ":finished_at": pass.finished_at.map(Timestamp::as_millisecond),
        ":report": report(pass),
    })?;
    forget_passes(writing)
}

/// Removes passes above the bound. In the older half those without a removal go first: an alert that no pass can answer
/// asks for one each minute, and a removal's pass says who asked for it.
fn forget_passes(writing: &Writing<'_>) -> rusqlite::Result<()> {
    let max = writing.limits.passes_max();
    let rows = "DELETE FROM passes WHERE number IN (SELECT number FROM passes ORDER BY \
        number > (SELECT max(number) FROM passes) - ?1 / 2, id IN (SELECT pass_id FROM removals), number \
        LIMIT max(0, (SELECT count(*) FROM passes) - ?1))";
    writing.sql.prepare_cached(rows)?.execute([max]).map(drop)
}

/// Removes the oldest removals above the bound.
fn forget_removals(writing: &Writing<'_>) -> rusqlite::Result<()> {
    let rows = "DELETE FROM removals WHERE number <= (SELECT max(number) FROM removals) - ?";
    let max = writing.limits.removals_max();
    writing.sql.prepare_cached(rows)?.execute([max]).map(drop)
}

pub(super) fn put_intended(
    writing: &Writing<'_>,
    pass_id: &str,
    objects: &[RemovalIntent],
) -> rusqlite::Result<()> {
    let put = format!(
        "INSERT INTO removals (pass_id, batch, target, id, name, attempt, pod_uid, pod_namespace, pod_name, \
         created_at, reason, intended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {NOW})"
    );
    let mut put = writing.sql.prepare_cached(&put)?;
    // For a removal that an earlier batch intended and did not begin.
    let again = format!(
        "UPDATE removals SET batch = ?, reason = ?, intended_at = {NOW} \
         WHERE id = ? AND pass_id = ? AND target = ? AND result IS NULL"
    );
    let mut again = writing.sql.prepare_cached(&again)?;
    for object in objects {
        let (target, reason) = (object.target.label(), object.reason.label());
        if again.execute((object.batch, reason, &object.id, pass_id, target))? > 0 {
            continue;
        }
        put.execute((
            pass_id,
            object.batch,
            target,
            &object.id,
            &object.name,
            object.attempt,
            &object.pod_uid,
            &object.pod_namespace,
            &object.pod_name,
            object.created_at.as_millisecond(),
            reason,
        ))?;
    }
    forget_removals(writing)
}

pub(super) fn put_outcome(writing: &Writing<'_>, ended: &RemovalEnd) -> rusqlite::Result<()> {
    let (pass_id, object) = (ended.pass.as_str(), &ended.object);
    let result: &str = (&ended.outcome).into();
    let (class, why, freed) = match &ended.outcome {
        RemovalOutcome::Removed { freed_bytes } => (None, None, *freed_bytes),
        RemovalOutcome::AlreadyGone | RemovalOutcome::NotBegun => (None, None, None),
        RemovalOutcome::Skipped { why } | RemovalOutcome::Lost { why } => (None, Some(why), None),
        RemovalOutcome::Failed { class, why, .. } => (Some(class.label()), Some(why), None),
    };
    let why = why.map(|why| cut_at(why, ERROR_MAX));
    let mut put = writing.sql.prepare_cached(&format!(
        "UPDATE removals SET result = ?, class = ?, why = ?, duration_ms = ?, freed_bytes = ?, ended_at = {NOW} \
         WHERE number = (SELECT max(number) FROM removals WHERE id = ? AND pass_id = ? AND target = ?)"
    ))?;
    let values = (
        result,
        class,
        why,
        ended.duration_ms,
        freed,
        &object.id,
        pass_id,
        object.target.label(),
    );
    if put.execute(values.clone())? == 0 {
        put_intended(writing, pass_id, std::slice::from_ref(object))?;
        put.execute(values)?;
    }
    if object.target == Target::Sandboxes {
        note_failure(writing, &object.id, &ended.outcome)?;
    }
    Ok(())
}

/// Writes that removals of these objects, which a pass intended, did not begin. Of another one without a result that is
/// not known: its result may not have been written.
pub(super) fn put_not_begun(
    writing: &Writing<'_>,
    pass_id: &str,
    objects: &BTreeSet<(Target, Text)>,
) -> rusqlite::Result<()> {
    let put = format!(
        "UPDATE removals SET result = 'skipped', why = ?, ended_at = {NOW} \
         WHERE id = ? AND pass_id = ? AND target = ? AND result IS NULL"
    );
    let mut put = writing.sql.prepare_cached(&put)?;
    for (target, id) in objects {
        put.execute((NOT_BEGUN, cut_at(id, ID_MAX), pass_id, target.label()))?;
    }
    Ok(())
}

/// Puts a sandbox into the table of failures, or takes it out.
fn note_failure(writing: &Writing<'_>, id: &str, outcome: &RemovalOutcome) -> rusqlite::Result<()> {
    let sql = writing.sql;
    match outcome {
        RemovalOutcome::Failed {
            class,
            why,
            at,
            failures,
        } => put_failure(
            writing,
            &PastFailure {
                id: id.to_owned(),
                failures: failures.unwrap_or(1),
                class: *class,
                error: cut_at(why, ERROR_MAX),
                at: *at,
            },
        ),
        RemovalOutcome::Removed { .. } | RemovalOutcome::AlreadyGone => {
            let gone = "DELETE FROM quarantine WHERE id = ?";
            sql.prepare_cached(gone)?.execute([id]).map(drop)
        }
        // None of these outcomes says whether a removal would succeed.
        RemovalOutcome::Skipped { .. } | RemovalOutcome::Lost { .. } | RemovalOutcome::NotBegun => {
            Ok(())
        }
    }
}

pub(super) fn put_failure(writing: &Writing<'_>, failure: &PastFailure) -> rusqlite::Result<()> {
    let sql = writing.sql;
    sql.prepare_cached("INSERT OR REPLACE INTO quarantine (id, failures, class, error, failed_at) VALUES (?, ?, ?, ?, ?)")?
        .execute((
            &failure.id,
            failure.failures,
            failure.class.label(),
            &failure.error,
            failure.at.map(Timestamp::as_millisecond),
        ))?;
    let surplus = "DELETE FROM quarantine WHERE id IN \
        (SELECT id FROM quarantine ORDER BY failed_at DESC LIMIT -1 OFFSET ?)";
    sql.prepare_cached(surplus)?
        .execute([FAILURES_MAX])
        .map(drop)
}

/// Reads the passes and the failed sandboxes. Skips a row that this version cannot read.
pub(super) fn history(sql: &Connection) -> rusqlite::Result<History> {
    Ok(History {
        ended: newest(sql, true)?,
        interrupted: newest(sql, false)?
            .into_iter()
            .map(|pass| cut_off(sql, pass))
            .collect::<rusqlite::Result<_>>()?,
        failures: failures(sql)?,
    })
}

/// Reads the newest passes that are over, or those that are not; the oldest of them first.
fn newest(sql: &Connection, is_done: bool) -> rusqlite::Result<Vec<Pass>> {
    let newest = "SELECT report FROM passes WHERE is_done = ? ORDER BY number DESC LIMIT ?";
    let reports = sql
        .prepare(newest)?
        .query_map((is_done, PASSES_MAX), |row| row.get::<_, String>(0))?
        .collect::<rusqlite::Result<Vec<String>>>()?;
    let passes = reports.iter().rev();
    let passes = passes.filter_map(|report| serde_json::from_str(report).ok());
    Ok(passes.collect())
}

/// Reads the failed sandboxes, the earliest failure first.
pub(super) fn failures(sql: &Connection) -> rusqlite::Result<Vec<PastFailure>> {
    let all = "SELECT id, failures, class, substr(error, 1, 2003), failed_at FROM quarantine \
        ORDER BY failed_at, id LIMIT ?";
    let read = |row: &Row<'_>| -> rusqlite::Result<Option<PastFailure>> {
        let class: String = row.get(2)?;
        let Some(class) = word(&class) else {
            return Ok(None);
        };
        Ok(Some(PastFailure {
            id: row.get(0)?,
            failures: row.get(1)?,
            class,
            error: row.get(3)?,
            at: row.get::<_, Option<i64>>(4)?.and_then(time),
        }))
    };
    let rows = sql
        .prepare(all)?
        .query_map([FAILURES_MAX], read)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().flatten().collect())
}

/// Completes a pass whose process ended before it: what was removed after its last report.
pub(super) fn cut_off(sql: &Connection, mut pass: Pass) -> rusqlite::Result<Pass> {
    let ends =
        "SELECT target, result, count(*) FROM removals WHERE pass_id = ? GROUP BY target, result";
    let ends = sql
        .prepare(ends)?
        .query_map([&pass.id], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<rusqlite::Result<Vec<(String, Option<String>, u64)>>>()?;
    let mut open = 0;
    for (target, result, count) in ends {
        let result = result.as_deref().unwrap_or("lost");
        if result == "lost" {
            open += count;
            continue;
        }
        // Logs of removed containers are not counted in a pass that was not asked for logs.
        let Some(report) = word(&target).and_then(|target: Target| pass.targets.get_mut(&target))
        else {
            continue;
        };
        let counter = match result {
            "removed" => &mut report.removed,
            "already-gone" => &mut report.already_gone,
            "failed" => &mut report.failed,
            _ => &mut report.skipped,
        };
        // The oldest removals of a long pass may have made way; its last report has counted them.
        *counter = (*counter).max(count);
        report.count_remaining();
    }
    let ended = "the process ended in mid-pass";
    if pass.errors.iter().any(|error| error.starts_with(ended)) {
        // This version moved the pass here from a damaged file, with its error.
        return Ok(pass);
    }
    let mut text = ended.to_owned();
    if open > 0 {
        text.push_str(&format!(
            "; {open} more removals were about to begin or under way, and their results are not known"
        ));
    }
    pass.errors.push(text);
    Ok(pass)
}

/// Reads a value from the word that the API has for it.
fn word<T: DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(Value::from(word)).ok()
}

fn time(millis: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(millis).ok()
}

/// Writes a pass as JSON; cuts it if it is too long.
fn report(pass: &Pass) -> String {
    let text = |pass: &Pass| serde_json::to_string(pass).unwrap_or_default();
    let whole = text(pass);
    if whole.len() <= REPORT_MAX_BYTES {
        return whole;
    }
    let mut pass = pass.clone();
    shorten(&mut pass);
    text(&pass)
}

fn shorten(pass: &mut Pass) {
    if pass.errors.len() > ERRORS_MAX {
        pass.errors.truncate(ERRORS_MAX);
        pass.errors
            .push("further errors were in the log".to_owned());
    }
    for error in &mut pass.errors {
        *error = cut(error);
    }
    if let Some(alert) = &mut pass.trigger.alert {
        for text in [
            &mut alert.name,
            &mut alert.fingerprint,
            &mut alert.starts_at,
        ] {
            *text = cut(text);
        }
        alert.receiver = alert.receiver.as_deref().map(cut);
    }
    if let Some(by) = &mut pass.trigger.by {
        by.name = cut(&by.name);
    }
}

fn cut(text: &str) -> String {
    cut_at(text, TEXT_MAX)
}

fn cut_at(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max).collect();
    cut.push_str("...");
    cut
}
