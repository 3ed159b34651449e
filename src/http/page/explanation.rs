//! Why one object or pod stays or goes: what `GET /api/v1/explain` answers, as text.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::view::{PageResult, View};
use super::words::{ago, count, span, text};
use crate::gc::explain::shown::{ShownChange, ShownExplanation, ShownHolder};

/// Objects of a pod and holders that are shown; the API has more.
const ROWS_MAX: usize = 50;

pub(super) fn section(view: &View, explanation: &PageResult<Value>) -> Markup {
    let shown = explanation.as_ref().map_err(String::clone);
    let shown = shown.and_then(|value| {
        ShownExplanation::deserialize(value)
            .map_err(|error| format!("the explanation cannot be shown: {error}"))
    });
    html! {
        section #explanation .wide data-live aria-labelledby="explanation-title" {
            @match shown {
                Err(why) => {
                    h2 #explanation-title { "No explanation" }
                    p.problem { (text(&why)) }
                }
                Ok(shown) if shown.kind == "pod" => (pod(view, &shown)),
                Ok(shown) => (object(view, &shown)),
            }
            p { a href=(view.asked.objects(|_| {})) { "Back to the objects" } }
        }
    }
}

fn object(view: &View, shown: &ShownExplanation) -> Markup {
    let verdict = shown.judged.said();
    let (holders, more) = shown.holders(ROWS_MAX);
    html! {
        h2 #explanation-title { "Why " (text(&shown.judged.title)) " " (verdict) }
        p.answer { (text(&shown.summary)) }
        @if !holders.is_empty() {
            h3 { "Who holds it" }
            ul {
                @for holder in holders { li { (held_by(view, holder)) } }
                @if more > 0 { li { (count(more)) " more" } }
            }
        }
        @if !shown.would_change.is_empty() {
            h3 { @if verdict == "stays" { "What would let it go" } @else { "What would keep it" } }
            ul { @for change in &shown.would_change { li { (would_change(change)) } } }
        }
        h3 { "Facts" }
        dl {
            dt { "Reason" }
            dd { b { (text(&shown.judged.reason)) } ": " (text(&shown.explanation)) }
            @if !shown.judged.detail.is_empty() { dt { "Detail" } dd { (text(&shown.judged.detail)) } }
            @if let Some(words) = &shown.pod_explanation { dt { "Its pod" } dd { (text(words)) } }
            @if let Some(since) = &shown.since {
                dt { "Since" } dd { (ago(since.at, view.now)) ": " (text(&since.what)) }
            }
            dt { "Id" } dd { code { (text(&shown.judged.object.id)) } }
        }
        (rules(shown))
    }
}

fn held_by(view: &View, holder: &ShownHolder) -> Markup {
    html! {
        a href=(view.asked.explanation(&holder.id)) { (text(&holder.name)) }
        @if let Some(verdict) = holder.said() {
            ", which " (verdict)
            @if let Some(reason) = &holder.reason { " (" (text(reason)) ")" }
        }
        ": " (text(&holder.detail))
        @if let Some(words) = holder.pod_words() { ". " (text(words)) }
    }
}

fn would_change(change: &ShownChange) -> Markup {
    let seconds = change
        .in_seconds
        .map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    html! {
        (text(&change.what))
        @if let Some(seconds) = seconds { " " span.muted { "(by itself, in " (span(seconds)) ")" } }
    }
}

fn rules(shown: &ShownExplanation) -> Markup {
    html! {
        @if !shown.rules.is_empty() {
            details {
                summary { "All " (shown.rules.len()) " rules with what they looked at" }
                table {
                    thead { tr {
                        th scope="col" { "Rule" } th scope="col" { "Said" } th scope="col" { "Looked at" }
                    } }
                    tbody {
                        @for rule in &shown.rules {
                            tr {
                                th scope="row" { (text(&rule.rule)) }
                                td { (text(&rule.said)) @if rule.decides { " " strong { "(decides)" } } }
                                td { (text(&rule.inputs)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn pod(view: &View, shown: &ShownExplanation) -> Markup {
    let title = shown
        .pod
        .as_ref()
        .map(|pod| format!("{}/{}", pod.namespace, pod.name));
    html! {
        h2 #explanation-title { "Pod " (text(&title.unwrap_or_default())) }
        p.answer { (text(&shown.summary)) }
        p { (text(&shown.explanation)) }
        table {
            thead { tr {
                th scope="col" { "Object" } th scope="col" { "Verdict" } th scope="col" { "Why" }
            } }
            tbody {
                @for judged in shown.objects.iter().take(ROWS_MAX) {
                    tr {
                        td { a href=(view.asked.explanation(&judged.object.id)) { (text(&judged.title)) } }
                        td { (judged.said()) }
                        td { b { (text(&judged.reason)) } ": " (text(&judged.detail)) }
                    }
                }
            }
        }
        @let more = shown.objects_total.saturating_sub(shown.objects.len().min(ROWS_MAX));
        @if more > 0 { p { (count(more)) " more" } }
    }
}
