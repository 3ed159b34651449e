//! Who may read, and who may act. Refuses pages of other web sites in a browser (cross-site request forgery,
//! DNS rebinding, also through a port-forward). Only loopback peers may act, until credentials can be
//! configured.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Fixed, Problem, Service};
use crate::metrics::Endpoint;
use crate::model::AlertResult;
use crate::telemetry::LineLimit;

impl std::fmt::Debug for Fixed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fixed").finish_non_exhaustive()
    }
}

impl Fixed {
    /// Limits log lines about refused clients: a client that reaches the port can cause refusals without end.
    /// The metrics count them all.
    pub fn refusals() -> LineLimit {
        LineLimit::new(10, Duration::from_secs(60))
    }
}

/// Refuses requests from other web sites and for foreign host names, before it reads anything else.
pub(super) async fn ask(
    State(service): State<Service>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let config = service.config();
    let names = Names {
        node: &config.node.name,
        trusted: &config.web.trusted_hosts,
    };
    match may_ask(peer.ip(), &request, &names) {
        Ok(()) => next.run(request).await,
        Err(why) => refuse(&service, peer, request.uri(), why),
    }
}

/// Refuses clients that may not act.
pub(super) async fn act(
    State(service): State<Service>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    if is_loopback(peer.ip()) {
        return next.run(request).await;
    }
    let why = "only loopback peers may act, because no credentials are configured";
    refuse(&service, peer, request.uri(), why)
}

fn refuse(service: &Service, peer: SocketAddr, uri: &Uri, why: &'static str) -> Response {
    let fixed = &service.fixed;
    if Endpoint::of_path(uri.path()) == Endpoint::Webhook {
        service.metrics.alert(AlertResult::Refused);
    }
    if let Some(left_out) = fixed.refusals.admit(fixed.started.elapsed()) {
        let (path, left_out) = (uri.path(), NonZeroU64::new(left_out));
        tracing::warn!(%peer, path, why, left_out, "refused");
    }
    Problem::new(StatusCode::FORBIDDEN, why).into_response()
}

fn is_loopback(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

/// The host names that a request may address.
struct Names<'a> {
    node: &'a str,
    trusted: &'a [String],
}

fn may_ask<B>(
    peer: IpAddr,
    request: &axum::http::Request<B>,
    names: &Names<'_>,
) -> Result<(), &'static str> {
    let headers = request.headers();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let host = host(headers, request.uri())?;
    // Prometheus and people may use any name for the node. A loopback peer may be a browser that was misled by
    // DNS rebinding, so its `Host` is checked.
    if !reads || is_loopback(peer) {
        let host = host.ok_or("the request has no Host header")?;
        if !is_ours(host, names) {
            return Err(
                "the Host header names neither an address, localhost, this node, nor one of \
                        web.trusted_hosts",
            );
        }
    }
    if let Some(origin) = one(headers, "origin")? {
        let from = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        let same = |from: &str| host.is_some_and(|host| from.eq_ignore_ascii_case(host));
        if !from.is_some_and(same) {
            return Err("requests from a page of another origin are refused");
        }
    }
    match one(headers, "sec-fetch-site")? {
        None | Some("same-origin" | "none") => Ok(()),
        // A link on another site, for example a dashboard: the other page cannot read the answer.
        Some(_) if reads && one(headers, "sec-fetch-mode")? == Some("navigate") => Ok(()),
        Some(_) => Err("requests from a page of another site are refused"),
    }
}

fn host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Result<Option<&'a str>, &'static str> {
    let authority = uri.authority().map(axum::http::uri::Authority::as_str);
    let host = one(headers, "host")?;
    if authority.is_some() && host.is_some() && authority != host {
        return Err("the request's target and its Host header differ");
    }
    Ok(host.or(authority))
}

/// Returns a header; refuses a request that repeats it, because no honest client does.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, &'static str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str());
    match (first, values.next()) {
        (None, _) => Ok(None),
        (Some(Ok(value)), None) => Ok(Some(value)),
        (Some(_), _) => Err("a Host, Origin or Sec-Fetch header is invalid or repeated"),
    }
}

fn is_ours(host: &str, names: &Names<'_>) -> bool {
    let name = without_port(host);
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.eq_ignore_ascii_case(names.node)
        || names
            .trusted
            .iter()
            .any(|trusted| name.eq_ignore_ascii_case(trusted) || host.eq_ignore_ascii_case(trusted))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|b| b.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        Some(_) | None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(
        method: Method,
        uri: &'static str,
        peer: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<(), &'static str> {
        let trusted = ["gc.example".to_owned()];
        let names = Names {
            node: "node-1",
            trusted: &trusted,
        };
        let mut request = axum::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        may_ask(peer.parse().unwrap(), &request.body(()).unwrap(), &names)
    }

    fn verdict(peer: &str, headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
        ask(Method::POST, "/gc", peer, headers)
    }

    fn reads(peer: &str, headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
        ask(Method::GET, "/api/v1/status", peer, headers)
    }

    #[test]
    fn loopback_is_known_in_every_shape() {
        for peer in ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(peer.parse().unwrap()), "{peer}");
        }
        for peer in ["10.0.0.1", "192.168.1.1", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(!is_loopback(peer.parse().unwrap()), "{peer}");
        }
    }

    #[test]
    fn who_reads_from_elsewhere_may_use_any_name_and_from_here_only_ours() {
        let foreign = [("host", "evil.example")];
        assert_eq!(reads("10.0.0.1", &foreign), Ok(()));
        assert_eq!(reads("10.0.0.1", &[]), Ok(()));
        assert!(reads("127.0.0.1", &foreign).is_err());
        assert!(reads("::ffff:127.0.0.1", &foreign).is_err());
        assert!(verdict("10.0.0.1", &foreign).is_err());
        assert_eq!(reads("127.0.0.1", &[("host", "localhost:1")]), Ok(()));
    }

    #[test]
    fn a_link_from_elsewhere_may_be_followed_and_nothing_more() {
        let host = ("host", "localhost:20950");
        let site = ("sec-fetch-site", "cross-site");
        let link = ("sec-fetch-mode", "navigate");
        let origin = ("origin", "http://evil.example");
        assert_eq!(reads("127.0.0.1", &[host, site, link]), Ok(()));
        assert!(reads("127.0.0.1", &[host, site]).is_err());
        assert!(reads("127.0.0.1", &[host, site, ("sec-fetch-mode", "cors")]).is_err());
        assert!(reads("127.0.0.1", &[host, site, link, origin]).is_err());
        assert!(reads("10.0.0.1", &[host, origin]).is_err());
        // A form of another page.
        assert!(verdict("127.0.0.1", &[host, site, link]).is_err());
    }

    #[test]
    fn the_host_must_be_an_address_or_a_name_of_ours() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:20950",
            "[::1]:20950",
            "[::1]",
            "10.1.2.3:1",
            "localhost",
            "LOCALHOST:20950",
            "node-1:20950",
            "gc.example",
            "gc.example:443",
        ] {
            assert_eq!(verdict("127.0.0.1", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example:80",
            "127.0.0.1.evil.example",
            "",
            "a:b:c",
        ] {
            assert!(verdict("127.0.0.1", &[("host", host)]).is_err(), "{host}");
        }
        assert!(verdict("127.0.0.1", &[]).is_err());
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert!(verdict("127.0.0.1", &twice).is_err());
    }

    #[test]
    fn the_address_in_the_request_line_must_be_the_host() {
        let host = [("host", "localhost")];
        let peer = "127.0.0.1";
        assert_eq!(
            ask(Method::POST, "http://localhost/gc", peer, &host),
            Ok(())
        );
        assert!(ask(Method::POST, "http://evil.example/gc", peer, &host).is_err());
    }

    #[test]
    fn a_page_from_elsewhere_is_refused() {
        let host = ("host", "localhost:20950");
        for own in [
            ("origin", "http://localhost:20950"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(verdict("127.0.0.1", &[host, own]), Ok(()), "{own:?}");
        }
        for foreign in [
            ("origin", "null"),
            ("origin", "http://evil.example"),
            ("origin", "http://localhost:8080"),
            ("origin", "http://localhost:20950.evil.example"),
            ("origin", "file://localhost:20950"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", ""),
        ] {
            assert!(
                verdict("127.0.0.1", &[host, foreign]).is_err(),
                "{foreign:?}"
            );
        }
    }
}
