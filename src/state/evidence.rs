//! Evidence of removed containers in the database: written, bounded, asked for.
//!
//! On a disk with little room it takes no more than it has: the room that passes claimed stays theirs.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, named_params};

use super::database::{DISK_RESERVE_BYTES, Database, Error, Sync, Writing, evidence_room as room};
use super::filter::{NUMBERS, Question, ResultPage, Where, filter};
use super::journal::{Journal, PATIENCE};
use super::parameters::Parameters;
use super::passes::NOW;
use crate::model::{CLOCK_SET_SECONDS, Evidence, is_set};

/// A page of the database: the unit in which a row's size is counted.
const PAGE_BYTES: u64 = 4096;
/// Bytes of a row beside its facts and its log, and of its rows in the indexes.
const ROW_BYTES: u64 = 512;
/// The part of the bound that is freed at a time, once it is reached.
const FREED_PART: u64 = 20;
/// The shortest beginning of a container's id that names it.
pub const ID_PREFIX_MIN: usize = 6;
/// Most evidence of one answer.
const EVIDENCE_MAX: u32 = 1000;
/// How much evidence is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceBounds {
    /// All of it, at most.
    pub max_bytes: u64,
    /// Its age, at most.
    pub max_age: Option<Duration>,
    /// Whether the first and the last of a container's name make way after those between them.
    pub keep_first: bool,
    /// Whether a crash of the node right after must not lose it.
    pub is_durable: bool,
}

/// What is in the database after a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceRoom {
    /// Room that all evidence takes.
    pub bytes: u64,
    /// Evidence that made way.
    pub dropped: u64,
}

filter! {
    /// Which evidence, by when it was kept; each field narrows the answer.
    EvidenceFilter of "kept_at", at most EVIDENCE_MAX {} parameters {
        /// Of the pod with this UID or name.
        pod: String = |it, key| it.text(key), "? IN (pod_uid, pod_name)";
        /// Of pods of this namespace.
        namespace: String = |it, key| it.text(key), "pod_namespace = ?";
        /// Of pods of the owner with this name, or `Kind/name`.
        owner: String = |it, key| it.text(key), "? IN (owner_name, owner_kind || '/' || owner_name)";
        /// Of the container with this name, or with an id that begins so (at least 6 characters).
        // Ids are text; no character sorts behind this one.
        container: String = |it, key| it.text(key),
            "(container = ? OR length(?) >= 6 AND container_id >= ? AND container_id < ? || char(0x10FFFF))";
        /// With this exit code.
        exit_code: i32 = |it, key| it.number(key, &(i32::MIN.into()..=i32::MAX.into()))?, "exit_code = ?";
    }
}

/// Which evidence has this number, or is of the container with this id or beginning of one.
#[derive(Clone, Debug)]
pub struct EvidenceOf(pub String);

/// The answer for one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvidenceFound {
    /// There is none.
    None,
    /// Several containers' ids begin so.
    Several,
    /// The evidence, and its log's end (zstd).
    One(Box<Evidence>, Vec<u8>),
}

#[derive(Debug)]
struct NewEvidence {
    evidence: Evidence,
    log: Vec<u8>,
    bounds: EvidenceBounds,
}

impl Journal {
    /// Writes evidence, in place of earlier one of the same container, and waits for that: at most `at_most`.
    ///
    /// # Errors
    /// If it is not known to be written.
    pub async fn keep_evidence(
        &self,
        evidence: Evidence,
        log: Vec<u8>,
        bounds: EvidenceBounds,
        at_most: Duration,
    ) -> Result<EvidenceRoom, Error> {
        let what = NewEvidence {
            evidence,
            log,
            bounds,
        };
        self.change(at_most, move |database| keep(database, &what))
            .await
    }

    /// Drops the evidence that is older than `max_age` by now.
    ///
    /// # Errors
    /// If it is not known to be gone.
    pub async fn drop_old_evidence(
        &self,
        max_age: Option<Duration>,
    ) -> Result<EvidenceRoom, Error> {
        self.change(PATIENCE, move |database| drop_aged(database, max_age))
            .await
    }
}

fn keep(database: &mut Database, keep: &NewEvidence) -> Result<EvidenceRoom, Error> {
    let facts = serde_json::to_string(&keep.evidence).unwrap_or_default();
    let bytes = (facts.len() + keep.log.len()) as u64 + ROW_BYTES;
    let needed = bytes.next_multiple_of(PAGE_BYTES);
    let mut max = keep.bounds.max_bytes;
    if database.disk_free() < DISK_RESERVE_BYTES {
        max = max.min(room(database.connection())?);
    }
    if needed > max {
        return Err(Error::NoRoom);
    }
    let sync = if keep.bounds.is_durable {
        Sync::Now
    } else {
        Sync::Later
    };
    database.write(sync, |writing| put(writing, keep, &facts, needed, max))
}

fn put(
    writing: &Writing<'_>,
    keep: &NewEvidence,
    facts: &str,
    needed: u64,
    max: u64,
) -> rusqlite::Result<EvidenceRoom> {
    let (sql, evidence) = (writing.sql, &keep.evidence);
    // Tried again, it takes the place of its earlier evidence, also as the first of its name.
    let was_first = sql
        .prepare_cached("DELETE FROM evidence WHERE container_id = ? RETURNING is_first")?
        .query_row([&evidence.container_id], |row| row.get(0))
        .optional()?
        .unwrap_or(false);
    let mut dropped = drop_old(sql, evidence.kept_at, keep.bounds.max_age)?;
    let taken = room(sql)?;
    if taken + needed > max {
        let surplus = taken + needed - max + max / FREED_PART;
        dropped += make_room(sql, surplus, keep.bounds.keep_first)?;
    }
    let (pod, owner) = (evidence.pod.as_ref(), evidence.owner.as_ref());
    let insert = "INSERT INTO evidence (container_id, kept_at, pod_uid, pod_namespace, pod_name, owner_kind, owner_name, \
        container, exit_code, is_first, room, facts, log) \
        VALUES (:id, :kept_at, :uid, :namespace, :pod, :owner_kind, :owner_name, :container, :exit_code, \
        :was_first OR NOT EXISTS (SELECT 1 FROM evidence WHERE pod_uid IS :uid AND container = :container), \
        :room, :facts, :log)";
    sql.prepare_cached(insert)?.execute(named_params! {
        ":id": evidence.container_id,
        ":kept_at": evidence.kept_at.as_millisecond(),
        ":uid": pod.map(|pod| &pod.uid),
        ":namespace": pod.map(|pod| &pod.namespace),
        ":pod": pod.map(|pod| &pod.name),
        ":owner_kind": owner.map(|owner| &owner.kind),
        ":owner_name": owner.map(|owner| &owner.name),
        ":container": evidence.container,
        ":exit_code": evidence.exit_code,
        ":was_first": was_first,
        ":room": i64::try_from(needed).unwrap_or(i64::MAX),
        ":facts": facts,
        ":log": keep.log,
    })?;
    let bytes = room(sql)?;
    Ok(EvidenceRoom { bytes, dropped })
}

fn drop_aged(database: &mut Database, max_age: Option<Duration>) -> Result<EvidenceRoom, Error> {
    let sql = database.connection();
    let now: i64 = sql.query_row(&format!("SELECT {NOW}"), [], |row| row.get(0))?;
    let now = Timestamp::from_millisecond(now).unwrap_or(Timestamp::UNIX_EPOCH);
    if let Some(age) = max_age
        && let Err(error) = database.remove_aside(before(now, age))
    {
        tracing::debug!(%error, "an old database that was set aside could not be removed");
    }
    let oldest: Option<i64> =
        sql.query_row("SELECT min(kept_at) FROM evidence", [], |row| row.get(0))?;
    // A write makes room for itself, so nothing is written in vain.
    let is_old = max_age
        .zip(oldest)
        .is_some_and(|(age, oldest)| oldest < before(now, age));
    if !is_old {
        let (bytes, dropped) = (room(sql)?, 0);
        return Ok(EvidenceRoom { bytes, dropped });
    }
    database.write(Sync::Later, |writing| {
        let dropped = drop_old(writing.sql, now, max_age)?;
        let bytes = room(writing.sql)?;
        Ok(EvidenceRoom { bytes, dropped })
    })
}

/// Returns the time, in milliseconds, before which evidence is older than this age.
fn before(now: Timestamp, age: Duration) -> i64 {
    let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    now.as_millisecond().saturating_sub(age)
}

/// What was kept by a clock that was not set counts from now. What was kept after younger evidence is not old either:
/// the clock was behind then.
fn drop_old(sql: &Connection, now: Timestamp, max_age: Option<Duration>) -> rusqlite::Result<u64> {
    let Some(max_age) = max_age else {
        return Ok(0);
    };
    let (before, millis) = (before(now, max_age), now.as_millisecond());
    if is_set(now) {
        let unset = "UPDATE evidence SET kept_at = ? WHERE kept_at < ?";
        let bounds = [millis, CLOCK_SET_SECONDS * 1000];
        sql.prepare_cached(unset)?.execute(bounds)?;
    }
    let old = "DELETE FROM evidence WHERE kept_at < ?1 AND number < \
        coalesce((SELECT min(number) FROM evidence WHERE kept_at BETWEEN ?1 AND ?2), 9223372036854775807)";
    let dropped = sql.prepare_cached(old)?.execute([before, millis])?;
    Ok(dropped as u64)
}

/// Drops the oldest evidence until so much is free.
fn make_room(sql: &Connection, surplus: u64, keep_first: bool) -> rusqlite::Result<u64> {
    const BETWEEN: &str = "SELECT number, room FROM evidence AS it WHERE NOT is_first AND EXISTS \
        (SELECT 1 FROM evidence WHERE pod_uid IS it.pod_uid AND container = it.container AND number > it.number) \
        ORDER BY number";
    const ALL: &str = "SELECT number, room FROM evidence ORDER BY number";
    let (mut freed, mut dropped) = (0, 0);
    for (question, is_asked) in [(BETWEEN, keep_first), (ALL, true)] {
        if freed >= surplus || !is_asked {
            continue;
        }
        let mut goes = Vec::new();
        let mut statement = sql.prepare_cached(question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()?.filter(|_| freed < surplus) {
            let bytes: i64 = row.get(1)?;
            freed += u64::try_from(bytes).unwrap_or(0);
            goes.push(row.get::<_, i64>(0)?);
        }
        drop(rows);
        for number in goes {
            dropped += sql.execute("DELETE FROM evidence WHERE number = ?", [number])? as u64;
        }
    }
    Ok(dropped)
}

impl Question for EvidenceFilter {
    type Answer = ResultPage<Evidence>;

    fn answer(&self, sql: &Connection) -> rusqlite::Result<ResultPage<Evidence>> {
        let (select, limit) = ("SELECT number, facts FROM evidence", self.limit);
        let limit = limit.clamp(1, EVIDENCE_MAX);
        // Skips facts that this version cannot read.
        self.conditions().page(sql, select, limit, |row| {
            let (number, facts): (i64, String) = (row.get(0)?, row.get(1)?);
            Ok((number, read(number, &facts)))
        })
    }
}

impl Question for EvidenceOf {
    type Answer = EvidenceFound;

    fn answer(&self, sql: &Connection) -> rusqlite::Result<EvidenceFound> {
        let (id, select) = (&self.0, "SELECT number, facts, log FROM evidence");
        let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<_> {
            let facts: String = row.get(1)?;
            Ok((read(row.get(0)?, &facts), row.get::<_, Vec<u8>>(2)?))
        };
        let mut found = Vec::new();
        if id.len() >= ID_PREFIX_MIN {
            let by_id = format!("{select} WHERE container_id >= ? AND container_id < ? LIMIT 2");
            let mut statement = sql.prepare_cached(&by_id)?;
            // Ids are text; no character sorts behind this one.
            let rows = statement.query_map([id, &format!("{id}\u{10FFFF}")], row)?;
            found = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        }
        if found.is_empty()
            && let Ok(number) = id.parse::<i64>()
        {
            let by_number = format!("{select} WHERE number = ?");
            found.extend(sql.query_row(&by_number, [number], row).optional()?);
        }
        if found.len() > 1 {
            return Ok(EvidenceFound::Several);
        }
        Ok(match found.pop() {
            Some((Some(evidence), log)) => EvidenceFound::One(Box::new(evidence), log),
            Some((None, _)) | None => EvidenceFound::None,
        })
    }
}

pub(super) fn read(number: i64, facts: &str) -> Option<Evidence> {
    let evidence: Evidence = serde_json::from_str(facts).ok()?;
    let number = u64::try_from(number).unwrap_or(0);
    Some(Evidence { number, ..evidence })
}
