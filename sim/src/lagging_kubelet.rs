//! A kubelet that learns late of exits. It syncs the end of a short container twice, and the second sync
//! waits for its next good relist, which is the whole outage while a list is over its limit. If the only
//! record of a pod's container is gone by then, the kubelet finds no status and runs the container again.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::lists::weight;
use super::node::Node;

/// The delay of the node's kubelet.
#[derive(Clone, Copy, Debug)]
pub struct LaggingKubelet {
    /// The largest list answer that it can read.
    pub list_limit_bytes: usize,
    /// How long both lists must have been within the limit until it has synced.
    pub relist: Duration,
}

/// Since when the node's kubelet can list; `None`: it cannot.
#[derive(Debug, Default)]
pub(super) struct FitsSince(Mutex<Option<Instant>>);

impl FitsSince {
    /// Notes the present weight of the node's lists. A kubelet that could list for `relist` has synced
    /// everything.
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
