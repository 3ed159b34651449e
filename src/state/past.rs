//! What the database says of the last 24 hours, summed up: how much litter came and went, who owned it, and how the
//! containers of some names ended.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, named_params};

use super::evidence::read;
use super::filter::Question;
use crate::model::{Evidence, PodOwner};

/// Most pods whose removals are counted one by one.
const PODS_MAX: u32 = 10_000;
/// Most evidence that is read for the owners of its pods, newest first.
const OWNERS_MAX: u32 = 10_000;
/// Most evidence of one container name.
const ENDS_MAX: u32 = 30;
const HOUR_MS: i64 = 3_600_000;

/// A question about the last 24 hours.
#[derive(Clone, Debug)]
pub struct PastQuestion {
    /// When it is asked.
    pub now: Timestamp,
    /// Whose ends are wanted: pod UIDs and container names.
    pub names: Vec<(String, String)>,
}

/// The last 24 hours.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// What was removed, pod by pod.
    pub removed: Vec<RemovedOfPod>,
    /// Who controlled pods, by UID; as far back as evidence goes.
    pub owners: BTreeMap<String, PodOwner>,
    /// How the containers of the wanted names ended, the newest of each name first; as far back as evidence goes.
    pub ends: Vec<Evidence>,
}

/// Number of removed objects of one pod that came in the last 24 hours. A container came at its exit if evidence has
/// that, else at its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedOfPod {
    /// `containers` or `sandboxes`.
    pub target: String,
    /// The pod's UID; `None`: of no pod.
    pub pod_uid: Option<String>,
    /// Its namespace.
    pub namespace: String,
    /// How many came in the last hour.
    pub came_1h: u64,
    /// How many came in the last 24 hours.
    pub came_24h: u64,
}

/// May take seconds, in which the service's own thread must keep evidence: ask beside it.
impl Question for PastQuestion {
    type Answer = Past;

    fn answer(&self, sql: &Connection) -> rusqlite::Result<Past> {
        Ok(Past {
            removed: removed(sql, self.now)?,
            owners: owners(sql)?,
            ends: ends(sql, &self.names)?,
        })
    }
}

fn removed(sql: &Connection, now: Timestamp) -> rusqlite::Result<Vec<RemovedOfPod>> {
    // An object that was removed before the last 24 hours also came before them.
    let question = "SELECT target, pod_uid, pod_namespace, SUM(came >= :hour), COUNT(*) FROM (\
            SELECT r.target, r.pod_uid, r.pod_namespace, COALESCE(\
                (SELECT 1000 * CAST(strftime('%s', json_extract(e.facts, '$.finished_at')) AS INTEGER) \
                 FROM evidence AS e WHERE e.container_id = r.id AND json_valid(e.facts)), \
                r.created_at) AS came \
            FROM removals AS r WHERE r.intended_at >= :day AND r.target IN ('containers', 'sandboxes') \
            AND r.result IN ('removed', 'already-gone')\
        ) WHERE came BETWEEN :day AND :soon GROUP BY target, pod_uid, pod_namespace ORDER BY COUNT(*) DESC LIMIT :most";
    let mut statement = sql.prepare_cached(question)?;
    let now = now.as_millisecond();
    let times = named_params! {
        ":hour": now.saturating_sub(HOUR_MS),
        ":day": now.saturating_sub(24 * HOUR_MS),
        // What lies further ahead comes from before a clock step back.
        ":soon": now.saturating_add(HOUR_MS / 12),
        ":most": PODS_MAX,
    };
    let rows = statement.query_map(times, |row| {
        Ok(RemovedOfPod {
            target: row.get(0)?,
            pod_uid: row.get(1)?,
            namespace: row.get::<_, Option<String>>(2)?.unwrap_or_default(),
            came_1h: row.get(3)?,
            came_24h: row.get(4)?,
        })
    })?;
    rows.collect()
}

fn owners(sql: &Connection) -> rusqlite::Result<BTreeMap<String, PodOwner>> {
    let mut statement = sql.prepare_cached(
        "SELECT pod_uid, owner_kind, owner_name, MAX(number) FROM (\
            SELECT * FROM evidence ORDER BY number DESC LIMIT ?\
         ) WHERE pod_uid IS NOT NULL AND owner_kind IS NOT NULL AND owner_name IS NOT NULL GROUP BY pod_uid",
    )?;
    let rows = statement.query_map([OWNERS_MAX], |row| {
        let (kind, name) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, PodOwner { kind, name }))
    })?;
    rows.collect()
}

fn ends(sql: &Connection, names: &[(String, String)]) -> rusqlite::Result<Vec<Evidence>> {
    let mut statement = sql.prepare_cached(
        "SELECT number, facts FROM evidence WHERE pod_uid = ? AND container = ? ORDER BY number DESC LIMIT ?",
    )?;
    let mut ends = Vec::new();
    for (uid, container) in names {
        let rows = statement.query_map((uid, container, ENDS_MAX), |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?))
        })?;
        for row in rows {
            let (number, facts) = row?;
            // Skips facts that this version cannot read.
            ends.extend(read(number, &facts));
        }
    }
    Ok(ends)
}
