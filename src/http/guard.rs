//! Who may read, and who may act. Refuses pages of other web sites in a browser (cross-site request forgery,
//! DNS rebinding, also through a port-forward), and asks `access` about everybody else.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use axum::Extension;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::browser::client;
use super::{HEALTHY, HttpError, READY, Service};
use crate::access::{Asking, ClientKind, Decision, Peer, Scope};
use crate::config::Config;
use crate::metrics::HttpEndpoint;
use crate::model::{AlertResult, Caller};

/// Who asked, for the handlers of requests that act.
#[derive(Clone, Debug)]
pub(super) struct Requester(pub(super) Option<Caller>);

/// Refuses requests from other web sites, for foreign host names, and without the credential that they need.
pub(super) async fn guard(
    State(service): State<Service>,
    Extension(mut peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    if is_passed_on(request.headers()) {
        peer.note_proxy();
        request.extensions_mut().insert(peer.clone());
    }
    let config = service.config();
    if let Err(why) = may_ask(&peer, &request, &config) {
        return refuse(&service, &peer, request.uri(), StatusCode::FORBIDDEN, why);
    }
    let Some(scope) = scope(request.method(), request.uri().path()) else {
        return next.run(request).await;
    };
    let access = service.access.get();
    // The requests of other clients must not keep root on this node from acting.
    if !peer.is_unix()
        && let Err(wait) = access.admit()
    {
        return too_many(&service, &peer, request.uri(), wait);
    }
    let authorization = match one(request.headers(), "authorization") {
        Ok(value) => value,
        Err(why) => return refuse(&service, &peer, request.uri(), StatusCode::BAD_REQUEST, why),
    };
    let client = client(request.headers());
    let route = request.extensions().get::<MatchedPath>();
    let asking = Asking {
        scope,
        peer: &peer,
        authorization,
        method: request.method(),
        route: route.map(MatchedPath::as_str),
    };
    let (status, why) = match access.decide(asking).await {
        Decision::Allowed(caller) => {
            if let (Scope::Act, Some(caller)) = (scope, &caller) {
                service.metrics.acts.count(caller.kind);
            }
            request.extensions_mut().insert(Requester(caller));
            return next.run(request).await;
        }
        Decision::Unauthenticated(why) => (StatusCode::UNAUTHORIZED, why),
        Decision::Forbidden(why) => (StatusCode::FORBIDDEN, why),
        Decision::Unavailable(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    let mut response = refuse(&service, &peer, request.uri(), status, &why);
    if status == StatusCode::UNAUTHORIZED {
        for challenge in access.challenges(client) {
            let challenge = HeaderValue::from_static(challenge);
            response
                .headers_mut()
                .append(header::WWW_AUTHENTICATE, challenge);
        }
    }
    response
}

/// Says whether a proxy names the client whose request it passes on.
fn is_passed_on(headers: &HeaderMap) -> bool {
    let names = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];
    names.iter().any(|name| headers.contains_key(*name))
}

/// The rate limit of the web configuration file is reached. Alertmanager repeats a webhook only after a 5xx.
fn too_many(service: &Service, peer: &Peer, uri: &Uri, wait: Duration) -> Response {
    let seconds = wait.as_secs_f64().ceil().max(1.0);
    let why = "the rate limit of the web configuration file is reached; try again later";
    let status = if HttpEndpoint::of_path(uri.path()) == HttpEndpoint::Webhook {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::TOO_MANY_REQUESTS
    };
    let mut response = refuse(service, peer, uri, status, why);
    if let Ok(seconds) = HeaderValue::from_str(&format!("{seconds:.0}")) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

/// Returns what a request needs, of a known path or not, so that no new path is open by mistake: every method
/// but `GET` and `HEAD` acts. `None`: the probes, which say nothing of the node's objects, and which the kubelet
/// sends without credentials.
pub fn scope(method: &Method, path: &str) -> Option<Scope> {
    if !is_reading(method) {
        return Some(Scope::Act);
    }
    (![HEALTHY, READY].contains(&path)).then_some(Scope::Read)
}

fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn refuse(service: &Service, peer: &Peer, uri: &Uri, status: StatusCode, why: &str) -> Response {
    let fixed = &service.fixed;
    if HttpEndpoint::of_path(uri.path()) == HttpEndpoint::Webhook {
        service.metrics.alerts.count(AlertResult::Refused);
    }
    if let Some(left_out) = fixed.refusals.admit(fixed.started.elapsed()) {
        let (path, left_out) = (uri.path(), NonZeroU64::new(left_out));
        tracing::warn!(%peer, path, why, left_out, "refused");
    }
    HttpError::new(status, why).into_response()
}

fn may_ask<B>(
    peer: &Peer,
    request: &axum::http::Request<B>,
    config: &Config,
) -> Result<(), &'static str> {
    let headers = request.headers();
    let reads = is_reading(request.method());
    let host = host(headers, request.uri())?;
    // Prometheus and people may use any name for the node. A loopback peer may be a browser that was misled by
    // DNS rebinding, so its `Host` is checked. No browser reaches a unix socket.
    if !peer.is_unix() && (!reads || peer.is_loopback()) {
        let host = host.ok_or("the request has no Host header")?;
        if !is_ours(host, config) {
            return Err(
                "the Host header names neither an address, localhost, this node, nor one of \
                        web.trusted_hosts",
            );
        }
    }
    let site = one(headers, "sec-fetch-site")?;
    let origin = one(headers, "origin")?;
    // Every browser of today says where a form is. One that does not may send what another site made it send.
    let is_nameless = origin.is_none() && site.is_none();
    if !reads && !peer.is_unix() && is_nameless && client(headers) == ClientKind::Browser {
        return Err("a browser must say which page acts (Origin or Sec-Fetch-Site)");
    }
    if let Some(origin) = origin {
        let from = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        let same = |from: &str| host.is_some_and(|host| from.eq_ignore_ascii_case(host));
        if !from.is_some_and(same) {
            return Err("requests from a page of another origin are refused");
        }
    }
    match site {
        None | Some("same-origin" | "none") => Ok(()),
        // A link on another site, for example a dashboard: the other page cannot read the answer.
        Some(_) if is_link(peer, reads, headers)? => Ok(()),
        Some(_) => Err("requests from a page of another site are refused"),
    }
}

/// Says whether a reading request of a peer of the network follows a link. Pages on this machine have no reason to
/// link here.
fn is_link(peer: &Peer, reads: bool, headers: &HeaderMap) -> Result<bool, &'static str> {
    let navigates = one(headers, "sec-fetch-mode")? == Some("navigate");
    Ok(reads && navigates && !peer.is_loopback())
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
        (Some(_), _) => {
            Err("a Host, Origin, Sec-Fetch or Authorization header is invalid or repeated")
        }
    }
}

/// Says whether a request may address this host.
fn is_ours(host: &str, config: &Config) -> bool {
    let name = without_port(host);
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || name.eq_ignore_ascii_case(&config.node.name)
        || config
            .web
            .trusted_hosts
            .iter()
            .any(|trusted| is_trusted(name, trusted) || host.eq_ignore_ascii_case(trusted))
}

/// Says whether a name is the trusted one or, if that begins with a dot, has one label more.
fn is_trusted(name: &str, trusted: &str) -> bool {
    let Some(domain) = trusted.strip_prefix('.') else {
        return name.eq_ignore_ascii_case(trusted);
    };
    let parent = name.split_once('.').map(|(_, parent)| parent);
    !domain.is_empty() && parent.is_some_and(|parent| parent.eq_ignore_ascii_case(domain))
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
        let trusted = ["gc.example", ".gc.svc.cluster.local", "."].map(str::to_owned);
        let mut config = Config::default();
        config.node.name = "node-1".to_owned();
        config.web.trusted_hosts = trusted.into();
        let mut request = axum::http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        may_ask(&tcp(peer), &request.body(()).unwrap(), &config)
    }

    fn tcp(peer: &str) -> Peer {
        let ip: IpAddr = peer.parse().unwrap();
        Peer::tcp((ip, 1).into(), (ip, 2).into())
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
            assert!(tcp(peer).is_loopback(), "{peer}");
        }
        for peer in ["10.0.0.1", "192.168.1.1", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(!tcp(peer).is_loopback(), "{peer}");
        }
    }

    #[test]
    fn readers_of_the_network_may_use_any_name_and_local_ones_only_ours() {
        let foreign = [("host", "evil.example")];
        assert_eq!(reads("10.0.0.1", &foreign), Ok(()));
        assert_eq!(reads("10.0.0.1", &[]), Ok(()));
        assert!(reads("127.0.0.1", &foreign).is_err());
        assert!(reads("::ffff:127.0.0.1", &foreign).is_err());
        assert!(verdict("10.0.0.1", &foreign).is_err());
        assert_eq!(reads("127.0.0.1", &[("host", "localhost:1")]), Ok(()));
    }

    #[test]
    fn a_trusted_name_with_a_dot_before_it_stands_for_one_label_more() {
        for host in ["10-0-0-1.gc.svc.cluster.local:1", "A.GC.svc.cluster.local"] {
            assert_eq!(verdict("10.0.0.1", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "gc.svc.cluster.local",
            "a.b.gc.svc.cluster.local",
            "evilgc.svc.cluster.local",
            "a.gc.svc.cluster.local.evil.example",
            "a.gc.svc.cluster.local.",
            "evil.",
            "evil",
            "a.gc.example",
        ] {
            assert!(verdict("10.0.0.1", &[("host", host)]).is_err(), "{host}");
        }
    }

    #[test]
    fn a_link_from_elsewhere_may_be_followed_and_nothing_more() {
        let host = ("host", "localhost:20950");
        let site = ("sec-fetch-site", "cross-site");
        let link = ("sec-fetch-mode", "navigate");
        let origin = ("origin", "http://evil.example");
        assert!(reads("127.0.0.1", &[host, site, link]).is_err());
        assert_eq!(reads("10.0.0.1", &[host, site, link]), Ok(()));
        assert!(reads("127.0.0.1", &[host, site]).is_err());
        assert!(reads("127.0.0.1", &[host, site, ("sec-fetch-mode", "cors")]).is_err());
        assert!(reads("127.0.0.1", &[host, site, link, origin]).is_err());
        assert!(reads("10.0.0.1", &[host, origin]).is_err());
        // A form of another page.
        for peer in ["127.0.0.1", "10.0.0.1"] {
            assert!(verdict(peer, &[host, site, link]).is_err(), "{peer}");
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
