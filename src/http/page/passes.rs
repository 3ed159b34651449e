//! The running pass, the last one, one that was asked for, and the list of past ones.

use jiff::Timestamp;
use maud::{Markup, html};

use super::change::{before_after, figure};
use super::messages::grouped;
use super::plan::words as removal_words;
use super::view::{MayAct, View};
use super::words::{ago, ahead, columns, count, objects, span, text};
use crate::model::{Cause, NodeFigures, Outcome, Pass, Target, TargetReport, TriggerInfo};

/// Past passes that are listed.
const ROWS_MAX: usize = 20;
/// Progress lines of a pass that are shown; the newest.
const LINES_MAX: usize = 200;
/// Different messages of a pass that are shown in its summary.
const FAILURES_MAX: usize = 3;

/// The pass that matters most now: the one that was asked for, else the running one, else the last one.
pub(super) fn section(view: &View) -> Markup {
    html! {
        section #pass data-live aria-labelledby="pass-title" {
            @match (&view.pass, view.running()) {
                (Some(Err(why)), _) => {
                    h2 #pass-title { "No such pass" }
                    p.problem { (text(why)) }
                    p { a href="./" { "Back to the latest" } }
                },
                (Some(Ok(pass)), _) | (None, Some(pass)) => (one(view, pass, "Pass")),
                (None, None) => (last(view)),
            }
            (waiting(view))
        }
    }
}

fn last(view: &View) -> Markup {
    if let Some(pass) = view.passes.iter().find(|pass| pass.has_run()) {
        return one(view, pass, "Last pass");
    }
    html! {
        h2 #pass-title { "No pass yet" }
        p.muted { "None is recorded on this node." }
    }
}

fn one(view: &View, pass: &Pass, what: &str) -> Markup {
    html! {
        @if pass.is_done() { (ended(view, pass, what)) }
        @else if pass.started_at.is_some() { (running(view, pass)) }
        @else {
            h2 #pass-title { "Pass waits" }
            p { (asked_by(&pass.trigger)) (starts(view, pass)) }
            (cancel(view, pass))
        }
        @if view.pass.is_some() { (detail(view, pass)) }
    }
}

fn running(view: &View, pass: &Pass) -> Markup {
    let what = if pass.dry_run {
        "A dry run is planned"
    } else {
        "A pass removes"
    };
    html! {
        h2 #pass-title { (what) " now" }
        p #progress role="status" { (progress_words(pass)) }
        table.progress data-pass=(pass.id) {
            (columns(&["Of", "Progress"]))
            tbody {
                @for (target, report) in &pass.targets {
                    tr data-target=(target) {
                        th scope="row" { (target) }
                        td {
                            progress max=(report.planned.max(1)) value=(report.planned.saturating_sub(report.remaining))
                                aria-label=(format!("{target} removed")) {}
                            " " span { (report_words(report)) }
                        }
                    }
                }
            }
        }
        p.muted {
            (asked_by(&pass.trigger))
            @if let Some(at) = pass.started_at { ", began " (ago(at, view.now)) }
        }
        (cancel(view, pass))
    }
}

fn progress_words(pass: &Pass) -> String {
    let gone = pass.targets.values().map(|it| it.removed + it.already_gone);
    // Without a total: the number of planned logs grows during the pass.
    format!("{} removed so far", count(gone.sum::<u64>()))
}

fn report_words(report: &TargetReport) -> String {
    // A container's log goes with it, before the pass begins the target logs.
    if !report.begun && report.planned == 0 {
        return "not begun".to_owned();
    }
    let gone = report.removed + report.already_gone;
    let mut words = format!("{} of {} gone", count(gone), count(report.planned));
    for (n, what) in [(report.failed, "failed"), (report.skipped, "skipped")] {
        if n > 0 {
            words.push_str(&format!(", {} {what}", count(n)));
        }
    }
    words
}

fn cancel(view: &View, pass: &Pass) -> Markup {
    html! {
        @if !matches!(view.may, MayAct::Not(_)) {
            form method="post" action=(format!("api/v1/passes/{}/cancel", pass.id)) {
                button #cancel { "Cancel this pass" }
                " " span.muted { "Removals in flight end; nothing new begins." }
            }
        }
    }
}

fn waiting(view: &View) -> Markup {
    let shown = view.asked.pass.as_deref();
    let others = || view.waiting().filter(|pass| Some(&*pass.id) != shown);
    html! {
        @if others().next().is_some() {
            h3 { "Waiting" }
            ul {
                @for pass in others() {
                    li {
                        a href=(format!("./?pass={}#pass", pass.id)) { (asked_by(&pass.trigger)) }
                        (starts(view, pass))
                    }
                }
            }
        }
    }
}

fn starts(view: &View, pass: &Pass) -> Markup {
    html! {
        @match pass.not_before {
            Some(at) => { ", begins " (ahead(at, view.now)) }
            None => ", begins when its turn comes",
        }
    }
}

fn asked_by(trigger: &TriggerInfo) -> Markup {
    html! {
        "asked for by " (cause_words(trigger.cause))
        @if let Some(alert) = &trigger.alert { " " (text(&alert.name)) }
        @if let Some(by) = &trigger.by { " (" (text(&by.to_string())) ")" }
        @if trigger.follow_up { ", to follow up an earlier pass" }
    }
}

fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Alert => "alert",
        Cause::Poll => "polled alert",
        Cause::Threshold => "a threshold",
        Cause::Manual => "hand",
        Cause::Command => "the command line",
    }
}

/// Says in a word what an outcome means.
fn outcome_words(pass: &Pass) -> &'static str {
    let has_failures = pass.targets.values().any(|it| it.failed > 0);
    match pass.outcome {
        // Objects that failed before and failed again do not make a pass partial.
        Some(Outcome::Completed) if has_failures => "did all but what failed again",
        Some(Outcome::Completed) => "did all that it planned",
        Some(Outcome::Planned) => "was a dry run: nothing was removed",
        Some(Outcome::Partial) => "did not do all that it planned",
        Some(Outcome::Aborted) => "was ended early",
        Some(Outcome::Interrupted) => "was interrupted: the service ended",
        Some(Outcome::NothingToDo) => "found nothing to remove",
        None => "is not over",
    }
}

fn ended(view: &View, pass: &Pass, what: &str) -> Markup {
    let outcome = pass.outcome.map_or("", Outcome::label);
    html! {
        h2 #pass-title { (what) " " (outcome_words(pass)) }
        p {
            span.outcome.(outcome) { (outcome) } " "
            @if let Some(at) = pass.finished_at { (ago(at, view.now)) }
            @if let (Some(began), Some(over)) = (pass.started_at, pass.finished_at) {
                ", took " (span(over.duration_since(began).as_secs()))
            }
            ", " (asked_by(&pass.trigger))
        }
        p.answer { (removed_words(pass)) }
        (failures(pass))
        (before_after(pass))
        @if view.asked.pass.is_none() {
            p { a href=(format!("./?pass={}#pass", pass.id)) { "This pass in detail" } }
        }
    }
}

fn removed_words(pass: &Pass) -> String {
    let of = |figure: fn(&TargetReport) -> u64| {
        let targets = pass.targets.iter();
        targets.map(|(target, it)| (*target, figure(it))).collect()
    };
    if pass.dry_run {
        return format!("It would remove {}.", removal_words(&of(|it| it.planned)));
    }
    let mut words = format!("It removed {}", removal_words(&of(|it| it.removed)));
    let rest = [
        ("failed", of(|it| it.failed)),
        ("skipped, because they changed", of(|it| it.skipped)),
        ("left", of(|it| it.remaining)),
    ];
    for (what, counts) in rest {
        if counts.values().any(|n| *n > 0) {
            words.push_str(&format!("; {what}: {}", removal_words(&counts)));
        }
    }
    words.push('.');
    words
}

fn failures(pass: &Pass) -> Markup {
    let failures = grouped(&pass.errors);
    html! {
        @if !failures.is_empty() {
            ul.errors {
                @for failure in failures.iter().take(FAILURES_MAX) {
                    li.problem {
                        @if let Some(target) = failure.target { (objects(target, failure.count)) ": " }
                        (text(&failure.message))
                    }
                }
                @if failures.len() > FAILURES_MAX { li { (failures.len() - FAILURES_MAX) " more" } }
            }
        }
    }
}

fn whole_errors(pass: &Pass) -> Markup {
    html! {
        @if !pass.errors.is_empty() {
            details {
                summary { "Its errors in full (" (pass.errors.len()) ")" }
                ul.errors { @for error in &pass.errors { li.wrap { (text(error)) } } }
            }
        }
    }
}

/// Everything of one pass.
fn detail(view: &View, pass: &Pass) -> Markup {
    html! {
        h3 { "By target" }
        table.targets {
            (columns(&["Of", "Planned", "Removed", "Failed", "Left", "Because"]))
            tbody { @for (target, report) in &pass.targets { (of_target(*target, report)) } }
        }
        (whole_errors(pass))
        @if !view.lines.is_empty() {
            @let hidden = view.lines.len().saturating_sub(LINES_MAX);
            details {
                summary { "Its lines of progress (" (count(view.lines.len())) ")" }
                @if hidden > 0 { p.muted { (count(hidden)) " earlier lines are left out." } }
                pre tabindex="0" aria-label="Progress" {
                    @for line in view.lines.iter().skip(hidden) { (text(line)) "\n" }
                }
            }
        }
        p.muted {
            "Pass " code { (text(&pass.id)) } ". "
            a href=(format!("api/v1/passes/{}", pass.id)) { "As JSON" } ". "
            a href="./" { "Back to the latest" }
        }
    }
}

fn of_target(target: Target, report: &TargetReport) -> Markup {
    let reasons: Vec<String> = report
        .reasons
        .iter()
        .map(|(reason, n)| format!("{} {}", reason.label(), count(*n)))
        .collect();
    let kept: u64 = report.kept.values().sum();
    html! {
        tr {
            th scope="row" { (target) }
            td.number { (count(report.planned)) }
            td.number { (count(report.removed)) }
            td.number { (count(report.failed)) }
            td.number { (count(report.remaining)) }
            td { (reasons.join(", ")) @if kept > 0 { " " span.muted { (objects(target, kept)) " stay" } } }
        }
    }
}

/// The past passes.
pub(super) fn list(view: &View) -> Markup {
    let ended = || view.passes.iter().filter(|pass| pass.has_run());
    html! {
        section #passes data-live aria-labelledby="passes-title" {
            h2 #passes-title { "Past passes" }
            @if ended().next().is_none() { p.muted { "None yet." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Table of past passes" {
                    table {
                        (columns(&["When", "Asked by", "Outcome", "Removed", "Exited", "Not ready", "Lists", "Disk"]))
                        tbody { @for pass in ended().take(ROWS_MAX) { (listed(pass, view.now)) } }
                    }
                }
                @if ended().count() > ROWS_MAX {
                    p.muted { (ended().count() - ROWS_MAX) " more: " a href="api/v1/passes" { "all as JSON" } }
                }
            }
        }
    }
}

fn listed(pass: &Pass, now: Timestamp) -> Markup {
    let outcome = pass.outcome.map_or("", Outcome::label);
    let removed = pass.targets.iter().map(|(target, it)| {
        let n = if pass.dry_run { it.planned } else { it.removed };
        (*target, n)
    });
    let arrow = |of: fn(&NodeFigures) -> Option<u64>, is_size: bool| {
        let before = pass.before.as_ref().and_then(of);
        let after = pass.after.as_ref().and_then(of);
        html! {
            @if before.is_some() || after.is_some() {
                (text(&figure(before, is_size))) " → " (text(&figure(after, is_size)))
            }
        }
    };
    let lists = |it: &NodeFigures| Some(it.containers_list_bytes? + it.sandboxes_list_bytes?);
    html! {
        tr {
            th scope="row" {
                a href=(format!("./?pass={}#pass", pass.id)) title=(pass.id) {
                    (ago(pass.finished_at.unwrap_or(pass.queued_at), now))
                }
            }
            td { (cause_words(pass.trigger.cause)) @if let Some(alert) = &pass.trigger.alert { " " (text(&alert.name)) } }
            td {
                span.outcome.(outcome) { (outcome) }
                @if !pass.errors.is_empty() { " " span.muted { (pass.errors.len()) @if pass.errors.len() == 1 { " error" } @else { " errors" } } }
            }
            td { @if pass.dry_run { "would: " } (removal_words(&removed.collect())) }
            td { (arrow(|it| it.exited_containers, false)) }
            td { (arrow(|it| it.not_ready_sandboxes, false)) }
            td { (arrow(lists, true)) }
            td { (arrow(|it| it.image_fs_used_bytes, true)) }
        }
    }
}
