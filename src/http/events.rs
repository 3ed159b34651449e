//! `GET /api/v1/events`: tells a listener (server-sent events) when a pass moves or the node was looked at. Only
//! changes are sent, and nothing is asked of the runtime.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Service;
use super::api::NoParameters;
use super::browser::UNBUFFERED;
use crate::model::{Pass, escape};
use crate::pass::record::PassRecord;

/// Least time between two batches of events to one listener: a pass moves hundreds of times a second.
const GAP: Duration = Duration::from_millis(500);
/// How often a comment is sent when nothing happens, so that both ends see a dead connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// When an answer ends, and its client asks again: a credential that is no longer in force must not listen for ever.
const ANSWER_MAX: Duration = Duration::from_secs(300);

/// The event `state`.
#[derive(Debug, PartialEq, Serialize)]
struct EventData {
    /// When the latest look began.
    look: Option<Timestamp>,
    #[serde(flatten)]
    state: PageState,
}

/// The state that a listener compares with what it shows. The page contains the state that it was rendered from, so
/// that its script misses no change before it listens.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct PageState {
    /// The running pass.
    running: Option<String>,
    /// The waiting passes.
    waiting: Vec<String>,
    /// The last pass that began and ended.
    last_pass: Option<String>,
    /// The configuration in force.
    config: String,
}

/// A listener, and what it was told.
struct EventSubscriber {
    service: Service,
    passes: watch::Receiver<u64>,
    looks: watch::Receiver<Option<Timestamp>>,
    /// The running pass, or the last one until its end is told.
    pass: Option<(Arc<PassRecord>, watch::Receiver<Pass>)>,
    told: Option<EventData>,
    unsent: VecDeque<Event>,
    until: Instant,
}

pub(super) async fn get(State(service): State<Service>, NoParameters: NoParameters) -> Response {
    let listener = EventSubscriber {
        passes: service.worker.changes(),
        looks: service.observer.arrivals(),
        service,
        pass: None,
        told: None,
        unsent: VecDeque::new(),
        until: Instant::now() + ANSWER_MAX,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    let heartbeat = KeepAlive::new().interval(HEARTBEAT).text("heartbeat");
    ([UNBUFFERED], Sse::new(events).keep_alive(heartbeat)).into_response()
}

impl EventSubscriber {
    /// Returns the next event; `None` when the service goes down, and when the listener must ask again.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.unsent.pop_front() {
                return Some(event);
            }
            if self.told.is_some() {
                let shutdown = self.service.worker.shutdown().clone();
                let until = self.until;
                let moved = tokio::time::timeout_at(until, self.moved());
                shutdown.run_until_cancelled(moved).await?.ok()?;
            }
            self.collect();
        }
    }

    /// Waits until something may be new, and a little longer.
    async fn moved(&mut self) {
        let pass = async {
            match &mut self.pass {
                Some((_, pass)) => drop(pass.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.passes.changed() => {}
            _ = self.looks.changed() => {}
            () = pass => {}
        }
        tokio::time::sleep(GAP).await;
    }

    fn collect(&mut self) {
        self.passes.mark_unchanged();
        self.looks.mark_unchanged();
        self.collect_pass();
        let told = EventData {
            look: *self.looks.borrow(),
            state: PageState::of(&self.service),
        };
        if self.told.as_ref() != Some(&told) {
            self.unsent.extend(event("state", &told));
            self.told = Some(told);
        }
    }

    fn collect_pass(&mut self) {
        if let Some((record, mut watch)) = self.pass.take() {
            if watch.has_changed().unwrap_or(false) {
                self.unsent
                    .extend(event("pass", &*watch.borrow_and_update()));
            }
            if !record.read(Pass::is_done) {
                self.pass = Some((record, watch));
                return;
            }
        }
        let worker = &self.service.worker;
        let running = worker.running().and_then(|pass| worker.find(&pass.id));
        if let Some(record) = running {
            let mut watch = record.watch();
            self.unsent
                .extend(event("pass", &*watch.borrow_and_update()));
            self.pass = Some((record, watch));
        }
    }
}

impl PageState {
    /// Returns what holds now.
    pub(super) fn of(service: &Service) -> Self {
        let worker = &service.worker;
        let passes = worker.passes();
        let ids = |of: fn(&Pass) -> bool| {
            let those = passes.iter().filter(move |pass| of(pass));
            those.map(|pass| pass.id.clone())
        };
        Self {
            running: worker.running().map(|pass| pass.id),
            waiting: ids(Pass::waits).collect(),
            last_pass: ids(Pass::has_run).next(),
            config: service.config().hash(),
        }
    }
}

fn event(name: &str, data: &impl Serialize) -> Option<Event> {
    let text = serde_json::to_string(data).ok()?;
    Some(Event::default().event(name).data(escape::json(&text)))
}
