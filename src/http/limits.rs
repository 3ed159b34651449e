//! Limits how many requests of each class are answered at a time, and how many of the answers that show the
//! whole node are built at a time. A request holds its place until its answer is sent, so slow readers and
//! waiting clients block only their own class. Requests above the limit get 503. Each probe and scrapes have
//! places of their own. A scrape or a short read without a place waits in line, and an unread answer makes way for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use strum::VariantArray;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connections::Exchange;
use super::places::{RequestPlace, RequestPlaces};
use super::{BODY_MAX_BYTES, HEALTHY, HttpError, READY};

/// The value of `Retry-After` on a 503.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("2");
/// Limit for all bodies together, by their announced length.
const BODIES_MAX_BYTES: usize = 32 * BODY_MAX_BYTES;

/// Plans, explanations and snapshots that are built at a time: each clones the whole node. The others wait.
const PLANS_MADE_MAX: usize = 2;
/// Metrics pages that are rendered at a time. Separate from plans, so that no scrape waits for a plan.
const PAGES_MADE_MAX: usize = 1;

/// A class of requests.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
pub(super) enum Class {
    /// Whether a restart would help. Apart from readiness, which waits for a look: clients that ask for that must
    /// not make the kubelet end the service.
    #[strum(serialize = "health probes")]
    Health,
    /// Whether the runtime is reached.
    #[strum(serialize = "readiness probes")]
    Readiness,
    /// The metrics page.
    #[strum(serialize = "scrapes")]
    Scrape,
    /// A plan, an explanation, a snapshot or a report of causes: the whole node.
    #[strum(serialize = "doctor reports, snapshots, explanations and plans")]
    Plan,
    /// A listener to events.
    #[strum(serialize = "listeners to events")]
    Listen,
    /// Every other read.
    #[strum(serialize = "requests that read")]
    Read,
    /// Every request that acts.
    #[strum(serialize = "requests that act")]
    Act,
    /// A request that waits for a pass or follows it. It enters as `Act` and then moves here.
    #[strum(serialize = "requests that wait for a pass or follow one")]
    Wait,
}

impl Class {
    fn of(method: &Method, uri: &Uri) -> Self {
        let (path, query) = (uri.path(), uri.query().unwrap_or_default());
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Self::Act;
        }
        match path {
            HEALTHY => Self::Health,
            READY => Self::Readiness,
            "/metrics" => Self::Scrape,
            "/api/v1/plan" | "/api/v1/snapshot" | "/api/v1/doctor" => Self::Plan,
            "/" if query.contains("doctor=") || query.contains("explain=") => Self::Plan,
            "/api/v1/events" => Self::Listen,
            _ if path.starts_with("/api/v1/plans/") || path.starts_with("/api/v1/explain/") => {
                Self::Plan
            }
            _ => Self::Read,
        }
    }

    /// Returns how many requests are answered at a time. Together with the idle connections they stay well
    /// below 1,024 file descriptors, the usual limit of a process.
    fn most(self) -> usize {
        match self {
            Self::Plan => 4,
            Self::Scrape | Self::Listen => 16,
            Self::Health | Self::Readiness | Self::Read => 32,
            Self::Wait => 64,
            Self::Act => 128,
        }
    }

    /// Returns whether requests wait in line for a place, and answers that their clients do not read make way for them.
    /// Answers of the other classes are long, or their clients wait for them.
    fn makes_way(self) -> bool {
        matches!(self, Self::Scrape | Self::Read)
    }

    /// Returns the answer to a request above the limit.
    pub(super) fn full(self) -> Response {
        let (most, words): (_, &str) = (self.most(), self.into());
        let error = format!("{most} {words} are already being answered; try again later");
        let mut response = HttpError::unavailable(error).into_response();
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS);
        response
    }
}

/// The limits of each class. Cloning shares.
#[derive(Clone, Debug)]
pub(super) struct RequestLimits {
    classes: Arc<BTreeMap<Class, RequestPlaces>>,
    bodies: Arc<Semaphore>,
    /// Plans and explanations that are built.
    pub(super) plans: Arc<Semaphore>,
    /// Metrics pages that are rendered.
    pub(super) pages: Arc<Semaphore>,
}

impl Default for RequestLimits {
    fn default() -> Self {
        let classes = Class::VARIANTS.iter();
        let classes = classes.map(|class| (*class, RequestPlaces::new(class.most())));
        Self {
            classes: Arc::new(classes.collect()),
            bodies: Arc::new(Semaphore::new(BODIES_MAX_BYTES)),
            plans: Arc::new(Semaphore::new(PLANS_MADE_MAX)),
            pages: Arc::new(Semaphore::new(PAGES_MADE_MAX)),
        }
    }
}

impl RequestLimits {
    /// Takes a place; `None` if all are taken.
    pub(super) fn take(&self, class: Class) -> Option<RequestPlace> {
        self.classes.get(&class)?.take()
    }

    /// Takes a place; if all are taken, the next one that is free.
    async fn take_or_wait(&self, class: Class) -> Option<RequestPlace> {
        let places = self.classes.get(&class)?;
        match places.take() {
            None if class.makes_way() => places.take_in_turn().await,
            taken => taken,
        }
    }

    /// Reserves memory for a body of at most `bytes` bytes.
    pub(super) fn take_body(&self, bytes: u64) -> Result<OwnedSemaphorePermit, HttpError> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.bodies).try_acquire_many_owned(bytes).ok();
        let error = "too many long bodies are being read; try again later";
        room.ok_or_else(|| HttpError::unavailable(error))
    }
}

/// Answers requests within the limits, and refuses all others.
pub(super) async fn within(
    State(limits): State<RequestLimits>,
    Extension(exchange): Extension<Exchange>,
    request: Request,
    next: Next,
) -> Response {
    let class = Class::of(request.method(), request.uri());
    match limits.take_or_wait(class).await {
        // A probe's answer is a line: its place is free once it is made, so that clients that do not read cannot
        // take all places of the kubelet's probes. Such a connection counts as idle.
        Some(_place) if matches!(class, Class::Health | Class::Readiness) => {
            next.run(request).await
        }
        Some(place) => {
            exchange.hold(place);
            let answer = next.run(request).await;
            if class.makes_way() {
                exchange.made();
            }
            answer
        }
        None => class.full(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_places() {
        let limits = RequestLimits::default();
        let held: Vec<_> = (0..Class::Plan.most())
            .map(|_| limits.take(Class::Plan).unwrap())
            .collect();
        assert!(limits.take(Class::Plan).is_none());
        for class in Class::VARIANTS
            .iter()
            .filter(|class| **class != Class::Plan)
        {
            assert!(limits.take(*class).is_some(), "{class:?}");
        }
        drop(held);
        assert!(limits.take(Class::Plan).is_some());
    }

    #[test]
    fn the_path_decides_the_class() {
        for (method, path, class) in [
            (Method::GET, "/-/ready", Class::Readiness),
            (Method::HEAD, "/-/healthy", Class::Health),
            (Method::POST, "/-/reload", Class::Act),
            (Method::GET, "/metrics", Class::Scrape),
            (Method::POST, "/metrics", Class::Act),
            (Method::GET, "/api/v1/plan", Class::Plan),
            (Method::GET, "/api/v1/snapshot", Class::Plan),
            (Method::GET, "/api/v1/doctor", Class::Plan),
            (Method::GET, "/api/v1/plans/x", Class::Plan),
            (Method::GET, "/api/v1/explain/x", Class::Plan),
            (Method::GET, "/api/v1/plans", Class::Read),
            (Method::POST, "/api/v1/plans", Class::Act),
            (Method::GET, "/", Class::Read),
            (Method::GET, "/?q=a&doctor=true", Class::Plan),
            (Method::GET, "/?explain=x", Class::Plan),
            (Method::GET, "/api/v1/events", Class::Listen),
            (Method::GET, "/nowhere", Class::Read),
        ] {
            let uri = Uri::from_static(path);
            assert_eq!(Class::of(&method, &uri), class, "{method} {path}");
        }
    }

    #[test]
    fn short_bodies_are_accepted_where_long_ones_are_not() {
        let limits = RequestLimits::default();
        let long = BODY_MAX_BYTES as u64;
        let held: Vec<_> = (0..32).map(|_| limits.take_body(long).unwrap()).collect();
        assert!(limits.take_body(1).is_err());
        assert!(limits.take_body(0).is_ok());
        drop(held);
        assert!(limits.take_body(long).is_ok());
    }
}
