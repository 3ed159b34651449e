//! Kubernetes Events: what passes did, where `kubectl describe` and `kubectl get events` show it.
//!
//! Never reads, lists or watches anything, and never delays or fails a pass: what cannot be written is counted, and the
//! next Event says how many were left out.

mod event;
mod sender;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc};

use crate::model::{EventResult, Pass};
pub use event::{Event, LastRecord};
pub use sender::write;

/// `events:` - Kubernetes Events of what passes did, as `kubectl describe` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether crisweep writes an Event of this node for each pass that removed something, or ended partial or aborted.
    /// Events go to the API server of `pods`; a pass never waits for them.
    pub enabled: bool,
    /// Whether a finished pod gets an Event when its last container is removed; with `enabled`. Needs the right to write
    /// Events in all namespaces.
    pub pods: bool,
}

/// Events that wait to be written.
const QUEUE_MAX: usize = 64;
/// Places that Events of pods leave free for those of the node.
const NODES_PLACES: usize = 8;

/// Takes Events, if they are switched on. Cloning shares.
#[derive(Clone)]
pub struct Events {
    inner: Arc<EventsInner>,
}

struct EventsInner {
    to: mpsc::Sender<Event>,
    queue: Mutex<mpsc::Receiver<Event>>,
    /// What is written now; by default nothing.
    config: parking_lot::Mutex<Config>,
    /// Events that were not written, since the last one that was.
    left_out: AtomicU64,
    count: Box<dyn Fn(EventResult) + Send + Sync>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Returns Events that are switched off until [`write`] runs; `count` hears what became of each.
    pub fn new(count: impl Fn(EventResult) + Send + Sync + 'static) -> Self {
        let (to, queue) = mpsc::channel(QUEUE_MAX);
        Self {
            inner: Arc::new(EventsInner {
                to,
                queue: Mutex::new(queue),
                config: parking_lot::Mutex::default(),
                left_out: AtomicU64::new(0),
                count: Box::new(count),
            }),
        }
    }

    /// Tells of a pass that is over.
    pub fn pass_ended(&self, pass: &Pass) {
        let is_on = self.inner.config.lock().enabled;
        if is_on && let Some(event) = Event::of_pass(pass) {
            self.put(event);
        }
    }

    /// Says whether pods get Events.
    pub fn tells_pods(&self) -> bool {
        let config = *self.inner.config.lock();
        config.enabled && config.pods
    }

    /// Tells a finished pod that its last container was removed from this node.
    pub fn records_removed(&self, record: &LastRecord, node: &str, at: Timestamp) {
        if self.tells_pods() {
            match Event::of_records(record, node, at) {
                Some(event) if self.inner.to.capacity() > NODES_PLACES => self.put(event),
                Some(_) | None => self.leave_out(EventResult::LeftOut),
            }
        }
    }

    fn put(&self, event: Event) {
        if self.inner.to.try_send(event).is_err() {
            self.leave_out(EventResult::LeftOut);
        }
    }

    fn leave_out(&self, result: EventResult) {
        self.inner.left_out.fetch_add(1, Ordering::Relaxed);
        self.count(result);
    }

    fn count(&self, result: EventResult) {
        (self.inner.count)(result);
    }
}
