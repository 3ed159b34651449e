//! The end of a pass in one line.

use crate::model::{Outcome, Pass};

/// Returns one line about how a pass ended.
pub(super) fn summary(pass: &Pass) -> String {
    let outcome = pass.outcome.map_or("running", Outcome::label);
    let dry = if pass.dry_run {
        " (dry run, nothing was removed)"
    } else {
        ""
    };
    let targets: Vec<String> = pass
        .targets
        .iter()
        .map(|(target, report)| {
            let mut text = if pass.dry_run {
                format!("{target} {} to remove", report.planned)
            } else {
                format!("{target} {} removed", report.removed)
            };
            let rest = [
                (report.already_gone, "already gone"),
                (report.failed, "failed"),
                (report.skipped, "skipped"),
                (if pass.dry_run { 0 } else { report.remaining }, "remaining"),
            ];
            for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
                text.push_str(&format!(", {count} {what}"));
            }
            text
        })
        .collect();
    let why = pass
        .errors
        .last()
        .map(|why| format!(" ({why})"))
        .unwrap_or_default();
    let why = if let Some(Outcome::Completed | Outcome::Planned) = pass.outcome {
        String::new()
    } else {
        why
    };
    format!(
        "pass {} {outcome}{dry}{why}: {}",
        pass.id,
        targets.join("; ")
    )
}
