//! How long the kubelet needs for its first full relist after a restart, and when the lists outgrow their limits.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use super::litter::Litter;
use super::report::{many, percent};
use super::{DoctorFacts, Finding, Severity};
use crate::model::{short_duration, short_size};
use crate::snapshot::Weight;

/// The kubelet calls its node not ready when no relist ended for this long.
const RELIST_MAX: Duration = Duration::from_secs(180);
/// A part of the relist by dead containers that is worth a change.
const RELIST_DEAD: Duration = Duration::from_secs(10);
/// The share of a list's limit from which on it is near.
const NEAR: f64 = 0.75;
/// Hours to the limit that are few.
const HOURS_FEW: u64 = 48;

pub(super) fn findings(facts: &DoctorFacts, litter: &Litter) -> Vec<Finding> {
    let (containers, sandboxes) = facts.row_bytes();
    let lists = [
        LoadedList {
            name: "containers",
            weight: facts.weights.containers,
            row_bytes: containers,
            rows: facts.containers.len(),
            dead: facts.dead().count(),
            is_read: facts.lists_read.containers,
        },
        LoadedList {
            name: "sandboxes",
            weight: facts.weights.sandboxes,
            row_bytes: sandboxes,
            rows: facts.sandboxes.len(),
            dead: facts.not_ready().count(),
            is_read: facts.lists_read.sandboxes,
        },
    ];
    let polls = facts.config.thresholds.enabled;
    let lists = lists.iter().filter_map(|it| list(it, litter, polls));
    restart(facts).into_iter().chain(lists).collect()
}

fn restart(facts: &DoctorFacts) -> Option<Finding> {
    let latency = facts.latency?;
    let (all, dead) = (facts.containers.len(), facts.dead().count());
    let times = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let time = |count: usize| latency.mean.saturating_mul(times(count));
    let (relist, of_dead) = (time(all), time(dead));
    let severity = match () {
        () if relist >= RELIST_MAX && dead > 0 => Severity::Problem,
        () if of_dead >= RELIST_DEAD => Severity::Advice,
        () => Severity::Info,
    };
    let words = |it: Duration| match it.as_secs() {
        0..10 => format!("{:.1}s", it.as_secs_f64()),
        _ => short_duration(SignedDuration::try_from(it).unwrap_or(SignedDuration::MAX)),
    };
    let (row, _) = facts.row_bytes();
    let (change, cost) = if severity == Severity::Info {
        ("none needed".to_owned(), 0)
    } else {
        let max = facts.config.policy.containers.max_dead;
        let change = format!(
            "remove dead containers before the restart: crisweep gc --target containers; a lower \
             policy.containers.max_dead (now {}) keeps them few",
            serde_json::to_string(&max).unwrap_or_default()
        );
        (change, row.saturating_mul(dead as u64))
    };
    let finding = Finding::new(
        "kubelet-restart",
        severity,
        format!(
            "After its next restart the kubelet asks for the status of {} before its first full relist: about {}, of \
             which {} for dead ones.",
            many(all as u64, "container"),
            words(relist),
            words(of_dead),
        ),
        change,
        json!({
            "containers": all, "dead_containers": dead,
            "status_seconds": latency.mean.as_secs_f64(), "statuses_asked": latency.calls,
            "relist_seconds": relist.as_secs_f64(), "relist_seconds_of_dead": of_dead.as_secs_f64(),
            "not_ready_after_seconds": RELIST_MAX.as_secs(),
        }),
    );
    Some(finding.costing(cost))
}

/// What fills a list.
struct LoadedList {
    name: &'static str,
    weight: Weight,
    row_bytes: u64,
    rows: usize,
    dead: usize,
    is_read: bool,
}

impl LoadedList {
    /// Returns the change that makes it lighter; `polls`: thresholds ask for passes.
    fn change(&self, severity: Severity, polls: bool) -> &'static str {
        let is_near = self.weight.ratio().is_some_and(|ratio| ratio >= NEAR);
        let lives = is_near && self.dead.saturating_mul(10) < self.rows;
        match severity {
            Severity::Info => "none needed",
            Severity::Problem if !self.is_read => {
                "crisweep cannot read it either: make it smaller by hand, as docs/runbooks/CrisweepListFailing.md says"
            }
            _ if lives => {
                "what weighs lives: move pods away, or give them fewer labels and annotations"
            }
            Severity::Problem => "crisweep gc: it removes until the list fits",
            Severity::Advice if polls => {
                "lower policy.containers.max_dead and policy.sandboxes.max_dead"
            }
            Severity::Advice => {
                "lower policy.containers.max_dead and policy.sandboxes.max_dead, and set thresholds.enabled to true"
            }
        }
    }
}

fn list(it: &LoadedList, litter: &Litter, polls: bool) -> Option<Finding> {
    let (name, weight, row_bytes) = (it.name, it.weight, it.row_bytes);
    let (bytes, limit, ratio) = (weight.bytes?, weight.limit_bytes, weight.ratio()?);
    let room = limit.saturating_sub(bytes);
    let rows = room.checked_div(row_bytes);
    let (hour, day) = (litter.total.came_1h, litter.total.came_24h);
    // Containers and sandboxes come in about equal numbers; all of both is the faster, and so the safer guess.
    let per_hour = hour.max(day.div_ceil(24));
    let hours = rows.and_then(|rows| rows.checked_div(per_hour));
    let is_over = weight.is_over()?;
    let severity = match hours {
        _ if is_over => Severity::Problem,
        _ if ratio >= NEAR => Severity::Advice,
        Some(hours) if hours < HOURS_FEW => Severity::Advice,
        _ => Severity::Info,
    };
    let at = format!(
        "The list of {name} has {} of the {} that the kubelet can read ({} %)",
        short_size(bytes),
        short_size(limit),
        percent(ratio)
    );
    let until = match (rows, hours) {
        _ if is_over => ": the kubelet is blind, and collects nothing until it fits".to_owned(),
        (Some(rows), Some(hours)) => format!(
            "; {rows} more fit, which is {} if nothing were removed",
            short_duration(SignedDuration::from_hours(
                i64::try_from(hours.min(87_600)).unwrap_or(0)
            ))
        ),
        (Some(rows), None) => format!("; {rows} more fit, and none came in the last 24 h"),
        (None, _) => String::new(),
    };
    let finding = Finding::new(
        if is_over {
            "list-over-limit"
        } else {
            "list-limit"
        },
        severity,
        format!("{at}{until}."),
        it.change(severity, polls),
        json!({
            "list": name, "bytes": bytes, "limit_bytes": limit, "row_bytes": row_bytes, "rows_that_fit": rows,
            "came_1h": hour, "came_24h": day, "hours_to_limit": hours,
        }),
    );
    Some(finding.costing(if severity == Severity::Info { 0 } else { bytes }))
}
