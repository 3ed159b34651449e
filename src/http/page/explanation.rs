//! Why one object or pod stays or goes: what `GET /api/v1/explain` answers, as text.

use maud::{Markup, html};

use super::view::{PageResult, View};
use super::words::{ago, columns, count, span, text};
use crate::gc::explain::{
    ExplainAnswer, ObjectAnswer, ObjectHolder, PodAnswer, RuleLine, VerdictChange,
};

/// Objects of a pod and holders that are shown; the API has more.
const ROWS_MAX: usize = 50;

pub(super) fn section(view: &View, explanation: &PageResult<ExplainAnswer>) -> Markup {
    html! {
        section #explanation .wide data-live aria-labelledby="explanation-title" {
            @match explanation {
                Err(why) => {
                    h2 #explanation-title { "No explanation" }
                    p.problem { (text(why)) }
                }
                Ok(ExplainAnswer::Pod(answer)) => (pod(view, answer)),
                Ok(ExplainAnswer::Object(answer)) => (object(view, answer)),
            }
            p { a href=(view.asked.objects(|_| {})) { "Back to the objects" } }
        }
    }
}

fn object(view: &View, answer: &ObjectAnswer) -> Markup {
    let (judged, why) = (&answer.judged, &answer.why);
    let verdict = judged.fate();
    let (holders, more) = why.holders(ROWS_MAX);
    html! {
        h2 #explanation-title { "Why " (text(&judged.title)) " " (verdict) }
        p.answer { (text(&why.summary)) }
        @if !holders.is_empty() {
            h3 { "Who holds it" }
            ul {
                @for holder in holders { li { (held_by(view, holder)) } }
                @if more > 0 { li { (count(more)) " more" } }
            }
        }
        @if !why.would_change.is_empty() {
            h3 { @if verdict == "stays" { "What would let it go" } @else { "What would keep it" } }
            ul { @for change in &why.would_change { li { (would_change(change)) } } }
        }
        h3 { "Facts" }
        dl {
            dt { "Reason" }
            dd { b { (text(&judged.reason)) } ": " (text(&judged.explanation)) }
            @if let Some(words) = &judged.pod_explanation { dt { "Its pod" } dd { (text(words)) } }
            @if let Some(since) = &why.since {
                dt { "Since" } dd { (ago(since.at, view.now)) ": " (text(&since.what)) }
            }
            dt { "Id" } dd { code { (text(&judged.object.id)) } }
        }
        (rules(&why.rules))
    }
}

fn held_by(view: &View, holder: &ObjectHolder) -> Markup {
    html! {
        a href=(view.asked.explanation(&holder.id)) { (text(&holder.name)) }
        @if let Some(verdict) = holder.fate() {
            ", which " (verdict)
            @if let Some(reason) = &holder.reason { " (" (text(reason)) ")" }
        }
        ": " (text(&holder.detail))
        @if let Some(words) = holder.pod_words() { ". " (text(words)) }
    }
}

fn would_change(change: &VerdictChange) -> Markup {
    let seconds = change
        .in_seconds
        .map(|it| i64::try_from(it).unwrap_or(i64::MAX));
    html! {
        (text(&change.what))
        @if let Some(seconds) = seconds { " " span.muted { "(by itself, in " (span(seconds)) ")" } }
    }
}

fn rules(rules: &[RuleLine]) -> Markup {
    html! {
        @if !rules.is_empty() {
            details {
                summary { "All " (rules.len()) " rules with what they looked at" }
                table {
                    (columns(&["Rule", "Said", "Looked at"]))
                    tbody {
                        @for rule in rules {
                            tr {
                                th scope="row" { (text(&rule.rule)) }
                                td { (rule.said.label()) @if rule.decides { " " strong { "(decides)" } } }
                                td { (text(&rule.inputs)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn pod(view: &View, shown: &PodAnswer) -> Markup {
    html! {
        h2 #explanation-title { "Pod " (text(&shown.pod.namespace)) "/" (text(&shown.pod.name)) }
        p.answer { (text(&shown.summary)) }
        table {
            (columns(&["Object", "Verdict", "Why"]))
            tbody {
                @for judged in shown.objects.iter().take(ROWS_MAX) {
                    tr {
                        td { a href=(view.asked.explanation(&judged.object.id)) { (text(&judged.title)) } }
                        td { (judged.fate()) }
                        td { b { (text(&judged.reason)) } ": " (text(&judged.detail)) }
                    }
                }
            }
        }
        @let more = shown.objects_total.saturating_sub(shown.objects.len().min(ROWS_MAX));
        @if more > 0 { p { (count(more)) " more" } }
    }
}
