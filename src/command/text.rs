//! Plans and passes as tables.

use std::collections::BTreeSet;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;

use crate::gc::{Kept, Plan, Subject, Target};
use crate::model::{Images, Pods};
use crate::observe::Look;
use crate::report::{Outcome, Pass};

/// Rows of a table for people; the rest is counted. JSON has all.
const ROWS_MAX: usize = 200;

const HEADER: [&str; 9] = [
    "VERDICT",
    "REASON",
    "TARGET",
    "NAMESPACE/POD",
    "NAME",
    "#",
    "AGE",
    "POD IS",
    "ID",
];

const IMAGES_HEADER: [&str; 8] = [
    "VERDICT",
    "REASON",
    "TARGET",
    "NAME",
    "SIZE",
    "LAST USED",
    "FIRST SEEN",
    "ID",
];

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table
}

/// Shows a plan to a person: what goes, with `all` also what stays, and the counts of both.
pub(super) fn plan_text(plan: &Plan, look: &Look, all: bool) -> String {
    let mut text = String::new();
    let removed = plan
        .removals
        .iter()
        .map(|r| (&r.subject, "remove", r.reason.label().to_owned()));
    let kept = plan
        .kept
        .iter()
        .map(|k| (&k.subject, "keep", keep_reason(k, plan.taken_at)));
    let shown = removed.chain(kept.take(if all { usize::MAX } else { 0 }));
    let mut rows = table(&HEADER);
    let mut images = table(&IMAGES_HEADER);
    let mut count = 0;
    for (subject, verdict, reason) in shown {
        count += 1;
        if count > ROWS_MAX {
            continue;
        }
        match subject.target {
            Target::Images => images.add_row(image_row(plan, subject, verdict, reason)),
            Target::Containers | Target::Sandboxes | Target::Logs => {
                rows.add_row(row(subject, verdict, reason))
            }
        };
    }
    for table in [rows, images].into_iter().filter(|table| !table.is_empty()) {
        text.push_str(&table.trim_fmt());
        text.push('\n');
    }
    if count > ROWS_MAX {
        text.push_str(&format!(
            "... and {} more; --output json has all\n",
            count - ROWS_MAX
        ));
    }
    for line in unknown(plan, look) {
        text.push_str(&format!("\n{line}\n"));
    }
    if plan.summary.contains_key(&Target::Logs) {
        for why in &look.logs.unread {
            text.push_str(&format!("\nlogs could not be read: {why}\n"));
        }
    }
    text.push('\n');
    for (target, summary) in &plan.summary {
        let remove: Vec<String> = summary
            .remove
            .iter()
            .map(|(why, n)| format!("{} {n}", why.label()))
            .collect();
        let keep: Vec<String> = summary
            .keep
            .iter()
            .map(|(why, n)| format!("{} {n}", why.label()))
            .collect();
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

/// Says what the look behind a plan did not see: it may be why things stay.
fn unknown(plan: &Plan, look: &Look) -> Vec<String> {
    let mut lines = Vec::new();
    if !look.seen().is_all() {
        lines.push(
            "the runtime's lists could not be read whole; only what is certain goes".to_owned(),
        );
    }
    if let Pods::Unknown(why) = &look.pods {
        lines.push(format!(
            "nothing is known of the pods: {why}; only surplus goes"
        ));
    }
    if plan.summary.contains_key(&Target::Logs) {
        let why = look.logs.unread.iter().chain(&look.logs.unwritable);
        lines.extend(why.map(|why| format!("logs are out of reach: {why}")));
    }
    if let (true, Images::Unknown(why)) = (plan.summary.contains_key(&Target::Images), &look.store)
    {
        lines.push(format!("nothing is known of the images: {why}"));
    }
    lines
}

fn line(target: Target, verdict: &str, count: usize, reasons: &[String]) -> String {
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    };
    format!("{target}: {verdict} {count}{reasons}\n")
}

/// Returns the reason, and of what failed to go also how and when it is tried again.
fn keep_reason(kept: &Kept, now: Timestamp) -> String {
    let reason = kept.reason.label();
    let Some(known) = &kept.quarantine else {
        return reason.to_owned();
    };
    let left = Duration::try_from(known.next_try.duration_since(now)).unwrap_or_default();
    let left = Duration::from_secs(left.as_secs());
    let (class, left) = (known.class.label(), short_age(left));
    format!("{reason} ({class}, next try in {left})")
}

fn row(subject: &Subject, verdict: &str, reason: String) -> Vec<String> {
    let pod = subject.pod.as_ref();
    let id = match subject.target {
        // A path says nothing by its beginning.
        Target::Logs => subject.id.to_string(),
        Target::Containers | Target::Sandboxes | Target::Images => {
            subject.id.chars().take(13).collect()
        }
    };
    let age = Duration::from_secs(u64::try_from(subject.age_seconds).unwrap_or(0));
    let state = serde_json::to_string(&subject.pod_state).unwrap_or_default();
    vec![
        verdict.to_owned(),
        reason,
        subject.target.label().to_owned(),
        pod.map_or_else(
            || "-".to_owned(),
            |pod| format!("{}/{}", pod.namespace, pod.name),
        ),
        if subject.name.is_empty() {
            "-".to_owned()
        } else {
            subject.name.to_string()
        },
        subject.attempt.to_string(),
        short_age(age),
        state.trim_matches('"').to_owned(),
        id,
    ]
}

/// An image's age and use tell more than a pod would: the least recently used goes first.
fn image_row(plan: &Plan, subject: &Subject, verdict: &str, reason: String) -> Vec<String> {
    let ago = |then: Timestamp| {
        let seconds = plan.taken_at.duration_since(then).as_secs().max(0);
        let ago = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        format!("{} ago", short_age(ago))
    };
    let bare = subject.id.strip_prefix("sha256:").unwrap_or(&subject.id);
    let name = Some(subject.name.as_str()).filter(|name| !name.is_empty());
    vec![
        verdict.to_owned(),
        reason,
        subject.target.label().to_owned(),
        name.unwrap_or("-").to_owned(),
        subject
            .size_bytes
            .map_or_else(|| "-".to_owned(), short_size),
        subject.last_used_at.map_or_else(|| "never".to_owned(), ago),
        ago(subject.created_at),
        bare.chars().take(13).collect(),
    ]
}

/// A size as `docker images` writes it, but in binary units.
fn short_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = "B";
    // In tenths, so that no rounding makes 1024.0 of something.
    let mut tenths = bytes.saturating_mul(10);
    for next in UNITS {
        if tenths < 10 * 1024 {
            break;
        }
        tenths /= 1024;
        unit = next;
    }
    if unit == "B" {
        return format!("{bytes} B");
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// The two largest units, as kubectl writes ages.
fn short_age(age: Duration) -> String {
    let text = humantime::format_duration(age).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join("")
}

/// Shows a pass that is over.
pub(super) fn pass_text(pass: &Pass) -> String {
    let header = [
        "TARGET",
        "PLANNED",
        "REMOVED",
        "ALREADY GONE",
        "FAILED",
        "SKIPPED",
        "REMAINING",
        "KEPT",
    ];
    let mut rows = table(&header);
    for (target, report) in &pass.targets {
        let kept: Vec<String> = report
            .kept
            .iter()
            .map(|(why, n)| format!("{} {n}", why.label()))
            .collect();
        rows.add_row(vec![
            target.label().to_owned(),
            report.planned.to_string(),
            report.removed.to_string(),
            report.already_gone.to_string(),
            report.failed.to_string(),
            report.skipped.to_string(),
            report.remaining.to_string(),
            kept.join(", "),
        ]);
    }
    let outcome = pass.outcome.map_or("unfinished", Outcome::label);
    let dry = if pass.dry_run {
        " (dry run: nothing was removed)"
    } else {
        ""
    };
    let mut text = format!("{}\n\n{outcome}{dry}\n", rows.trim_fmt());
    let distinct: BTreeSet<&String> = pass.errors.iter().collect();
    for error in distinct {
        text.push_str(&format!("  {error}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down_to_a_tenth() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1024 * 1024 - 1, "1023.9 KiB"),
            (83_886_080, "80.0 MiB"),
            (1_610_612_736, "1.5 GiB"),
        ] {
            assert_eq!(short_size(bytes), text);
        }
        assert!(short_size(u64::MAX).ends_with(" TiB"));
    }
}
