//! A kubelet that learns late of what ended. The end of a short container gives it two syncs, and the
//! second waits for its next good relist: the whole outage, while a list is over its limit. If the only
//! record of a pod's container is gone by then, it finds no status and runs the container again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::lists::weight;
use super::node::Node;

/// How late the node's kubelet is.
#[derive(Clone, Copy, Debug)]
pub struct LaggingKubelet {
    /// The longest list answer that it can read.
    pub list_limit_bytes: usize,
    /// How long both lists must have been within that until it has synced.
    pub relist: Duration,
}

/// Since when the node's kubelet can list; `None`: it cannot.
#[derive(Debug, Default)]
pub(super) struct FitsSince(Mutex<Option<Instant>>);

impl FitsSince {
    /// Notes what the node's lists weigh now. A kubelet that could list for long enough has synced all.
    pub(super) fn note(&self, kubelet: Option<LaggingKubelet>, node: &mut Node) {
        let Some(kubelet) = kubelet else { return };
        let containers: Vec<_> = node.containers.values().map(|c| &c.row).collect();
        let sandboxes: Vec<_> = node.sandboxes.values().map(|s| &s.row).collect();
        let heaviest = weight(&containers).max(weight(&sandboxes));
        let mut since = self.0.lock();
        if heaviest > kubelet.list_limit_bytes {
            *since = None;
        } else if since.get_or_insert_with(Instant::now).elapsed() >= kubelet.relist {
            node.unsynced.clear();
        }
    }
}
