//! Who may act. Until credentials are configured: loopback peers, addressed by a name that is ours,
//! and never a browser's page from elsewhere (cross-site request forgery, DNS rebinding).

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Fixed, Problem, Service};
use crate::metrics::Endpoint;
use crate::report::AlertResult;
use crate::telemetry::LineLimit;

impl Fixed {
    /// Returns the bound on lines about who may not act. Whoever reaches the port can be refused as often as
    /// it likes; the count is in the metrics.
    pub fn refusals() -> LineLimit {
        LineLimit::new(10, Duration::from_secs(60))
    }
}

/// Refuses whoever may not act, before anything of the request is looked at.
pub(super) async fn act(
    State(service): State<Service>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let live = service.live();
    let names = Names {
        node: &service.fixed.node,
        trusted: &live.trusted_hosts,
    };
    match allowed(peer.ip(), request.headers(), request.uri(), &names) {
        Ok(()) => next.run(request).await,
        Err(why) => {
            let fixed = &service.fixed;
            if Endpoint::of_path(request.uri().path()) == Endpoint::Webhook {
                service.metrics.alert(AlertResult::Refused);
            }
            if let Some(left_out) = fixed.refusals.admit(fixed.started.elapsed()) {
                let (path, left_out) = (request.uri().path(), NonZeroU64::new(left_out));
                tracing::warn!(%peer, path, why, left_out, "refused to act");
            }
            Problem::new(StatusCode::FORBIDDEN, why).into_response()
        }
    }
}

/// The names that a request may be addressed to.
struct Names<'a> {
    node: &'a str,
    trusted: &'a [String],
}

fn allowed(
    peer: IpAddr,
    headers: &HeaderMap,
    uri: &Uri,
    names: &Names<'_>,
) -> Result<(), &'static str> {
    if !peer.to_canonical().is_loopback() {
        return Err("only loopback peers may act, because no credentials are configured");
    }
    // A repeated header is somebody's trick: no client of ours sends one.
    let one = |name: header::HeaderName| -> Result<Option<&str>, &'static str> {
        let mut values = headers.get_all(&name).iter();
        let first = values.next().map(|value| value.to_str());
        match (first, values.next()) {
            (None, _) => Ok(None),
            (Some(Ok(value)), None) => Ok(Some(value)),
            (Some(_), _) => Err("a Host, Origin or Sec-Fetch-Site header is garbled or repeated"),
        }
    };
    let authority = uri.authority().map(axum::http::uri::Authority::as_str);
    let host = one(header::HOST)?;
    if authority.is_some() && host.is_some() && authority != host {
        return Err("the request's address and its Host header differ");
    }
    let Some(host) = host.or(authority) else {
        return Err("the request has no Host header");
    };
    if !is_ours(host, names) {
        return Err(
            "the Host header names neither an address, localhost, this node, nor one of \
                    web.trusted_hosts",
        );
    }
    if let Some(origin) = one(header::ORIGIN)? {
        let from = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        if !from.is_some_and(|from| from.eq_ignore_ascii_case(host)) {
            return Err("requests from a page of another origin are refused");
        }
    }
    match one(header::HeaderName::from_static("sec-fetch-site"))? {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err("requests from a page of another site are refused"),
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

    fn verdict(peer: &str, headers: &[(&'static str, &str)]) -> Result<(), &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let trusted = ["gc.example".to_owned()];
        let names = Names {
            node: "node-1",
            trusted: &trusted,
        };
        allowed(
            peer.parse().unwrap(),
            &map,
            &Uri::from_static("/gc"),
            &names,
        )
    }

    #[test]
    fn loopback_peers_act_and_others_do_not() {
        let host = [("host", "127.0.0.1:20950")];
        for peer in ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(verdict(peer, &host), Ok(()), "{peer}");
        }
        for peer in ["10.0.0.1", "192.168.1.1", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(verdict(peer, &host).is_err(), "{peer}");
        }
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
        let mut headers = HeaderMap::new();
        headers.append("host", "localhost".parse().unwrap());
        let names = Names {
            node: "node-1",
            trusted: &[],
        };
        let peer = "127.0.0.1".parse().unwrap();
        let ask = |uri| allowed(peer, &headers, &Uri::from_static(uri), &names);
        assert_eq!(ask("http://localhost/gc"), Ok(()));
        assert!(ask("http://evil.example/gc").is_err());
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
