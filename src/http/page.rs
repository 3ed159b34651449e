//! `GET /`: links to all other pages. The full page follows later.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Html;

use super::Service;
use super::quarantine::SHOWN_MAX;
use crate::model::escape;

pub(super) async fn get(State(service): State<Service>, headers: HeaderMap) -> Html<String> {
    let config = service.config();
    let node = escape::html(&config.node.name);
    let version = env!("CARGO_PKG_VERSION");
    let (mode, hash) = (config.mode.label(), config.hash());
    // Only loopback peers may act, so the examples use a loopback address instead of the name in the reader's
    // request.
    let port = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .and_then(|host| host.rsplit_once(':'))
        .and_then(|(_, port)| port.parse::<u16>().ok())
        .unwrap_or(80);
    let quarantine = quarantine(&service);
    Html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>crisweep on {node}</title>\n\
         <style>td {{ overflow-wrap: anywhere; vertical-align: top }}</style>\n\
         <h1>crisweep {version} on {node}</h1>\n<p>Mode: {mode}. Configuration: {hash}</p>\n<ul>\n\
         <li><a href=\"/metrics\">Metrics</a></li>\n\
         <li><a href=\"/api/v1/status\">Status</a></li>\n\
         <li><a href=\"/api/v1/plan\">Plan: what a pass would remove, and why it keeps the rest</a></li>\n\
         <li><a href=\"/api/v1/passes\">Passes</a></li>\n\
         <li><a href=\"/-/ready\">Ready</a>, <a href=\"/-/healthy\">healthy</a></li>\n</ul>\n\
         <p>Run a dry run: <code>curl -X POST 'http://localhost:{port}/gc?dry_run=true&amp;wait=60s'</code> on the node</p>\n\
         {quarantine}</html>\n"
    ))
}

/// The sandboxes whose removal failed, with the runtime's error text, which is untrusted.
fn quarantine(service: &Service) -> String {
    let look = service.observer.latest();
    let classes = service.quarantined_by_class(look.as_deref());
    if classes.is_empty() {
        return String::new();
    }
    let counts: Vec<String> = classes
        .iter()
        .map(|(class, count)| format!("{} {count}", class.label()))
        .collect();
    let mut rows = String::new();
    for shown in service.quarantined_first(look.as_deref()) {
        let pod = shown.pod.as_ref();
        let pod = pod.map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let known = &shown.known;
        let cells = [
            shown.id.clone(),
            pod,
            known.class.label().to_owned(),
            known.failures.to_string(),
            known.next_try.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            known.error.clone(),
        ];
        let cells = cells.map(|cell| format!("<td>{}</td>", escape::html(&cell)));
        rows.push_str(&format!("<tr>{}</tr>\n", cells.concat()));
    }
    format!(
        "<h2>Sandboxes that could not be removed</h2>\n\
         <p>{}. They are quarantined until their next try; at most {SHOWN_MAX} are listed, \
         <a href=\"/api/v1/plan?target=sandboxes\">the plan</a> has all.</p>\n\
         <table>\n<tr><th>Sandbox</th><th>Pod</th><th>Class</th><th>Failures</th><th>Next try</th>\
         <th>The runtime says</th></tr>\n{rows}</table>\n",
        counts.join(", ")
    )
}
