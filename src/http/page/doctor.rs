//! Why litter piles up, and what would stop it: looked for only where it is asked for, because that costs more.

use maud::{Markup, html};

use super::view::View;
use super::words::{columns, text};
use crate::doctor::{Finding, Report};

/// Findings that are shown; the API has more.
const ROWS_MAX: usize = 20;

pub(super) fn section(view: &View) -> Markup {
    html! {
        section #doctor aria-labelledby="doctor-title" {
            h2 #doctor-title { "Why litter piles up" }
            @match &view.doctor {
                None => p {
                    a.button href="./?doctor=true#doctor" { "Look for the causes" } " "
                    span.muted { "It also asks the kubelet for its settings." }
                },
                Some(Err(why)) => p.problem { (text(why)) },
                Some(Ok(report)) => (report_of(report)),
            }
        }
    }
}

fn report_of(report: &Report) -> Markup {
    let more = report.findings.len().saturating_sub(ROWS_MAX);
    html! {
        p.answer { (text(&report.summary)) }
        table {
            (columns(&["Kind", "What was found", "The change that would stop it"]))
            tbody { @for finding in report.findings.iter().take(ROWS_MAX) { (row(finding)) } }
        }
        p.muted {
            @if more > 0 { (more) " more. " }
            a href="api/v1/doctor" { "As JSON" }
        }
    }
}

fn row(finding: &Finding) -> Markup {
    html! {
        tr {
            th scope="row" { (finding.severity.label()) }
            td { (text(&finding.summary)) }
            td { (text(&finding.change)) }
        }
    }
}
