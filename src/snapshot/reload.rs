//! Another pod source, which a reload brings: looks take it over between two of them.

use parking_lot::MutexGuard;

use super::{Inner, Memory, Observer, PodHistories};
use crate::pods::PodSource;

impl Observer {
    /// Takes another pod source from the next look on. It settles anew, and no pod is known to be absent.
    pub fn set_pods(&self, pods: PodSource) {
        *self.inner.next_pods() = Some(pods);
    }
}

impl Inner {
    /// Locks what one look hands to the next.
    pub(super) async fn memory(&self) -> tokio::sync::MutexGuard<'_, Memory> {
        let mut memory = self.memory.lock().await;
        if let Some(pods) = self.next_pods().take() {
            memory.pods = pods;
            memory.pod_histories = PodHistories::default();
        }
        memory
    }

    fn next_pods(&self) -> MutexGuard<'_, Option<PodSource>> {
        self.next_pods.lock()
    }
}
