//! A pod source changed by a reload: it is replaced between two looks.

use std::sync::Arc;

use super::{Inner, Memory, PodHistories};
use crate::config::Config;
use crate::pods::PodSource;

impl Inner {
    /// Locks what one look passes to the next. If the configuration names another pod source, that source
    /// settles anew, and no pod is known to be absent.
    pub(super) async fn memory(&self) -> tokio::sync::MutexGuard<'_, Memory> {
        let mut memory = self.memory.lock().await;
        let config = Arc::clone(&self.config.borrow());
        if !config.pods.asks_as(&memory.of) {
            memory.pods = pods(&config);
            memory.pod_histories = PodHistories::default();
        }
        memory.of.clone_from(&config.pods);
        memory
    }
}

/// Returns a pod source that has not answered yet.
pub(super) fn pods(config: &Config) -> PodSource {
    let source = config.pods.source(&config.node.name);
    let (node, timeout) = (&config.node.name, config.runtime.timeout);
    PodSource::new(source, node, config.pods.settle, timeout)
}
