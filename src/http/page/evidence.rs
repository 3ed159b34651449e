//! What was kept of removed containers, and the ends of their logs.

use maud::{Markup, html};

use super::view::{EVIDENCE_ROWS, PageResult, ShownEvidence, View};
use super::words::{ago, columns, count, name, short_id, text};
use crate::model::{Evidence, escape, short_size};

/// The most of a log that the page shows; its own path has all that is kept.
const LOG_BYTES_MAX: usize = 64 << 10;

pub(super) fn list(view: &View) -> Markup {
    html! {
        section #evidence aria-labelledby="evidence-title" {
            h2 #evidence-title { "Evidence of removed containers" }
            form action="./#evidence" method="get" {
                label for="pod" { "Pod" }
                input #pod name="pod" value=(text(view.asked.pod.as_deref().unwrap_or_default())) placeholder="name or UID"
                    autocomplete="off" spellcheck="false";
                button { "Show" }
                @if view.asked.pod.is_some() { " " a href="./#evidence" { "All pods" } }
            }
            div #evidence-rows data-live { (rows(view)) }
        }
    }
}

fn rows(view: &View) -> Markup {
    let rows = match &view.evidence {
        Ok(rows) => rows,
        Err(why) => return html! { p.problem { (text(why)) } },
    };
    html! {
        @if rows.is_empty() { p.muted { "None is kept." } } @else {
            table {
                (columns(&["Container", "How it ended", "Removed", "Log"]))
                tbody { @for evidence in rows { (row(view, evidence)) } }
            }
            @if rows.len() >= EVIDENCE_ROWS as usize {
                p.muted { "The latest " (EVIDENCE_ROWS) "; " a href="api/v1/evidence" { "more as JSON" } }
            }
        }
    }
}

fn pod(evidence: &Evidence) -> Markup {
    html! {
        @match &evidence.pod {
            Some(pod) => { (name(&pod.namespace)) "/" (name(&pod.name)) }
            None => "without a pod",
        }
    }
}

fn row(view: &View, evidence: &Evidence) -> Markup {
    html! {
        tr {
            th scope="row" {
                a href=(format!("./?evidence={}#shown", evidence.number)) {
                    (pod(evidence)) " " (name(&evidence.container)) "#" (evidence.attempt)
                }
            }
            td { (name(&evidence.ending)) }
            td { (ago(evidence.kept_at, view.now)) ", " (evidence.removed_for.label()) }
            td.number { @if evidence.log.bytes > 0 { (short_size(evidence.log.bytes)) } @else { "none" } }
        }
    }
}

/// One container's evidence.
pub(super) fn shown(view: &View, shown: &PageResult<ShownEvidence>) -> Markup {
    html! {
        section #shown .wide aria-labelledby="shown-title" {
            @match shown {
                Err(why) => { h2 #shown-title { "No such evidence" } p.problem { (text(why)) } },
                Ok(shown) => (of(view, shown)),
            }
            p { a href="./#evidence" { "Back to all evidence" } }
        }
    }
}

fn of(view: &View, shown: &ShownEvidence) -> Markup {
    let it = &shown.evidence;
    html! {
        h2 #shown-title { "Container " (name(&it.container)) "#" (it.attempt) " of " (pod(it)) }
        p.answer { "It " (text(&it.ending)) "." }
        dl {
            @if !it.reason.is_empty() { dt { "Reason" } dd { (text(&it.reason)) } }
            @if !it.message.is_empty() { dt { "Message" } dd.wrap { (text(&it.message)) } }
            @if let Some(owner) = &it.owner { dt { "Owner" } dd { (text(&owner.kind)) "/" (text(&owner.name)) } }
            dt { "Image" } dd { (text(&it.image)) }
            @if let Some(at) = it.started_at { dt { "Started" } dd { (ago(at, view.now)) } }
            @if let Some(at) = it.finished_at { dt { "Exited" } dd { (ago(at, view.now)) } }
            dt { "Removed" }
            dd {
                (ago(it.kept_at, view.now)) ", " (it.removed_for.label()) ", by pass "
                a href=(format!("./?pass={}#pass", escape::url(&it.pass))) { (text(&it.pass)) }
            }
            dt { "Id" } dd { code { (text(short_id(&it.container_id))) } }
        }
        h3 { "The end of its log" }
        (log(shown))
    }
}

fn log(shown: &ShownEvidence) -> Markup {
    let it = &shown.evidence.log;
    let log = match &shown.log {
        Ok(log) => log,
        Err(why) => return html! { p.problem { (text(why)) } },
    };
    let cut = log.len().saturating_sub(LOG_BYTES_MAX);
    let begin = (cut..=log.len()).find(|at| log.is_char_boundary(*at));
    let end = begin.and_then(|at| log.get(at..)).unwrap_or_default();
    html! {
        @if !it.problem.is_empty() { p.problem { (text(&it.problem)) } }
        @if it.missing().is_some() { p.muted { "Nothing is kept." } }
        @else if end.is_empty() { p.muted { "It wrote nothing." } } @else {
            pre.log tabindex="0" role="region" aria-label="The end of its log" { (escape::lines(end)) }
            p.muted {
                @if !it.is_whole { "What was before is not kept. " }
                @if cut > 0 { (count(cut)) " bytes before are left out here. " }
                @if it.masked_bytes > 0 { (count(it.masked_bytes)) " bytes that look like secrets are masked. " }
                a href=(format!("api/v1/evidence/{}/log", shown.evidence.number)) { "All that is kept, as text" }
            }
        }
    }
}
