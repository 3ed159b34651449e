//! Writes Events to the API server, one at a time and not too many.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::event::{Event, InvolvedObject, Reason};
use super::{Config, Events};
use crate::access::rate_limit::{RateLimit, TokenBucket};
use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::EventResult;

/// A storm of passes must not become a storm of Events: 5,000 nodes then write 170 a second at most, and as many of
/// pods.
const LIMIT: RateLimit = RateLimit {
    interval: Duration::from_secs(30),
    burst: 10,
};
/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long Events that wait at `stop` may take together.
const LAST_WRITES: Duration = Duration::from_secs(2);
/// Events that a repetition is added to.
const WRITTEN_MAX: usize = 64;
/// How long after its last repetition one is added to. API servers keep Events for an hour.
const REPEATED_FOR: Duration = Duration::from_secs(50 * 60);

/// An Event at the API server.
struct SentEvent {
    object: InvolvedObject,
    reason: Reason,
    path: String,
    count: u64,
    at: Instant,
}

/// Why an Event was not written.
enum SendError {
    /// The earlier one is gone: its time is over.
    Gone,
    Other(String),
}

struct Sender {
    events: Events,
    client: ApiClient,
    node: String,
    /// Apart: a pass over many finished pods must not cost the node its own Event.
    of_node: TokenBucket,
    of_pods: TokenBucket,
    began: Instant,
    /// Oldest first.
    written: VecDeque<SentEvent>,
    is_warned: bool,
}

/// Writes what [`Events`] takes until `stop`, and then for a short time what still waits. Takes nothing before and after.
pub async fn write(
    events: Events,
    config: Config,
    (server, node): (ApiServer, String),
    stop: CancellationToken,
) {
    let mut sender = Sender {
        events: events.clone(),
        client: ApiClient::of_small_answers(server),
        node,
        of_node: TokenBucket::default(),
        of_pods: TokenBucket::default(),
        began: Instant::now(),
        written: VecDeque::new(),
        is_warned: false,
    };
    let mut queue = events.inner.queue.lock().await;
    // Events that waited while they were switched off are out of date.
    while queue.try_recv().is_ok() {
        events.leave_out(EventResult::LeftOut);
    }
    *events.inner.config.lock() = config;
    let writing = async {
        loop {
            let next = stop.run_until_cancelled(queue.recv()).await.flatten();
            let Some(event) = next.or_else(|| queue.try_recv().ok()) else {
                return;
            };
            sender.take(&event).await;
        }
    };
    let too_late = async {
        stop.cancelled().await;
        sleep(LAST_WRITES).await;
    };
    let is_late = tokio::select! {
        () = writing => false,
        () = too_late => true,
    };
    *events.inner.config.lock() = Config::default();
    // The Event whose writing was cut off counts too.
    let mut lost = u64::from(is_late);
    while queue.try_recv().is_ok() {
        lost += 1;
    }
    if lost > 0 {
        tracing::warn!(lost, "Events were not written in time");
        (0..lost).for_each(|_| events.leave_out(EventResult::LeftOut));
    }
}

impl Sender {
    async fn take(&mut self, event: &Event) {
        let bucket = match event.object {
            InvolvedObject::Node => &mut self.of_node,
            InvolvedObject::Pod(_) => &mut self.of_pods,
        };
        if bucket.admit(LIMIT, self.began.elapsed()).is_err() {
            self.events.leave_out(EventResult::LeftOut);
            return;
        }
        let left_out = self.events.inner.left_out.load(Ordering::Relaxed);
        match self.write(event, left_out).await {
            Ok(result) => {
                let told = &self.events.inner.left_out;
                told.fetch_sub(left_out, Ordering::Relaxed);
                if std::mem::take(&mut self.is_warned) {
                    tracing::info!("Events can be written again");
                }
                self.events.count(result);
            }
            Err(why) => {
                if !std::mem::replace(&mut self.is_warned, true) {
                    let text = "an Event could not be written; later failures are counted only";
                    tracing::warn!(why, "{text}");
                }
                self.events.leave_out(EventResult::Failed);
            }
        }
    }

    async fn write(&mut self, event: &Event, left_out: u64) -> Result<EventResult, String> {
        self.written.retain(|it| it.at.elapsed() < REPEATED_FOR);
        let is_like = |it: &SentEvent| it.reason == event.reason && it.object == event.object;
        let earlier = self.written.iter().position(is_like);
        if let Some(mut earlier) = earlier.and_then(|place| self.written.remove(place)) {
            let body = event.repetition(earlier.count + 1, left_out);
            match self.send(Method::PATCH, &earlier.path, &body).await {
                Ok(()) => {
                    earlier.count += 1;
                    self.remember(earlier);
                    return Ok(EventResult::Repeated);
                }
                Err(SendError::Gone) => {}
                Err(SendError::Other(why)) => {
                    self.remember(earlier);
                    return Err(why);
                }
            }
        }
        let (path, name) = (event.path(), format!("crisweep-{:016x}", fastrand::u64(..)));
        let body = event.new_object(&name, &self.node, left_out);
        match self.send(Method::POST, &path, &body).await {
            Ok(()) => {
                self.remember(SentEvent {
                    object: event.object.clone(),
                    reason: event.reason,
                    path: format!("{path}/{name}"),
                    count: 1,
                    at: Instant::now(),
                });
                Ok(EventResult::Created)
            }
            Err(SendError::Gone) => Err(format!("POST {path}: 404 Not Found")),
            Err(SendError::Other(why)) => Err(why),
        }
    }

    fn remember(&mut self, written: SentEvent) {
        if self.written.len() >= WRITTEN_MAX {
            self.written.pop_front();
        }
        let at = Instant::now();
        self.written.push_back(SentEvent { at, ..written });
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<(), SendError> {
        let line = self.client.server.line(method.as_str(), path);
        let other = |why: String| SendError::Other(format!("{line}: {why}"));
        let json = body.to_string().into_bytes();
        let answer = self.client.send_within(TIMEOUT, method, path, json).await;
        let answer = answer.map_err(|error| other(error.shown()))?;
        match answer.status {
            status if status.is_success() => Ok(()),
            StatusCode::NOT_FOUND => Err(SendError::Gone),
            status => Err(other(status.to_string())),
        }
    }
}
