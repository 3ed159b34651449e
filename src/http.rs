//! The HTTP side: router, limits, and the one place where statuses are chosen.
//!
//! Two scopes: *read* is open to whoever reaches the listen address; *act* is for loopback peers only. Neither is
//! for a browser's page from elsewhere (`guard`).

mod alerts;
mod api;
mod budget;
mod collect;
mod explain;
mod guard;
mod page;
mod plan;
mod quarantine;
mod seats;
pub mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::alert::Route;
use crate::escape;
use crate::gc::{self, Plan, Summary, Target, Targets, UnknownTarget};
use crate::memory;
use crate::metrics::{Endpoint, Metrics};
use crate::model::{PodSandboxId, Snapshot};
use crate::observe::{Look, NoSnapshot, Observer};
use crate::quarantine::Quarantine;
use crate::scrape;
use crate::telemetry::LineLimit;
use crate::thresholds::Marks;
use crate::worker::Worker;
pub use budget::Budgets;
pub use plan::Plans;

/// A request's body may be this long.
pub const BODY_MAX_BYTES: usize = 1 << 20;
/// A body must have arrived by then.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request waits for a look at the node.
const LOOK_PATIENCE: Duration = Duration::from_secs(8);
/// Requests that clone and render the whole node at the same time; the others wait.
const HEAVY_MAX: usize = 2;
/// Scrapes that are rendered at the same time, beside them: a scrape waits for nobody's plan.
const SCRAPES_MAX: usize = 1;

/// What can change while the service runs (`POST /-/reload`).
#[derive(Clone, Debug)]
pub struct Live {
    /// Alert routes; empty: by the label `crisweep`.
    pub routes: Arc<[Route]>,
    /// The mode's name.
    pub mode: &'static str,
    /// What the configuration says of where pod knowledge comes from.
    pub pod_source: &'static str,
    /// Host names that a request may be addressed to, besides addresses, `localhost` and the node.
    pub trusted_hosts: Vec<String>,
    /// How old a shared look may be.
    pub max_age: Duration,
    /// Where the marks of `thresholds` are.
    pub marks: Marks,
    /// The configuration's fingerprint.
    pub hash: String,
    /// When it was read.
    pub loaded_at: Timestamp,
    /// Keys whose new values wait for a restart.
    pub needs_restart: Vec<&'static str>,
}

/// What a request handler works with.
#[derive(Clone, Debug)]
pub struct Service {
    /// Queues and runs passes.
    pub worker: Worker,
    /// Looks at the node.
    pub observer: Observer,
    /// Own counters.
    pub metrics: Metrics,
    /// Sandboxes that are left alone.
    pub quarantine: Arc<Mutex<Quarantine>>,
    /// What a reload changes.
    pub live: Arc<std::sync::RwLock<Arc<Live>>>,
    /// Why the last reload was refused, if it was.
    pub refused: Arc<Mutex<Option<String>>>,
    /// What does not change.
    pub fixed: Arc<Fixed>,
}

/// Reads the configuration again and puts it to work; returns the keys whose new values wait for a
/// restart. The error names the key.
pub type Reload =
    Box<dyn Fn(Service) -> BoxFuture<'static, Result<Vec<&'static str>, String>> + Send + Sync>;

/// What stays as it was at the start.
pub struct Fixed {
    /// The node's name.
    pub node: String,
    /// The runtime's socket.
    pub endpoint: String,
    /// Reads the configuration again.
    pub reload: Reload,
    /// When the service started.
    pub started: Instant,
    /// Bounds lines about who may not act.
    pub refusals: LineLimit,
    /// Bounds what renders the whole node.
    pub heavy: Arc<Semaphore>,
    /// Bounds how many requests of a kind are answered at a time.
    pub budgets: Budgets,
    /// Plans that are being sent.
    pub plans: Plans,
    /// Bounds scrapes.
    pub scrapes: Arc<Semaphore>,
}

impl Fixed {
    /// Returns the bound on what renders the whole node.
    pub fn heavy() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(HEAVY_MAX))
    }

    /// Returns the bound on scrapes.
    pub fn scrapes() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(SCRAPES_MAX))
    }
}

/// An answer that says what is wrong: `{"error": "..."}`.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    error: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self {
            status,
            error: error.into(),
        }
    }

    pub(crate) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        json(self.status, &serde_json::json!({ "error": self.error }))
    }
}

/// Answers with JSON that a person can read in a terminal.
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

/// Builds the router.
pub fn router(service: Service) -> Router {
    let act = Router::new()
        .route("/gc", post(collect::post))
        .route("/webhook/alertmanager", post(alerts::post))
        .route("/-/reload", post(reload))
        .route("/api/v1/passes/{id}", axum::routing::delete(api::cancel))
        .route_layer(middleware::from_fn_with_state(service.clone(), guard::act));
    Router::new()
        .route("/", get(page::get))
        .route("/metrics", get(metrics))
        .route("/-/healthy", get(healthy))
        .route("/-/ready", get(ready))
        .route("/api/v1/status", get(api::status))
        .route("/api/v1/plan", get(api::plan))
        // Paths and tags have slashes in them, and who types them does not encode them.
        .route("/api/v1/explain/{*id}", get(explain::get))
        .route("/api/v1/passes", get(api::passes))
        .route("/api/v1/passes/{id}", get(api::pass))
        .merge(act)
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_such_path)
        .layer(middleware::from_fn_with_state(
            service.clone(),
            budget::within,
        ))
        .layer(middleware::from_fn_with_state(service.clone(), guard::ask))
        .layer(middleware::from_fn_with_state(service.clone(), count))
        .with_state(service)
}

async fn wrong_method(request: Request) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{method} is not allowed on {path}"),
    )
}

async fn no_such_path(request: Request) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("no such path: {}", request.uri().path()),
    )
}

async fn count(State(service): State<Service>, request: Request, next: Next) -> Response {
    let endpoint = Endpoint::of_path(request.uri().path());
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
    response
}

/// Healthy: a restart would not help. It would where looks do not end, whatever the runtime does.
async fn healthy(State(service): State<Service>) -> Response {
    health(service.observer.hangs())
}

fn health(hangs: bool) -> Response {
    if hangs {
        let why = "no look at the node has ended for minutes, and not for the runtime's sake: crisweep hangs";
        return Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    }
    "crisweep is healthy\n".into_response()
}

/// Ready: the runtime was reached, and a look at the node was taken.
async fn ready(State(service): State<Service>) -> Response {
    /// A probe must not hang with the runtime.
    const PATIENCE: Duration = Duration::from_millis(900);
    let max_age = service.live().max_age.max(Duration::from_secs(1));
    let look = tokio::time::timeout(PATIENCE, service.observer.shared(max_age)).await;
    let look = look.ok().and_then(Result::ok);
    let why = match look.or_else(|| service.observer.latest()) {
        None => "no look at the node has been taken yet".to_owned(),
        Some(look) => match (&look.runtime, &look.containers, &look.sandboxes) {
            (Err(error), _, _) => format!("the runtime is not reached: {error}"),
            (Ok(_), Err(error), _) | (Ok(_), Ok(_), Err(error)) => {
                format!("the runtime answers, but not with its lists: {error}")
            }
            (Ok(_), Ok(_), Ok(_)) => return "crisweep is ready\n".into_response(),
        },
    };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response()
}

async fn reload(State(service): State<Service>) -> Response {
    match service.reload().await {
        Ok(needs_restart) if needs_restart.is_empty() => {
            json(StatusCode::OK, &serde_json::json!({ "reloaded": true }))
        }
        Ok(needs_restart) => {
            let answer = serde_json::json!({ "reloaded": true, "needs_restart": needs_restart });
            json(StatusCode::OK, &answer)
        }
        Err(error) => Problem::bad(error).into_response(),
    }
}

async fn metrics(State(service): State<Service>, headers: HeaderMap) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let format = scrape::Format::from_accept(text("accept"));
    let timeout = scrape::timeout_from_header(text("x-prometheus-scrape-timeout-seconds"));
    let deadline = Instant::now() + timeout;
    let look = service.observer.shared(service.live().max_age);
    let look = tokio::time::timeout_at(deadline, look)
        .await
        .ok()
        .and_then(Result::ok);
    let permit = Arc::clone(&service.fixed.scrapes).acquire_owned();
    let page = match tokio::time::timeout_at(deadline, permit).await {
        Ok(Ok(permit)) => render(&service, look, format, Some(permit)).await,
        // Too many scrapes at once: the node's part is left out, as when there is no look.
        Ok(Err(_)) | Err(_) => render(&service, None, format, None).await,
    };
    ([(header::CONTENT_TYPE, format.content_type())], page).into_response()
}

async fn render(
    service: &Service,
    look: Option<Arc<Look>>,
    format: scrape::Format,
    permit: Option<OwnedSemaphorePermit>,
) -> String {
    let service = service.clone();
    let work = move || {
        let _until_done = permit;
        let plan = look.as_deref().and_then(|look| service.summary(look).ok());
        let quarantined = service.quarantined_by_class(look.as_deref());
        service.metrics.braked(&service.worker.holding());
        let greeting = service.observer.greeting();
        let input = scrape::Input {
            look: look.as_deref(),
            greeting: greeting.as_ref(),
            plan: plan.as_ref(),
            quarantined: &quarantined,
            marks: &service.live().marks,
            metrics: &service.metrics,
        };
        let page = scrape::render(&input, format);
        drop(plan);
        memory::give_back();
        page
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the metrics page could not be rendered; this is a bug in crisweep");
        String::new()
    })
}

impl Service {
    /// Plans what a pass would do, on a look that is at hand; one plan for all who ask at the same time.
    pub(crate) fn plan(
        &self,
        look: &Arc<Look>,
        targets: &BTreeSet<Target>,
    ) -> Result<Arc<Plan>, NoSnapshot> {
        let policy = self.worker.rules().policy;
        self.fixed.plans.shared(look, &policy, targets, || {
            let snapshot = self.snapshot(look)?;
            let mut plan = gc::plan(&snapshot, &policy, targets);
            plan.tell_details(&snapshot, &policy);
            let quarantine = self.lock_quarantine();
            plan.tell_quarantine(|id| quarantine.get(&PodSandboxId::new(id)?).cloned());
            Ok(plan)
        })
    }

    /// Counts what a pass over all targets would do, on a look that is at hand.
    pub(crate) fn summary(&self, look: &Look) -> Result<BTreeMap<Target, Summary>, NoSnapshot> {
        let policy = self.worker.rules().policy;
        let snapshot = self.snapshot(look)?;
        Ok(gc::plan::summarize(&snapshot, &policy, &Targets::all().0))
    }

    /// Returns what planning may know of a look.
    pub(crate) fn snapshot(&self, look: &Look) -> Result<Snapshot, NoSnapshot> {
        look.snapshot(self.lock_quarantine().next_tries(look.taken_at))
    }

    /// Reads the configuration again and puts it to work.
    ///
    /// # Errors
    /// What the configuration refuses; the old one stays.
    pub async fn reload(&self) -> Result<Vec<&'static str>, String> {
        let result = (self.fixed.reload)(self.clone()).await;
        let refused = result.as_ref().err().cloned();
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        match &result {
            Ok(needs_restart) if needs_restart.is_empty() => {
                tracing::info!("configuration reloaded");
            }
            Ok(needs_restart) => {
                let keys = needs_restart.join(", ");
                tracing::warn!(needs_restart = keys, "configuration reloaded");
            }
            Err(error) => {
                self.metrics.reload_failed();
                tracing::error!(
                    error,
                    "the configuration was not reloaded; the old one stays"
                );
            }
        }
        result
    }

    /// Replaces what a reload changes.
    pub fn set_live(&self, live: Live) {
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(live);
    }

    /// Returns what a reload changes.
    pub fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the shared look, as a handler needs it; never hangs with the runtime.
    async fn look(&self) -> Result<Arc<Look>, Problem> {
        let look = self.observer.shared(self.live().max_age);
        match tokio::time::timeout(LOOK_PATIENCE, look).await {
            Ok(Ok(look)) => Ok(look),
            Ok(Err(error)) => Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                error.to_string(),
            )),
            Err(_elapsed) => Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!(
                    "no look at the node within {LOOK_PATIENCE:?}: the runtime is slow or hangs"
                ),
            )),
        }
    }

    /// Runs what plans for or renders the whole node, off the request threads and a few at a time.
    async fn heavy<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let service = self.clone();
        bounded(&self.fixed.heavy, move || {
            let result = work(&service);
            memory::give_back();
            result
        })
        .await
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error))
    }
}

/// Runs work off the request threads within a bound. The permit goes with the work, which runs on
/// when whoever asked for it has hung up.
async fn bounded<T: Send + 'static>(
    bound: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let permit = Arc::clone(bound).acquire_owned().await;
    let permit = permit.map_err(|error| error.to_string())?;
    let work = move || {
        let _until_done = permit;
        work()
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())
}

/// Reads a body within its bounds.
async fn body(budgets: &Budgets, body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        let error = format!("the body is larger than {BODY_MAX_BYTES} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    // Before the first byte is read: who waits for "100 Continue" keeps the rest.
    if body.size_hint().lower() > BODY_MAX_BYTES as u64 {
        return Err(too_large());
    }
    let longest = body.size_hint().upper().unwrap_or(BODY_MAX_BYTES as u64);
    let _room = budgets.take_body(longest)?;
    let read = axum::body::to_bytes(body, BODY_MAX_BYTES);
    match tokio::time::timeout(BODY_TIMEOUT, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let cause = std::error::Error::source(&error);
            if cause.is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) {
                return Err(too_large());
            }
            Err(Problem::bad(format!("the body could not be read: {error}")))
        }
        Err(_elapsed) => {
            let error = format!("the body did not arrive within {BODY_TIMEOUT:?}");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, error))
        }
    }
}

/// Reads target words; none asks for all.
fn targets<'a>(
    words: impl IntoIterator<Item = &'a str>,
) -> Result<BTreeSet<Target>, UnknownTarget> {
    let mut targets = BTreeSet::new();
    for word in words {
        targets.extend(word.parse::<Targets>()?.0);
    }
    Ok(if targets.is_empty() {
        Targets::all().0
    } else {
        targets
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_hangs_is_not_healthy() {
        assert_eq!(health(false).status(), StatusCode::OK);
        assert_eq!(health(true).status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn work_keeps_its_place_when_whoever_asked_hangs_up() {
        let bound = Fixed::heavy();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (end, may_end) = std::sync::mpsc::channel::<()>();
        let asking = tokio::spawn({
            let bound = Arc::clone(&bound);
            let work = move || {
                let _ = begun.send(());
                may_end.recv()
            };
            async move { bounded(&bound, work).await }
        });
        has_begun.await.unwrap();
        asking.abort();
        assert!(asking.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(bound.available_permits(), HEAVY_MAX - 1);
        end.send(()).unwrap();
        let free = u32::try_from(HEAVY_MAX).unwrap();
        let all = tokio::time::timeout(Duration::from_secs(10), bound.acquire_many(free));
        assert!(all.await.is_ok());
    }
}
