//! Questions about the passes and removals in the database.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

use super::database::{Database, Error};
use super::filter::{NUMBERS, Question, ResultPage, Where, filter};
use super::journal::Journal;
use super::lock::held;
use super::parameters::Parameters;
use super::passes::cut_off;
use crate::model::{Cause, Outcome, Pass, PassState, RemoveReason, Target};

/// Most passes of one answer: a report has up to 16 KiB.
pub const PASSES_MAX: u32 = 200;
/// Most removals of one answer.
pub const REMOVALS_MAX: u32 = 1000;
/// How a removal ended, as the parameter `result` names it.
const RESULTS: [&str; 6] = [
    "removed",
    "already-gone",
    "skipped",
    "failed",
    "lost",
    "unknown",
];
filter! {
    /// Which passes, by when they were asked for; each field narrows the answer.
    PassFilter of "queued_at", at most PASSES_MAX {
        /// The pass with this id.
        id: String, "id = ?";
    } parameters {
        /// How it ended.
        outcome: String = |it, key| it.word(key, &Outcome::ALL.map(Outcome::label))?, "outcome = ?";
        /// What asked for it.
        cause: String = |it, key| it.word(key, &Cause::ALL.map(Cause::label))?, "cause = ?";
    }
}

filter! {
    /// Which removals, by when they began; each field narrows the answer.
    RemovalFilter of "intended_at", at most REMOVALS_MAX {} parameters {
        /// Of this pass.
        pass: String = |it, key| it.text(key), "pass_id = ?";
        /// Of this target; `all` narrows nothing.
        target: String = |it, key| {
            let words = [&Target::ALL.map(Target::label)[..], &["all"]].concat();
            it.word(key, &words)?.filter(|word| word != "all")
        }, "target = ?";
        /// Of the object with this id, or one that begins so.
        // Ids and paths are text; no character sorts behind this one.
        id: String = |it, key| it.text(key), "id >= ? AND id < ? || char(0x10FFFF)";
        /// Of the pod with this UID or name.
        pod: String = |it, key| it.text(key), "? IN (pod_uid, pod_name)";
        /// Of pods of this namespace.
        namespace: String = |it, key| it.text(key), "pod_namespace = ?";
        /// For this reason.
        reason: String = |it, key| it.word(key, &RemoveReason::ALL.map(RemoveReason::label))?, "reason = ?";
        /// With this result; `unknown`: without one.
        result: String = |it, key| it.word(key, &RESULTS)?, "result IS NULLIF(?, 'unknown')";
    }
}

/// A removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemovalRecord {
    /// Grows from removal to removal.
    pub number: i64,
    /// The pass.
    pub pass: String,
    /// Who or what asked for the pass, as its record has it.
    pub trigger: Option<serde_json::Value>,
    /// `containers`, `sandboxes`, `images` or `logs`.
    pub target: String,
    /// The object's id; a log's path.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its attempt.
    pub attempt: u32,
    /// Its pod's UID.
    pub pod_uid: Option<String>,
    /// Its pod's namespace.
    pub pod_namespace: Option<String>,
    /// Its pod's name.
    pub pod_name: Option<String>,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Why it was removed.
    pub reason: String,
    /// When the removal was written down, right before it.
    pub intended_at: Option<Timestamp>,
    /// `removed`, `already-gone`, `skipped`, `failed` or `lost`; `null`: the process ended before it was known.
    pub result: Option<String>,
    /// Class of a failure.
    pub class: Option<String>,
    /// Why it failed or was skipped.
    pub why: Option<String>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How long it took.
    pub duration_ms: Option<i64>,
    /// Freed bytes, if measured.
    pub freed_bytes: Option<i64>,
}

impl Journal {
    /// Returns a pass by its id; `None` if the database has none.
    ///
    /// # Errors
    /// If the database cannot be read in time.
    pub async fn pass(&self, id: &str) -> Result<Option<Pass>, Error> {
        let filter = PassFilter {
            id: Some(id.to_owned()),
            limit: 1,
            ..PassFilter::default()
        };
        Ok(self.ask(filter).await?.rows.pop())
    }
}

/// Returns the passes of the filter, read beside a service that may be writing; changes nothing. Where no process works on
/// the directory, an unfinished pass is interrupted, as the next start will write it down; when it ended is not known.
///
/// # Errors
/// If there is no database, or it cannot be read.
pub fn read_passes(dir: &Path, filter: &PassFilter) -> Result<ResultPage<Pass>, Error> {
    Database::read_beside(dir, |sql| {
        let mut page = filter.answer(sql)?;
        if held(dir).is_none() {
            for pass in page.rows.iter_mut().filter(|pass| !pass.is_done()) {
                *pass = cut_off(sql, pass.clone())?;
                pass.state = PassState::Done;
                pass.outcome = Some(Outcome::Interrupted);
            }
        }
        Ok(page)
    })
}

impl Question for PassFilter {
    type Answer = ResultPage<Pass>;

    fn answer(&self, sql: &Connection) -> rusqlite::Result<ResultPage<Pass>> {
        let select = "SELECT number, report FROM passes";
        // Skips a report that this version cannot read.
        self.conditions().page(sql, select, self.limit, |row| {
            let report: String = row.get(1)?;
            Ok((row.get(0)?, serde_json::from_str(&report).ok()))
        })
    }
}

impl Question for RemovalFilter {
    type Answer = ResultPage<RemovalRecord>;

    fn answer(&self, sql: &Connection) -> rusqlite::Result<ResultPage<RemovalRecord>> {
        let select = "SELECT number, pass_id, \
            (SELECT json_extract(report, '$.trigger') FROM passes WHERE passes.id = pass_id AND json_valid(report)), \
            target, id, name, attempt, pod_uid, pod_namespace, pod_name, created_at, reason, intended_at, result, \
            class, why, ended_at, duration_ms, freed_bytes FROM removals";
        let limit = self.limit.clamp(1, REMOVALS_MAX);
        self.conditions().page(sql, select, limit, |row| {
            Ok((row.get(0)?, Some(record(row)?)))
        })
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<RemovalRecord> {
    let time = |column| -> rusqlite::Result<Option<Timestamp>> {
        let millis: Option<i64> = row.get(column)?;
        Ok(millis.and_then(|millis| Timestamp::from_millisecond(millis).ok()))
    };
    let trigger: Option<String> = row.get(2)?;
    Ok(RemovalRecord {
        number: row.get(0)?,
        pass: row.get(1)?,
        trigger: trigger.and_then(|json| serde_json::from_str(&json).ok()),
        target: row.get(3)?,
        id: row.get(4)?,
        name: row.get(5)?,
        attempt: row.get(6)?,
        pod_uid: row.get(7)?,
        pod_namespace: row.get(8)?,
        pod_name: row.get(9)?,
        created_at: time(10)?,
        reason: row.get(11)?,
        intended_at: time(12)?,
        result: row.get(13)?,
        class: row.get(14)?,
        why: row.get(15)?,
        ended_at: time(16)?,
        duration_ms: row.get(17)?,
        freed_bytes: row.get(18)?,
    })
}
