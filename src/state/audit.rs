//! Questions about the passes and removals in the database.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use serde::{Deserialize, Serialize};

use super::database::{Database, Error};
use super::journal::Journal;
use super::lock::held;
use super::passes::cut_off;
use crate::model::{Outcome, Pass, PassState};

/// Most passes of one answer: a report has up to 16 KiB.
pub const PASSES_MAX: u32 = 200;
/// Most removals of one answer.
pub const REMOVALS_MAX: u32 = 1000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which passes; each field narrows the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassFilter {
    /// The pass with this id.
    pub id: Option<String>,
    /// How it ended.
    pub outcome: Option<String>,
    /// What asked for it.
    pub cause: Option<String>,
    /// Asked for at or after this time.
    pub since: Option<Timestamp>,
    /// Asked for before this time.
    pub until: Option<Timestamp>,
    /// Older than the pass with this number: the next page.
    pub before: Option<i64>,
    /// Most passes.
    pub limit: u32,
}

/// Which removals; each field narrows the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalFilter {
    /// Of this pass.
    pub pass: Option<String>,
    /// Of this target.
    pub target: Option<String>,
    /// Of the object with this id, or one that begins so.
    pub id: Option<String>,
    /// Of the pod with this UID or name.
    pub pod: Option<String>,
    /// Of pods of this namespace.
    pub namespace: Option<String>,
    /// For this reason.
    pub reason: Option<String>,
    /// With this result; `unknown`: without one.
    pub result: Option<String>,
    /// Begun at or after this time.
    pub since: Option<Timestamp>,
    /// Begun before this time.
    pub until: Option<Timestamp>,
    /// Older than the removal with this number: the next page.
    pub before: Option<i64>,
    /// Most removals.
    pub limit: u32,
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

/// A page of rows, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// What `before` must be for the next page; `None`: this is the last one.
    pub next: Option<i64>,
}

impl Journal {
    /// Returns the passes of the filter.
    ///
    /// # Errors
    /// If the database cannot be read in time.
    pub async fn passes(&self, filter: PassFilter) -> Result<Page<Pass>, Error> {
        self.read(PATIENCE, move |sql| passes(sql, &filter)).await
    }

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
        Ok(self.passes(filter).await?.rows.pop())
    }

    /// Returns the removals of the filter.
    ///
    /// # Errors
    /// If the database cannot be read in time.
    pub async fn removals(&self, filter: RemovalFilter) -> Result<Page<RemovalRecord>, Error> {
        self.read(PATIENCE, move |sql| removals(sql, &filter)).await
    }
}

/// Returns the passes of the filter, read beside a service that may be writing; changes nothing. Where no process works on
/// the directory, an unfinished pass is interrupted, as the next start will write it down; when it ended is not known.
///
/// # Errors
/// If there is no database, or it cannot be read.
pub fn read_passes(dir: &Path, filter: &PassFilter) -> Result<Page<Pass>, Error> {
    let sql = Database::peek(dir)?;
    let mut page = passes(&sql, filter)?;
    if held(dir).is_none() {
        for pass in page.rows.iter_mut().filter(|pass| !pass.is_done()) {
            *pass = cut_off(&sql, pass.clone())?;
            pass.state = PassState::Done;
            pass.outcome = Some(Outcome::Interrupted);
        }
    }
    Ok(page)
}

/// Returns the removals of the filter in the same way.
///
/// # Errors
/// If there is no database, or it cannot be read.
pub fn read_removals(dir: &Path, filter: &RemovalFilter) -> Result<Page<RemovalRecord>, Error> {
    Ok(removals(&Database::peek(dir)?, filter)?)
}

/// The conditions of a question, and their values.
#[derive(Default)]
pub(super) struct Where {
    conditions: Vec<&'static str>,
    values: Vec<Value>,
}

impl Where {
    pub(super) fn add<T: Into<Value>>(&mut self, condition: &'static str, value: Option<T>) {
        if let Some(value) = value {
            self.conditions.push(condition);
            self.values.push(value.into());
        }
    }

    /// Asks for the newest rows, and for one more than the page holds: it tells whether there is another page.
    pub(super) fn page<T>(
        mut self,
        sql: &Connection,
        select: &str,
        limit: u32,
        read: impl Fn(&Row<'_>) -> rusqlite::Result<(i64, T)>,
    ) -> rusqlite::Result<Page<T>> {
        self.values.push(Value::Integer(i64::from(limit) + 1));
        let all = if self.conditions.is_empty() {
            "TRUE".to_owned()
        } else {
            self.conditions.join(" AND ")
        };
        let question = format!("{select} WHERE {all} ORDER BY number DESC LIMIT ?");
        let mut statement = sql.prepare(&question)?;
        let rows = statement.query_map(params_from_iter(self.values), |row| read(row))?;
        let mut rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_last = rows.len() <= limit;
        rows.truncate(limit);
        let next = rows.last().map(|(number, _)| *number).filter(|_| !is_last);
        Ok(Page {
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            next,
        })
    }
}

fn passes(sql: &Connection, filter: &PassFilter) -> rusqlite::Result<Page<Pass>> {
    let mut narrowed = Where::default();
    narrowed.add("id = ?", filter.id.clone());
    narrowed.add("outcome = ?", filter.outcome.clone());
    narrowed.add("cause = ?", filter.cause.clone());
    narrowed.add(
        "queued_at >= ?",
        filter.since.map(Timestamp::as_millisecond),
    );
    narrowed.add("queued_at < ?", filter.until.map(Timestamp::as_millisecond));
    narrowed.add("number < ?", filter.before);
    let page = narrowed.page(
        sql,
        "SELECT number, report FROM passes",
        filter.limit,
        |row| Ok((row.get(0)?, row.get::<_, String>(1)?)),
    )?;
    // Skips a report that this version cannot read.
    let passes = page.rows.iter().map(|report| serde_json::from_str(report));
    Ok(Page {
        rows: passes.filter_map(Result::ok).collect(),
        next: page.next,
    })
}

fn removals(sql: &Connection, filter: &RemovalFilter) -> rusqlite::Result<Page<RemovalRecord>> {
    let mut narrowed = Where::default();
    narrowed.add("pass_id = ?", filter.pass.clone());
    narrowed.add("target = ?", filter.target.clone());
    if let Some(id) = &filter.id {
        narrowed.add("id >= ?", Some(id.clone()));
        // Ids and paths are text; no character sorts behind this one.
        narrowed.add("id < ?", Some(format!("{id}\u{10FFFF}")));
    }
    narrowed.add("? IN (pod_uid, pod_name)", filter.pod.clone());
    narrowed.add("pod_namespace = ?", filter.namespace.clone());
    narrowed.add("reason = ?", filter.reason.clone());
    match filter.result.as_deref() {
        Some("unknown") => narrowed.conditions.push("result IS NULL"),
        result => narrowed.add("result = ?", result.map(str::to_owned)),
    }
    narrowed.add(
        "intended_at >= ?",
        filter.since.map(Timestamp::as_millisecond),
    );
    narrowed.add(
        "intended_at < ?",
        filter.until.map(Timestamp::as_millisecond),
    );
    narrowed.add("number < ?", filter.before);
    let select = "SELECT number, pass_id, \
        (SELECT json_extract(report, '$.trigger') FROM passes WHERE passes.id = pass_id AND json_valid(report)), \
        target, id, name, attempt, pod_uid, pod_namespace, pod_name, created_at, reason, intended_at, result, class, \
        why, ended_at, duration_ms, freed_bytes FROM removals";
    let limit = filter.limit.clamp(1, REMOVALS_MAX);
    narrowed.page(sql, select, limit, |row| Ok((row.get(0)?, record(row)?)))
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
