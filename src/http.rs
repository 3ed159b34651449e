//! The HTTP side: router, limits, and the one place where statuses are chosen.
//!
//! `guard` decides which requests are served at all.

mod alerts;
mod api;
mod ask;
mod browser;
mod collect;
mod connections;
mod events;
mod evidence;
mod guard;
mod limits;
mod metrics_page;
mod page;
mod places;
mod plans;
mod quarantine;
mod reload;
mod saved_plans;
pub mod serve;
mod service;
mod shared;
mod status;
mod unix_socket;

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{self, MethodRouter};
use serde::Serialize;

use crate::metrics::HttpEndpoint;
use crate::model::escape;
use crate::snapshot::NoSnapshot;
use crate::state;
use crate::system::clock;
pub use collect::ADMISSION;
pub use guard::scope;
use limits::RequestLimits;
use page::problem::{self, ErrorText};
pub use service::{Reload, Service};
pub(crate) use status::{PlanStatus, of_look};

/// The probes' paths.
const HEALTHY: &str = "/-/healthy";
const READY: &str = "/-/ready";

/// The largest request body.
pub const BODY_MAX_BYTES: usize = 1 << 20;
/// Time in which a request's body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The parameters of a query, in their order.
type QueryPairs = Vec<(String, String)>;

/// What a handler answers.
type HttpResult = Result<Response, HttpError>;

/// An error answer: `{"error": "..."}`.
#[derive(Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    error: String,
}

impl HttpError {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
        }
    }

    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    fn unavailable(error: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    fn internal(error: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

/// The page shows the words in the place of what they are about.
impl From<HttpError> for String {
    fn from(error: HttpError) -> Self {
        error.error
    }
}

/// No plan is possible on a look.
impl From<NoSnapshot> for HttpError {
    fn from(error: NoSnapshot) -> Self {
        Self::unavailable(error.to_string())
    }
}

/// The database does not answer.
impl From<state::Error> for HttpError {
    fn from(error: state::Error) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let mut answer = json(self.status, &serde_json::json!({ "error": self.error }));
        answer.extensions_mut().insert(ErrorText(self.error));
        answer
    }
}

/// Answers with indented JSON.
fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            let text = format!("{}\n", escape::json(&text));
            (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A path with one method and its handler.
#[derive(Clone, Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, as the router matches it.
    pub path: &'static str,
    handler: MethodRouter<Service>,
}

/// Returns everything that is served.
pub fn routes() -> Vec<Route> {
    let route = |method, path, handler| Route {
        method,
        path,
        handler,
    };
    let get = |path, handler| route(Method::GET, path, handler);
    let post = |path, handler| route(Method::POST, path, handler);
    let delete = |path, handler| route(Method::DELETE, path, handler);
    vec![
        get("/", routing::get(page::get)),
        get("/metrics", routing::get(metrics_page::get)),
        get(HEALTHY, routing::get(healthy)),
        get(READY, routing::get(ready)),
        get("/api/v1/status", routing::get(status::get)),
        get("/api/v1/plan", routing::get(plans::plan)),
        get("/api/v1/plans", routing::get(plans::list)),
        post("/api/v1/plans", routing::post(plans::save)),
        get("/api/v1/plans/{id}", routing::get(plans::get)),
        delete("/api/v1/plans/{id}", routing::delete(plans::forget)),
        get("/api/v1/snapshot", routing::get(api::snapshot)),
        // Paths and tags contain slashes, and people type them without escaping.
        get("/api/v1/explain/{*id}", routing::get(api::explain)),
        get("/api/v1/doctor", routing::get(api::doctor)),
        get("/api/v1/passes", routing::get(api::passes)),
        get("/api/v1/removals", routing::get(api::removals)),
        get("/api/v1/evidence", routing::get(evidence::list)),
        get("/api/v1/evidence/{id}", routing::get(evidence::one)),
        get("/api/v1/evidence/{id}/log", routing::get(evidence::log)),
        get("/api/v1/passes/{id}", routing::get(api::pass)),
        delete("/api/v1/passes/{id}", routing::delete(api::cancel)),
        post("/api/v1/passes/{id}/cancel", routing::post(api::cancel)),
        get("/api/v1/events", routing::get(events::get)),
        post("/gc", routing::post(collect::post)),
        post("/webhook/alertmanager", routing::post(alerts::post)),
        post("/-/reload", routing::post(reload)),
    ]
}

/// Builds the router. `guard` decides about every request, also about those of unknown paths.
pub fn router(service: Service) -> Router {
    let add = |router: Router<Service>, it: Route| router.route(it.path, it.handler);
    routes()
        .into_iter()
        .fold(Router::new(), add)
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_such_path)
        .layer(middleware::from_fn_with_state(
            service.fixed.limits.clone(),
            limits::within,
        ))
        .layer(middleware::from_fn_with_state(
            service.clone(),
            guard::guard,
        ))
        .layer(middleware::from_fn(problem::for_browsers))
        .layer(middleware::from_fn_with_state(service.clone(), count))
        .with_state(service)
}

async fn wrong_method(request: Request) -> HttpError {
    let (method, path) = (request.method(), request.uri().path());
    let route = request.extensions().get().map(MatchedPath::as_str);
    let of_path = routes().into_iter().filter(|it| Some(it.path) == route);
    let methods: Vec<String> = of_path.map(|it| it.method.to_string()).collect();
    HttpError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!(
            "{method} is not allowed on {path}: use {}",
            methods.join(" or ")
        ),
    )
}

async fn no_such_path(request: Request) -> HttpError {
    HttpError::not_found(format!("no such path: {}", request.uri().path()))
}

async fn count(State(service): State<Service>, request: Request, next: Next) -> Response {
    let endpoint = HttpEndpoint::of_path(request.uri().path());
    let mut response = next.run(request).await;
    service
        .metrics
        .http_request(endpoint, response.status().as_u16());
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        header::HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-store"),
    );
    headers.extend(service.access.get().headers());
    response
}

/// Healthy: a restart would not help. It would help if looks never end, so that case is unhealthy.
async fn healthy(State(service): State<Service>) -> HttpResult {
    health(service.observer.hangs())
}

/// What `/-/healthy` answers where crisweep itself hangs. Other refusals have the same status.
pub const HANGS: &str = "no look at the node has ended for minutes, although each call to the runtime has a deadline: \
                         crisweep hangs";

fn health(hangs: bool) -> HttpResult {
    if hangs {
        return Err(HttpError::unavailable(HANGS));
    }
    Ok("crisweep is healthy\n".into_response())
}

/// Ready: the runtime was reached and listed once. The first look goes on with a status for each container.
async fn ready(State(service): State<Service>) -> HttpResult {
    /// A probe must answer even while the runtime hangs.
    const PATIENCE: Duration = Duration::from_millis(900);
    let max_age = service.config().collect.max_age.max(Duration::from_secs(1));
    let look = tokio::select! {
        biased;
        look = service.observer.shared(max_age) => look.ok(),
        () = service.observer.lists_read() => return Ok("crisweep is ready\n".into_response()),
        () = tokio::time::sleep(PATIENCE) => None,
    };
    let why = match look.or_else(|| service.observer.latest()) {
        None => "no look at the node has been taken yet".to_owned(),
        Some(look) => match (&look.runtime, &look.containers, &look.sandboxes) {
            (Err(error), _, _) => format!("the runtime cannot be reached: {error}"),
            (Ok(_), Err(error), _) | (Ok(_), Ok(_), Err(error)) => {
                format!("the runtime answers, but its lists fail: {error}")
            }
            (Ok(_), Ok(_), Ok(_)) => return Ok("crisweep is ready\n".into_response()),
        },
    };
    Err(HttpError::unavailable(why))
}

async fn reload(
    State(service): State<Service>,
    _: api::NoParameters,
    request: Request,
) -> HttpResult {
    // Settings in a body would be ignored without a word.
    let body = body(&service.fixed.limits, request.into_body()).await?;
    if !body.is_empty() {
        return Err(HttpError::bad("a reload takes no body: it reads the file"));
    }
    let needs_restart = service.reload().await.map_err(HttpError::bad)?;
    let answer = if needs_restart.is_empty() {
        serde_json::json!({ "reloaded": true })
    } else {
        serde_json::json!({ "reloaded": true, "needs_restart": needs_restart })
    };
    Ok(json(StatusCode::OK, &answer))
}

async fn body(limits: &RequestLimits, body: Body) -> Result<Bytes, HttpError> {
    let too_large = || {
        let error = format!("the body is larger than {BODY_MAX_BYTES} bytes");
        HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    // Checked before the first byte is read, so that a client that waits for "100 Continue" does not send the
    // body.
    if body.size_hint().lower() > BODY_MAX_BYTES as u64 {
        return Err(too_large());
    }
    let longest = body.size_hint().upper().unwrap_or(BODY_MAX_BYTES as u64);
    let _room = limits.take_body(longest)?;
    let read = axum::body::to_bytes(body, BODY_MAX_BYTES);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error);
            if cause.is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) {
                return Err(too_large());
            }
            Err(HttpError::bad(format!(
                "the body could not be read: {error}"
            )))
        }
        Err(_elapsed) => {
            let error = format!("the body did not arrive within {BODY_TIMEOUT:?}");
            Err(HttpError::new(StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}

#[cfg(test)]
mod tests {
    mod openapi;

    use super::*;

    #[test]
    fn a_service_that_hangs_is_not_healthy() {
        let status = |hangs| health(hangs).into_response().status();
        assert_eq!(status(false), StatusCode::OK);
        assert_eq!(status(true), StatusCode::SERVICE_UNAVAILABLE);
    }
}
