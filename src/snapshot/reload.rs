//! What a reload changes: the pod source is replaced between two looks, the runtime's client between two uses.

use std::sync::Arc;

use super::{LookMemory, Observer, ObserverInner};
use crate::config::Config;
use crate::pods::PodSource;
use crate::runtime;

impl Observer {
    /// Returns the runtime, with the timeouts and the message limit in force.
    pub fn client(&self) -> runtime::Client {
        self.inner.client()
    }
}

impl ObserverInner {
    pub(super) fn client(&self) -> runtime::Client {
        let config = Arc::clone(&self.config.borrow());
        let mut held = self.client.lock();
        let (of, client) = &mut *held;
        if *of != config.runtime {
            of.clone_from(&config.runtime);
            *client = client.bounded_by(of);
        }
        client.clone()
    }

    /// Says whether the operator declares containers in state unknown to be dead.
    pub(super) fn unknown_is_dead(&self) -> bool {
        self.config.borrow().policy.containers.include_unknown
    }

    /// Locks what one look passes to the next. If the configuration names another pod source, that source
    /// settles anew, and no pod is known to be absent.
    pub(super) async fn memory(&self) -> tokio::sync::MutexGuard<'_, LookMemory> {
        let mut memory = self.memory.lock().await;
        let config = Arc::clone(&self.config.borrow());
        if !config.pods.asks_as(&memory.pods_config) {
            memory.pods = pods(&config);
            memory.pod_histories.forget_answers();
        }
        memory.pods.timeout = config.runtime.timeout;
        memory.pods_config.clone_from(&config.pods);
        memory
    }
}

/// Returns a pod source that has not answered yet.
pub(super) fn pods(config: &Config) -> PodSource {
    let source = config.pods.source(&config.node.name);
    let (node, timeout) = (&config.node.name, config.runtime.timeout);
    PodSource::new(source, node, config.pods.settle, timeout)
}
