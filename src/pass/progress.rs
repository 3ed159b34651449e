//! Reports the plan and the progress of a pass to its followers.

use std::collections::BTreeMap;

use crate::gc::Plan;
use crate::model::Target;
use crate::pass::record::PassRecord;
use crate::pass::tally::Tally;

/// Notes a target's plan in the report and in a line.
pub(super) fn planned(record: &PassRecord, plan: &Plan, target: Target, tally: &Tally<'_>) {
    let Some(summary) = plan.summary.get(&target) else {
        return;
    };
    let (reasons, kept) = (counts(&summary.remove), counts(&summary.keep));
    let planned: u64 = reasons.values().sum();
    let remove = why(reasons.iter().map(|(reason, n)| (reason.label(), *n)));
    let keep = why(kept.iter().map(|(reason, n)| (reason.label(), *n)));
    let stay: u64 = kept.values().sum();
    record.update(|pass| {
        // Logs of removed containers may be counted already.
        let report = pass.targets.entry(target).or_default();
        // This plan has the objects that an earlier plan of the pass left, except logs.
        if target != Target::Logs {
            (report.planned, report.reasons) = (0, BTreeMap::new());
            for (reason, count) in tally.not_planned_again(target, plan) {
                report.plan(reason, count);
            }
        }
        for (reason, count) in reasons {
            report.plan(reason, count);
        }
        report.kept = kept;
        report.count_remaining();
    });
    record.line(format!(
        "{target}: {planned} to remove{remove}; {stay} stay{keep}"
    ));
}

fn counts<R: Copy + Ord>(counts: &BTreeMap<R, usize>) -> BTreeMap<R, u64> {
    let counts = counts.iter();
    counts.map(|(reason, n)| (*reason, *n as u64)).collect()
}

/// Formats counts by reason as an addition to a line.
pub(super) fn why(counts: impl Iterator<Item = (&'static str, u64)>) -> String {
    let words: Vec<String> = counts.map(|(why, n)| format!("{why} {n}")).collect();
    if words.is_empty() {
        return String::new();
    }
    format!(" ({})", words.join(", "))
}

pub(super) fn logs_of_containers(record: &PassRecord, plan: &Plan) {
    record.update(|pass| {
        let report = pass.targets.entry(Target::Logs).or_default();
        for removal in &plan.removals {
            report.plan(removal.reason, 1);
        }
        report.count_remaining();
    });
}

/// Notes what a further round plans beyond earlier ones, if anything.
pub(super) fn further(record: &PassRecord, plan: &Plan, target: Target, why: &str) {
    let kept = plan.summary.get(&target);
    let kept = kept.map(|summary| counts(&summary.keep));
    let due = &plan.removals;
    record.update(|pass| {
        let report = pass.targets.entry(target).or_default();
        for removal in due {
            report.plan(removal.reason, 1);
        }
        report.kept = kept.unwrap_or_default();
        report.count_remaining();
    });
    if !due.is_empty() {
        record.line(format!("{target}: {why}; {} more to remove", due.len()));
    }
}

pub(super) fn batch(record: &PassRecord, target: Target, batch: u64, planned: u64) {
    let pass = record.pass();
    let Some(report) = pass.targets.get(&target) else {
        return;
    };
    let mut line = format!(
        "{target}: batch {batch}: {} of {planned} gone",
        report.removed + report.already_gone
    );
    report.add_troubles(&mut line);
    record.line(line);
}
