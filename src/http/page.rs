//! `GET /`: the page for a person on call. One answer has everything; its script only improves it.

mod asked;
mod change;
mod confirm;
mod doctor;
mod document;
mod drawing;
mod evidence;
mod explanation;
mod figures;
mod history;
mod messages;
mod objects;
mod passes;
mod plan;
pub(super) mod problem;
mod quarantine;
mod sentence;
mod view;
mod words;

use axum::Extension;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};

use super::{Problem, Service};
use crate::access::Peer;
use asked::Asked;
use document::{document, security};
use view::{Reader, View};
use words::text;

type Pairs = Vec<(String, String)>;

pub(super) async fn get(
    State(service): State<Service>,
    Extension(peer): Extension<Peer>,
    query: Result<Query<Pairs>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
) -> Response {
    let query = query.map_err(|_error| "the query could not be read".to_owned());
    let asked = match query.and_then(|Query(query)| Asked::read(query)) {
        Ok(asked) => asked,
        Err(why) => return Problem::bad(why).into_response(),
    };
    let reader = Reader {
        peer: &peer,
        headers: &headers,
    };
    match View::gather(&service, asked, reader).await {
        Ok(view) => (security(), page(&view)).into_response(),
        Err(problem) => problem.into_response(),
    }
}

fn page(view: &View) -> String {
    let verdict = sentence::sentence(&view.node.verdict);
    let title = format!("{verdict} – {} – crisweep", view.config.node.name);
    let moves = view.running().is_some() || view.waiting().next().is_some();
    let head = html! {
        // Without JavaScript the page follows a pass by loading itself again; to the same URL with its fragment a browser
        // would only scroll.
        @if moves && !view.asked.confirm {
            noscript { meta http-equiv="refresh" content=(format!("3;url={}", view.asked.pass_link())); }
        }
    };
    document(&title, &head, &body(view))
}

fn body(view: &View) -> Markup {
    html! {
        a.skip href="#plan" { "Skip to the plan" }
        header {
            p.brand { "crisweep " span.muted { (env!("CARGO_PKG_VERSION")) } }
            p.node { (text(&view.config.node.name)) }
            (sentence::mode(view))
            nav aria-label="Sections" {
                a href="#plan" { "Plan" } a href="#node" { "Node" } a href="#objects" { "Objects" }
                a href="#passes" { "Passes" } a href="#quarantine" { "Quarantine" } a href="#evidence" { "Evidence" } a href="#doctor" { "Causes" }
            }
        }
        main {
            (sentence::section(view))
            @if view.asked.confirm { (confirm::section(view)) }
            @if let Some(explanation) = &view.node.explanation { (explanation::section(view, explanation)) }
            @if let Some(shown) = &view.shown_evidence { (evidence::shown(view, shown)) }
            div.first {
                (plan::section(view))
                (passes::section(view))
                (figures::section(view))
            }
            (objects::section(view))
            (passes::list(view))
            (quarantine::section(view))
            (evidence::list(view))
            (doctor::section(view))
        }
        (footer(view))
    }
}

fn footer(view: &View) -> Markup {
    html! {
        footer {
            p {
                "Configuration " code { (view.config.hash()) } ". For programs: "
                a href="/metrics" { "metrics" } ", " a href="/api/v1/status" { "status" } ", "
                a href="/api/v1/plan" { "plan" } ", " a href="/api/v1/passes" { "passes" } ", "
                a href="/-/ready" { "ready" } ", " a href="/-/healthy" { "healthy" } "."
            }
        }
        dialog #dialog aria-labelledby="confirm-title" {}
    }
}
