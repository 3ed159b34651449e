//! Plans and passes as text that fits a terminal of 80 columns.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use comfy_table::{ContentArrangement, Table, presets};
use jiff::{SignedDuration, Timestamp};

use super::figures::{figures_text, short_size};
use crate::gc::{Kept, Plan, Subject, Summary};
use crate::model::{Images, Outcome, Pass, Pods, Snapshot, Target, escape, short_duration};

/// Rows shown without `--all`.
pub(super) const ROWS: usize = 20;
/// The narrowest usual terminal.
const COLUMNS: usize = 80;
/// Columns left for the object's name.
const NAME_COLUMNS: usize = 28;

/// Returns an empty table for a terminal.
pub(in crate::cli) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table
}

/// Formats a plan for a person: the counts, then the removals pod by pod; with `all` every row and the
/// details of each verdict.
pub(super) fn plan_text(plan: &Plan, snapshot: &Snapshot, all: bool) -> String {
    let mut text = counts(&plan.summary);
    for line in unknown(plan, snapshot) {
        text.push_str(&format!("\n{}\n", escape::line(&line)));
    }
    let lead = |verdict: &str, reason: &str| format!("{verdict:<7} {reason:<15}");
    let removed = plan.removals.iter().map(|removal| Row {
        subject: &removal.subject,
        lead: lead("remove", removal.reason.label()),
        name_columns: NAME_COLUMNS,
        detail: removal.detail.to_string(),
    });
    let kept = plan.kept.iter().map(|kept| Row {
        subject: &kept.subject,
        lead: lead("keep", kept.reason.label()),
        name_columns: NAME_COLUMNS,
        detail: quarantine(kept, plan.taken_at).unwrap_or_else(|| kept.detail.to_string()),
    });
    let shown: Vec<Row<'_>> = if all {
        removed.chain(kept).collect()
    } else {
        removed.take(ROWS).collect()
    };
    if shown.is_empty() {
        return text;
    }
    text.push_str(&rows_text(
        &lead("VERDICT", "REASON"),
        &shown,
        plan.taken_at,
        all,
    ));
    let left_out = plan.removals.len().saturating_sub(ROWS);
    if !all && left_out > 0 {
        text.push_str(&format!(
            "\n... and {left_out} more would be removed: --all shows every object with its reason\n"
        ));
    }
    text
}

/// Formats objects pod by pod, below a header; `lead` is the header of their first columns.
pub(super) fn rows_text(lead: &str, rows: &[Row<'_>], now: Timestamp, with_detail: bool) -> String {
    let width = rows.first().map_or(NAME_COLUMNS, |row| row.name_columns);
    let mut text = format!("\n  {lead} {:<width$} {:<9} ID\n", "WHAT", "AGE");
    for (title, rows) in by_pod(rows) {
        text.push_str(&format!("{title}\n"));
        for row in rows {
            row.write(now, with_detail, &mut text);
        }
    }
    text
}

/// One object of a plan.
pub(super) struct Row<'a> {
    /// The object.
    pub(super) subject: &'a Subject,
    /// The first columns: what is decided about it.
    pub(super) lead: String,
    /// Columns left for its name.
    pub(super) name_columns: usize,
    /// The facts behind the decision.
    pub(super) detail: String,
}

impl Row<'_> {
    fn write(&self, now: Timestamp, with_detail: bool, text: &mut String) {
        let (subject, kind, width) = (self.subject, self.kind(), self.name_columns);
        let name = match subject.target {
            Target::Containers => format!("{kind} {} #{}", subject.name, subject.attempt),
            Target::Sandboxes => format!("{kind} #{}", subject.attempt),
            Target::Logs => format!("{kind} {}", subject.name),
            Target::Images => subject.name.to_string(),
        };
        let line = format!(
            "  {} {:<width$} {:<9} {}",
            self.lead,
            clipped(&escape::line(&name), width),
            short_duration(SignedDuration::from_secs(subject.age_seconds)),
            self.short_id(),
        );
        text.push_str(line.trim_end());
        text.push('\n');
        if subject.target == Target::Logs {
            // The beginning of a path is not distinctive.
            text.push_str(&format!("      {}\n", escape::line(&subject.id)));
        }
        if subject.target == Target::Images {
            text.push_str(&format!("      {}\n", image_words(subject, now)));
        }
        if with_detail && !self.detail.is_empty() {
            text.push_str(&wrapped(&escape::line(&self.detail), ' ', 6));
        }
    }

    fn kind(&self) -> &'static str {
        match self.subject.target {
            Target::Containers => "container",
            Target::Sandboxes => "sandbox",
            Target::Logs => "log",
            Target::Images => "image",
        }
    }

    fn short_id(&self) -> String {
        let id = &self.subject.id;
        match self.subject.target {
            Target::Logs => String::new(),
            Target::Containers | Target::Sandboxes | Target::Images => id
                .strip_prefix("sha256:")
                .unwrap_or(id)
                .chars()
                .take(12)
                .collect(),
        }
    }

    fn title(&self) -> String {
        let Some(pod) = &self.subject.pod else {
            return match self.subject.target {
                Target::Images => "images".to_owned(),
                Target::Logs => "logs".to_owned(),
                Target::Containers | Target::Sandboxes => "not of the kubelet".to_owned(),
            };
        };
        let state = serde_json::to_string(&self.subject.pod_state).unwrap_or_default();
        let state = state.trim_matches('"');
        let name = clipped(
            &escape::line(&format!("{}/{}", pod.namespace, pod.name)),
            COLUMNS - state.len() - 3,
        );
        format!("{name} ({state})")
    }
}

/// Groups rows by pod, in the order of their first row.
fn by_pod<'a>(rows: &'a [Row<'a>]) -> Vec<(String, Vec<&'a Row<'a>>)> {
    let mut places = BTreeMap::new();
    let mut groups: Vec<(String, Vec<&Row<'_>>)> = Vec::new();
    for row in rows {
        let title = row.title();
        let key = (row.subject.pod.as_ref().map(|pod| &pod.uid), title.clone());
        let place = *places.entry(key).or_insert_with(|| {
            groups.push((title, Vec::new()));
            groups.len() - 1
        });
        if let Some((_, group)) = groups.get_mut(place) {
            group.push(row);
        }
    }
    groups
}

/// Returns for each target how many objects are removed and kept, and for which reasons.
pub(super) fn counts(summaries: &BTreeMap<Target, Summary>) -> String {
    let mut text = String::new();
    for (target, summary) in summaries {
        let remove = reasons(summary.remove.iter().map(|(why, n)| (why.label(), n)));
        let keep = reasons(summary.keep.iter().map(|(why, n)| (why.label(), n)));
        text.push_str(&line(
            *target,
            "remove",
            summary.remove.values().sum(),
            &remove,
        ));
        text.push_str(&line(*target, "keep", summary.keep.values().sum(), &keep));
    }
    text
}

fn reasons<'a>(counts: impl Iterator<Item = (&'a str, impl Display)>) -> Vec<String> {
    counts.map(|(why, n)| format!("{why} {n}")).collect()
}

/// Breaks a text into indented lines after `mark`s.
fn wrapped(text: &str, mark: char, indent: usize) -> String {
    wrapped_at(COLUMNS, text, mark, indent)
}

/// Breaks a text into indented lines of at most so many columns after `mark`s.
pub(in crate::cli) fn wrapped_at(columns: usize, text: &str, mark: char, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(mark) {
        match lines.last_mut() {
            Some(line)
                if indent + line.chars().count() + part.trim_end().chars().count() <= columns =>
            {
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    let indented = lines
        .iter()
        .map(|line| format!("{:indent$}{}\n", "", line.trim_end()));
    indented.collect()
}

/// Cuts a text that is longer than so many columns.
pub(in crate::cli) fn clipped(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let start: String = text.chars().take(columns - 1).collect();
    format!("{start}…")
}

/// Lists what the plan's snapshot does not have, which may be why objects stay.
fn unknown(plan: &Plan, snapshot: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    if !snapshot.seen.is_all() {
        lines.push(
            "the runtime's lists could not be read completely; only what is certain is removed"
                .to_owned(),
        );
    }
    if plan.pods_from_cache {
        lines.push(
            "the pods are those of the API server's watch cache; a pass asks the API server itself"
                .to_owned(),
        );
    }
    if let Pods::Unknown(why) = &snapshot.pods {
        lines.push(format!(
            "the pods are unknown: {why}; only surplus is removed"
        ));
    }
    if plan.summary.contains_key(&Target::Logs) {
        let why = snapshot.logs.unread.iter().chain(&snapshot.logs.unwritable);
        lines.extend(why.map(|why| format!("logs cannot be reached: {why}")));
    }
    if let (true, Images::Unknown(why)) =
        (plan.summary.contains_key(&Target::Images), &snapshot.images)
    {
        lines.push(format!("the images are unknown: {why}"));
    }
    lines
}

fn line(target: Target, verdict: &str, count: usize, reasons: &[String]) -> String {
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    };
    let text = format!("{target}: {verdict} {count}{reasons}");
    if text.len() <= COLUMNS {
        return format!("{text}\n");
    }
    let (first, rest) = text.split_once('(').unwrap_or((&text, ""));
    format!(
        "{}\n{}",
        first.trim_end(),
        wrapped(&format!("({rest}"), ' ', 4)
    )
}

/// Returns how a quarantined sandbox failed and when it is tried again.
fn quarantine(kept: &Kept, now: Timestamp) -> Option<String> {
    let known = kept.quarantine.as_ref()?;
    let (class, left) = (
        known.class.label(),
        short_duration(known.next_try.duration_since(now)),
    );
    Some(format!(
        "{} ({class}, next try in {left})",
        kept.reason.label()
    ))
}

/// The least recently used image is removed first, so its last use says more than its age.
fn image_words(subject: &Subject, now: Timestamp) -> String {
    let ago = |then: Timestamp| format!("{} ago", short_duration(now.duration_since(then)));
    let size = subject.size_bytes();
    let size = size.map_or_else(|| "-".to_owned(), short_size);
    let used = subject
        .last_used_at()
        .map_or_else(|| "never".to_owned(), ago);
    format!(
        "{size}, last used {used}, first seen {}",
        ago(subject.created_at)
    )
}

/// Formats an ended pass.
pub(in crate::cli) fn pass_text(pass: &Pass) -> String {
    let header = [
        "TARGET",
        "PLANNED",
        "REMOVED",
        "ALREADY GONE",
        "FAILED",
        "SKIPPED",
        "REMAINING",
    ];
    let mut rows = table(&header);
    for (target, report) in &pass.targets {
        rows.add_row(vec![
            target.label().to_owned(),
            report.planned.to_string(),
            report.removed.to_string(),
            report.already_gone.to_string(),
            report.failed.to_string(),
            report.skipped.to_string(),
            report.remaining.to_string(),
        ]);
    }
    let outcome = pass.outcome.map_or("unfinished", Outcome::label);
    let dry = if pass.dry_run {
        " (dry run: nothing was removed)"
    } else {
        ""
    };
    let mut text = format!("{}\n", rows.trim_fmt());
    for (target, report) in &pass.targets {
        let kept = reasons(report.kept.iter().map(|(why, n)| (why.label(), n)));
        let count: u64 = report.kept.values().sum();
        text.push_str(&line(
            *target,
            "kept",
            usize::try_from(count).unwrap_or(usize::MAX),
            &kept,
        ));
    }
    if let (Some(before), Some(after), false) = (&pass.before, &pass.after, pass.dry_run) {
        text.push_str(&figures_text(before, after));
    }
    text.push_str(&format!("\n{outcome}{dry}\n"));
    let distinct: BTreeSet<&String> = pass.errors.iter().collect();
    for error in distinct {
        text.push_str(&format!("  {}\n", escape::line(error)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_between_reasons() {
        let reasons: Vec<String> = (0..12).map(|n| format!("within-limits {n}")).collect();
        let text = line(Target::Containers, "keep", 78, &reasons);
        assert!(
            text.starts_with("containers: keep 78\n    (within-limits 0, "),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= COLUMNS),
            "{text}"
        );
        assert!(text.ends_with("within-limits 11)\n"), "{text}");
    }
}
