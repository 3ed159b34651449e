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
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::IntoResponse;
use maud::{Markup, html};

use super::{HttpError, HttpResult, QueryPairs, Service};
use crate::access::Peer;
use asked::Asked;
use document::{document, security};
use view::View;
use words::text;

/// Says that the targets of a pass were ticked, so that none is none; in the programs' interface none is all.
const TICKED: &str = "ticked";

/// Says whether a body is a form's.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let content = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    content.is_some_and(|it| it.starts_with(b"application/x-www-form-urlencoded"))
}

/// Reads the parameters of a pass from a form of the page.
pub(super) fn form(body: &[u8]) -> Result<QueryPairs, HttpError> {
    let unread = || HttpError::bad("the form could not be read");
    let query = std::str::from_utf8(body).map_err(|_error| unread())?;
    let uri = Uri::builder().path_and_query(format!("/?{query}")).build();
    let fields = uri.ok().and_then(|uri| Query::try_from_uri(&uri).ok());
    let Query(mut fields): Query<QueryPairs> = fields.ok_or_else(unread)?;
    let all = fields.len();
    fields.retain(|(key, _)| key != TICKED);
    if fields.len() < all && !fields.iter().any(|(key, _)| key == "target") {
        return Err(HttpError::bad(
            "nothing is ticked: tick what the pass is for",
        ));
    }
    Ok(fields)
}

pub(super) async fn get(
    State(service): State<Service>,
    Extension(peer): Extension<Peer>,
    Query(query): Query<QueryPairs>,
    headers: HeaderMap,
) -> HttpResult {
    let asked = Asked::read(query).map_err(HttpError::bad)?;
    let view = View::gather(&service, asked, &peer, &headers).await?;
    // On a blocking thread: it may sort and write 20,000 objects.
    let page = service.heavy(move |_| page(&view)).await?;
    Ok((security(), page).into_response())
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
    let state = serde_json::to_string(&view.state).unwrap_or_default();
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
        main data-state=(text(&state)) {
            p #stale .problem role="status" hidden {}
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
                a href="metrics" { "metrics" } ", " a href="api/v1/status" { "status" } ", "
                a href="api/v1/plan" { "plan" } ", " a href="api/v1/passes" { "passes" } ", "
                a href="-/ready" { "ready" } ", " a href="-/healthy" { "healthy" } "."
            }
        }
        dialog #dialog aria-labelledby="confirm-title" {}
    }
}
