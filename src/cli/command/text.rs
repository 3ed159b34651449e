//! Plans and passes as text that fits the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use comfy_table::{ContentArrangement, Table, presets};
use jiff::{SignedDuration, Timestamp};

use super::figures::figures_text;
use super::shown::{ShownPlan, ShownRow};
use crate::cli::screen::{Ink, Screen};
use crate::gc::{Subject, Summary};
use crate::model::{Outcome, Pass, Target, escape, short_duration, short_size};

/// Rows shown without `--all`.
pub(super) const ROWS: usize = 20;
/// Columns left for the object's name, of 80.
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

/// How much of a plan is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlanExtent {
    /// The first removals.
    First,
    /// Every object, with the facts behind each verdict.
    All,
}

/// Formats a plan for a person: the counts, then the removals pod by pod.
pub(super) fn plan_text(plan: &ShownPlan, rows: PlanExtent, screen: &Screen) -> String {
    let mut text = counts(&plan.summary, screen);
    for line in &plan.doubts {
        text.push_str(&format!("\n{}\n", escape::line(line)));
    }
    let lead = |verdict: &str, reason: &str| format!("{verdict:<7} {reason:<17}");
    let row = |verdict, it| PlanRow::of(it, lead(verdict, &it.reason), plan.taken_at);
    let removed = plan.removals.iter().map(|it| row("remove", it));
    let kept = plan.kept.iter().map(|it| row("keep", it));
    let shown: Vec<PlanRow<'_>> = match rows {
        PlanExtent::All => removed.chain(kept).collect(),
        PlanExtent::First => removed.take(ROWS).collect(),
    };
    if shown.is_empty() {
        return text;
    }
    let table = RowsOf {
        rows: &shown,
        name_columns: NAME_COLUMNS,
        now: plan.taken_at,
        detail: rows,
    };
    text.push_str(&table.text(&lead("VERDICT", "REASON"), screen));
    let left_out = plan.removals.len().saturating_sub(ROWS);
    if rows == PlanExtent::First && left_out > 0 {
        text.push_str(&format!(
            "\n... and {left_out} more would be removed: --all shows every object with its reason\n"
        ));
    }
    text
}

/// Returns the colour of a line of a plan.
pub(super) fn plan_ink(line: &str) -> Option<Ink> {
    let is_head = line.starts_with("  VERDICT ") || line.starts_with("  A (");
    is_head.then_some(Ink::Head)
}

/// Objects that are shown pod by pod, below a header.
pub(super) struct RowsOf<'a> {
    pub(super) rows: &'a [PlanRow<'a>],
    /// Columns left for a name, of 80.
    pub(super) name_columns: usize,
    pub(super) now: Timestamp,
    pub(super) detail: PlanExtent,
}

impl RowsOf<'_> {
    /// Formats them; `lead` is the header of their first columns.
    pub(super) fn text(&self, lead: &str, screen: &Screen) -> String {
        let columns = |row: &PlanRow<'_>| escape::line(&row.name()).chars().count();
        let longest = self.rows.iter().map(columns).max().unwrap_or(0);
        let width = screen.name_columns(self.name_columns, longest);
        let mut text = format!("\n  {lead} {:<width$} {:<9} ID\n", "WHAT", "AGE");
        for (title, rows) in by_pod(self.rows, screen) {
            text.push_str(&format!("{title}\n"));
            for row in rows {
                text.push_str(&row.text(self, width, screen));
            }
        }
        text
    }
}

pub(super) struct PlanRow<'a> {
    /// The object.
    pub(super) subject: &'a Subject,
    /// The first columns: what is decided about it.
    pub(super) lead: String,
    /// The facts behind the decision.
    pub(super) detail: String,
}

impl<'a> PlanRow<'a> {
    fn of(shown: &'a ShownRow, lead: String, now: Timestamp) -> Self {
        Self {
            subject: &shown.subject,
            lead,
            detail: quarantine(shown, now).unwrap_or_else(|| shown.detail.clone()),
        }
    }

    fn name(&self) -> String {
        let (subject, kind) = (self.subject, self.subject.target.noun());
        match subject.target {
            Target::Containers => format!("{kind} {} #{}", subject.name, subject.attempt),
            Target::Sandboxes => format!("{kind} #{}", subject.attempt),
            Target::Logs => format!("{kind} {}", subject.name),
            Target::Images => subject.name.to_string(),
        }
    }

    fn text(&self, of: &RowsOf<'_>, width: usize, screen: &Screen) -> String {
        let subject = self.subject;
        let id = match subject.target {
            Target::Logs => "",
            Target::Containers | Target::Sandboxes | Target::Images => screen.id(&subject.id),
        };
        let line = format!(
            "  {} {:<width$} {:<9} {}",
            self.lead,
            screen.name(&escape::line(&self.name()), width),
            short_duration(SignedDuration::from_secs(subject.age_seconds)),
            escape::line(id),
        );
        let mut text = format!("{}\n", line.trim_end());
        if subject.target == Target::Logs {
            // The beginning of a path is not distinctive.
            text.push_str(&format!("      {}\n", escape::line(&subject.id)));
        }
        if subject.target == Target::Images {
            text.push_str(&format!("      {}\n", image_words(subject, of.now)));
        }
        if of.detail == PlanExtent::All && !self.detail.is_empty() {
            let detail = escape::line(&self.detail);
            text.push_str(&wrapped_at(screen.columns, &detail, 6));
        }
        text
    }

    fn title(&self, screen: &Screen) -> String {
        let Some(pod) = &self.subject.pod else {
            return match self.subject.target {
                Target::Images => "images".to_owned(),
                Target::Logs => "logs".to_owned(),
                Target::Containers | Target::Sandboxes => "not of the kubelet".to_owned(),
            };
        };
        let state = self.subject.pod_state.word();
        let name = format!("{}/{}", pod.namespace, pod.name);
        let room = screen.columns.saturating_sub(state.len() + 3);
        let name = screen.name(&escape::line(&name), room);
        format!("{name} ({state})")
    }
}

/// Groups rows by pod, in the order of their first row.
fn by_pod<'a>(rows: &'a [PlanRow<'a>], screen: &Screen) -> Vec<(String, Vec<&'a PlanRow<'a>>)> {
    let mut places = BTreeMap::new();
    let mut groups: Vec<(String, Vec<&PlanRow<'_>>)> = Vec::new();
    for row in rows {
        let title = row.title(screen);
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
pub(super) fn counts(summaries: &BTreeMap<Target, Summary>, screen: &Screen) -> String {
    let mut text = String::new();
    for (target, summary) in summaries {
        let remove = reasons(summary.remove.iter().map(|(why, n)| (why.label(), n)));
        let keep = reasons(summary.keep.iter().map(|(why, n)| (why.label(), n)));
        for (verdict, count, reasons) in [
            ("remove", summary.remove.values().sum::<usize>(), remove),
            ("keep", summary.keep.values().sum(), keep),
        ] {
            let count = format!("{target}: {verdict} {count}");
            text.push_str(&counted(&count, &reasons, screen));
        }
    }
    text
}

fn reasons<'a>(counts: impl Iterator<Item = (&'a str, impl Display)>) -> Vec<String> {
    counts.map(|(why, n)| format!("{why} {n}")).collect()
}

/// Breaks a text into indented lines of at most so many columns.
pub(in crate::cli) fn wrapped_at(columns: usize, text: &str, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive(' ') {
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

/// The same with a title in the room that the first line leaves.
pub(in crate::cli) fn titled(columns: usize, title: &str, text: &str, indent: usize) -> String {
    let text = wrapped_at(columns, text, indent);
    format!("{title:<indent$}{}", text.trim_start())
}

/// Cuts a text that is longer than so many columns.
pub(in crate::cli) fn clipped(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let start: String = text.chars().take(columns - 1).collect();
    format!("{start}…")
}

/// Writes a count with its reasons behind it, or below it where they do not fit.
fn counted(count: &str, reasons: &[String], screen: &Screen) -> String {
    if reasons.is_empty() {
        return format!("{count}\n");
    }
    let reasons = format!("({})", reasons.join(", "));
    let text = format!("{count} {reasons}");
    if text.len() <= screen.columns {
        return format!("{text}\n");
    }
    format!("{count}\n{}", wrapped_at(screen.columns, &reasons, 4))
}

/// Returns how a quarantined sandbox failed and when it is tried again.
fn quarantine(kept: &ShownRow, now: Timestamp) -> Option<String> {
    let known = kept.quarantine.as_ref()?;
    let left = short_duration(known.next_try.duration_since(now));
    let (reason, class) = (&kept.reason, known.class.label());
    Some(format!("{reason} ({class}, next try in {left})"))
}

/// The least recently used image is removed first, so its last use says more than its age.
fn image_words(subject: &Subject, now: Timestamp) -> String {
    let ago = |then: Timestamp| format!("{} ago", short_duration(now.duration_since(then)));
    let size = subject.size_bytes();
    let size = size.map_or_else(|| "-".to_owned(), short_size);
    let used = subject.last_used_at();
    let used = used.map_or_else(|| "never".to_owned(), ago);
    let seen = ago(subject.created_at);
    format!("{size}, last used {used}, first seen {seen}")
}

/// Formats an ended pass.
pub(in crate::cli) fn pass_text(pass: &Pass, screen: &Screen) -> String {
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
    // A person wants to know the outcome first.
    let mut text = format!("{outcome}{dry}\n");
    let mut told = BTreeSet::new();
    for error in pass.errors.iter().filter(|error| told.insert(*error)) {
        text.push_str(&format!("  {}\n", escape::line(error)));
    }
    text.push_str(&format!("\n{}\n", rows.trim_fmt()));
    // Without a count the pass ended before it planned the target: "kept 0" would be wrong.
    let looked_at = pass.targets.iter().filter(|(_, it)| !it.kept.is_empty());
    for (target, report) in looked_at {
        let kept = reasons(report.kept.iter().map(|(why, n)| (why.label(), n)));
        let count: u64 = report.kept.values().sum();
        text.push_str(&counted(&format!("{target}: kept {count}"), &kept, screen));
    }
    if let (Some(before), Some(after), false) = (&pass.before, &pass.after, pass.dry_run) {
        text.push_str(&figures_text(before, after));
    }
    text
}

/// Returns the colour of a line of a pass or of a list of passes.
pub(in crate::cli) fn pass_ink(line: &str) -> Option<Ink> {
    let words: Vec<&str> = line.split_whitespace().take(3).collect();
    match *words.as_slice() {
        ["TARGET" | "PASS" | "RESULT" | "NODE", ..] => Some(Ink::Head),
        [outcome, ..] if !line.starts_with(' ') => outcome_ink(outcome),
        _ => None,
    }
}

/// Returns the colour of an outcome.
pub(in crate::cli) fn outcome_ink(outcome: &str) -> Option<Ink> {
    match outcome {
        "completed" | "planned" | "nothing-to-do" => Some(Ink::Good),
        "partial" | "interrupted" => Some(Ink::Doubt),
        "aborted" => Some(Ink::Bad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::model::{Cause, KeepReason, TargetReport};

    use super::*;

    #[test]
    fn a_target_that_the_pass_did_not_reach_is_not_said_to_keep_nothing() {
        let containers = TargetReport {
            kept: [(KeepReason::Running, 3)].into(),
            ..TargetReport::default()
        };
        let sandboxes = TargetReport::default();
        let now = Timestamp::UNIX_EPOCH;
        let pass = Pass {
            outcome: Some(Outcome::Partial),
            targets: [
                (Target::Containers, containers),
                (Target::Sandboxes, sandboxes),
            ]
            .into(),
            ..Pass::queued("1".to_owned(), Cause::Command.into(), [], now)
        };
        let screen = Screen::of_stdout(crate::cli::screen::Wide::default());
        let text = pass_text(&pass, &screen);
        assert!(text.contains("containers: kept 3 (running 3)"), "{text}");
        assert!(!text.contains("kept 0"), "{text}");
    }

    #[test]
    fn a_line_breaks_between_reasons() {
        let screen = Screen::of_stdout(crate::cli::screen::Wide::default());
        let reasons: Vec<String> = (0..12).map(|n| format!("within-limits {n}")).collect();
        let text = counted("containers: keep 78", &reasons, &screen);
        assert!(
            text.starts_with("containers: keep 78\n    (within-limits 0, "),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(text.ends_with("within-limits 11)\n"), "{text}");
    }
}
