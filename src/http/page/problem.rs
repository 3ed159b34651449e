//! Refusals as pages: a browser's form gets words, where programs get JSON.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::html;

use super::super::browser::{client, page_from};
use super::document::{document, security};
use super::words::text;
use crate::access::ClientKind;

/// What a refusal says; a browser gets it as a page.
#[derive(Clone, Debug)]
pub(in crate::http) struct ErrorText(pub(in crate::http) String);

/// Turns the refusals of the page and of its forms into pages, for browsers alone.
pub(in crate::http) async fn for_browsers(request: Request, next: Next) -> Response {
    let is_page = request.uri().path() == "/" || request.method() == Method::POST;
    let wants_page = is_page && client(request.headers()) == ClientKind::Browser;
    let back = page_from(request.uri().path());
    let answer = next.run(request).await;
    let refusal = answer.extensions().get::<ErrorText>();
    match refusal.filter(|_| wants_page) {
        Some(ErrorText(why)) => {
            let page = page(answer.status(), why, &back);
            keep_headers(page, &answer)
        }
        None => answer,
    }
}

/// Shows a refusal as a page.
fn page(status: StatusCode, why: &str, back: &str) -> Response {
    let reason = status.canonical_reason().unwrap_or("Refused");
    let body = html! {
        main {
            section.problem {
                h1 { (reason) }
                p.answer { (text(why)) "." }
                p { a href=(back) { "Back to the page" } }
            }
        }
    };
    let page = document("crisweep: refused", &html! {}, &body);
    (status, security(), page).into_response()
}

/// The challenge and the time to wait hold for a page too.
fn keep_headers(mut page: Response, answer: &Response) -> Response {
    for name in [header::WWW_AUTHENTICATE, header::RETRY_AFTER, header::ALLOW] {
        let values: Vec<HeaderValue> = answer.headers().get_all(&name).iter().cloned().collect();
        for value in values {
            page.headers_mut().append(&name, value);
        }
    }
    page
}
