//! `GET /`: where everything is. The page of the contract comes later; this one only points.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Html;

use super::Service;

/// Handles `GET /`.
pub(super) async fn get(State(service): State<Service>, headers: HeaderMap) -> Html<String> {
    let node = escape(&service.fixed.node);
    let version = env!("CARGO_PKG_VERSION");
    let mode = service.live().mode;
    // Act is for loopback peers: the name that the reader used would not do.
    let port = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .and_then(|host| host.rsplit_once(':'))
        .and_then(|(_, port)| port.parse::<u16>().ok())
        .unwrap_or(80);
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>crisweep on {node}</title>\n\
         <h1>crisweep {version} on {node}</h1>\n<p>Mode: {mode}</p>\n<ul>\n\
         <li><a href=\"/metrics\">Metrics</a></li>\n\
         <li><a href=\"/api/v1/status\">Status</a></li>\n\
         <li><a href=\"/api/v1/plan\">Plan: what a pass would remove, and why the rest stays</a></li>\n\
         <li><a href=\"/api/v1/passes\">Passes</a></li>\n\
         <li><a href=\"/-/ready\">Ready</a>, <a href=\"/-/healthy\">healthy</a></li>\n</ul>\n\
         <p>Run a dry run: <code>curl -X POST 'http://localhost:{port}/gc?dry_run=true&amp;wait=60s'</code> on the node</p>\n\
         </html>\n"
    ))
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_nodes_name_cannot_write_html() {
        assert_eq!(super::escape("<b>\"&"), "&lt;b&gt;&quot;&amp;");
    }
}
