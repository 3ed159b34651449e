//! The head of the page: is the node well, and may crisweep act.

use maud::{Markup, html};

use super::view::View;
use super::words::{span, text};
use crate::config::Mode;
use crate::health::{HealthFinding, HealthReport, HealthState};

/// The judgement in a sentence.
pub(super) fn sentence(verdict: &HealthReport) -> String {
    let findings = verdict.findings.iter().map(HealthFinding::whole);
    let findings: Vec<String> = findings.collect();
    let findings = findings.join("; ");
    match verdict.severity() {
        HealthState::Ok => format!("Healthy: {}", verdict.well),
        HealthState::Unknown => format!("Not known whether healthy: {findings}"),
        HealthState::Problem => format!("Not healthy: {findings}"),
    }
}

/// A mark that differs by its shape, not only by its colour.
fn mark(severity: HealthState) -> (&'static str, &'static str) {
    match severity {
        HealthState::Ok => ("ok", "✓"),
        HealthState::Unknown => ("unknown", "?"),
        HealthState::Problem => ("problem", "!"),
    }
}

pub(super) fn section(view: &View) -> Markup {
    let (class, sign) = mark(view.node.verdict.severity());
    html! {
        section #sentence .(class) data-live {
            h1 {
                span.sign aria-hidden="true" { (sign) }
                (text(&sentence(&view.node.verdict)))
            }
            p.muted { (age(view)) " " (thresholds(view)) }
        }
    }
}

fn age(view: &View) -> Markup {
    let Some(look) = &view.node.look else {
        return html! { "The node was not looked at yet." };
    };
    let seconds = look.started.elapsed().as_secs();
    let words = span(seconds.try_into().unwrap_or(i64::MAX));
    html! {
        "Looked " span data-ago=(seconds) { (words) " ago" } "."
        @if !view.node.is_new { " " strong { "The runtime does not answer in time; this is the last look." } }
    }
}

fn thresholds(view: &View) -> Markup {
    let marks = &view.config.thresholds;
    let mut words = Vec::new();
    words.extend(
        marks
            .exited_containers
            .map(|it| format!("{it} exited containers")),
    );
    words.extend(
        marks
            .not_ready_sandboxes
            .map(|it| format!("{it} dead sandboxes")),
    );
    let percent = marks.list_limit_ratio.map(|it| 100.0 * it);
    words.extend(percent.map(|it| format!("a list at {it:.0}% of its limit")));
    let used = marks.image_fs_used_percent;
    words.extend(used.map(|it| format!("image file system {it:.0}% full")));
    html! {
        @if !words.is_empty() { "Thresholds: " (words.join(", ")) "." }
    }
}

/// The mode in colour and words.
pub(super) fn mode(view: &View) -> Markup {
    let (class, word, meaning) = if view.standing.held.is_some() {
        ("held", "held", "on all nodes: only a forced pass removes")
    } else if view.config.brakes.pause {
        ("held", "paused", "only a forced pass removes")
    } else {
        match view.config.mode {
            Mode::Enforce => ("enforce", "enforce", "passes remove"),
            Mode::Observe => ("observe", "observe", "passes only plan"),
        }
    };
    html! { p #mode .mode.(class) data-live { b { (word) } ": " (meaning) } }
}
