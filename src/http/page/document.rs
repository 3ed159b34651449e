//! The frame of each page: head, style and script, and what a browser may load.
//!
//! Style and script stand in the page, so that a page is one request and needs no right to another path; the policy
//! names their digests, and allows nothing else.

use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use ring::digest;

use super::words::text;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

static POLICY: LazyLock<String> = LazyLock::new(|| {
    let sha256 = |text: &str| {
        let digest = digest::digest(&digest::SHA256, text.as_bytes());
        BASE64_STANDARD.encode(digest)
    };
    format!(
        // The empty icon is `data:`; without it a browser asks for /favicon.ico.
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        sha256(STYLE),
        sha256(SCRIPT)
    )
});

/// Returns the headers of a page.
pub(super) fn security() -> [(HeaderName, &'static str); 3] {
    [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY.as_str()),
        // With a stricter policy browsers hide a form's origin, and the guard refuses the form.
        (header::REFERRER_POLICY, "same-origin"),
    ]
}

/// Returns a whole page.
pub(super) fn document(title: &str, head: &Markup, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (text(title)) }
                (head)
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}
