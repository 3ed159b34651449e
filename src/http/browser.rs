//! Browsers among the clients, and the proxies before them: which request is a browser's, and where its forms lead.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::access::ClientKind;

/// Has a reverse proxy (nginx) pass on each line of an answer at once. By default it waits for 4 KiB or the end.
pub(super) const UNBUFFERED: (&str, &str) = ("x-accel-buffering", "no");

/// Tells a browser that wants a page from programs, which take any answer.
pub(super) fn client(headers: &HeaderMap) -> ClientKind {
    let accepts = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
    let page = b"text/html";
    match accepts {
        Some(accepts) if accepts.windows(page.len()).any(|it| it == page) => ClientKind::Browser,
        Some(_) | None => ClientKind::Program,
    }
}

/// Leads a browser from a form to the page with the pass.
pub(super) fn see_other(form: &str, id: &str) -> Response {
    let page = format!("{}?pass={id}#pass", page_from(form));
    (StatusCode::SEE_OTHER, [(header::LOCATION, page)]).into_response()
}

/// Returns the page's address as seen from a path. Links never begin with a slash: behind a reverse proxy the service
/// may be below a path that it does not know.
pub(super) fn page_from(path: &str) -> String {
    let levels = path.matches('/').count().saturating_sub(1);
    format!("./{}", "../".repeat(levels))
}
