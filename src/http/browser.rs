//! Browsers among the clients: which request is one's, and where its forms lead.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::access::ClientKind;

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
pub(super) fn see_other(id: &str) -> Response {
    let page = format!("/?pass={id}#pass");
    (StatusCode::SEE_OTHER, [(header::LOCATION, page)]).into_response()
}
