//! The loops that run as long as the service, each with its pulse.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::{JoinHandle, JoinSet};

use crate::system::pulse::{Pulse, Pulses};

/// The loops. Their pulses are owned here, so that one that panicked is missed.
#[derive(Debug)]
pub(super) struct Loops {
    tasks: JoinSet<()>,
    pulses: Pulses,
    owned: Vec<Arc<Pulse>>,
}

impl Loops {
    pub(super) fn new(pulses: Pulses) -> Self {
        Self {
            tasks: JoinSet::new(),
            pulses,
            owned: Vec::new(),
        }
    }

    /// Runs a loop.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let carried = self.carried(name, Box::pin(work));
        self.tasks.spawn(carried);
    }

    /// Runs a loop that ends before the others.
    pub(super) fn spawn_apart(
        &mut self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tokio::spawn(self.carried(name, Box::pin(work)))
    }

    /// Takes a boxed loop, so that this and the task are compiled once.
    fn carried(
        &mut self,
        name: &'static str,
        work: BoxFuture<'static, ()>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let pulse = self.pulses.start(name);
        self.owned.push(Arc::clone(&pulse));
        async move { pulse.carry(None, work).await }
    }

    /// Runs something beside the loops that may take long between two steps, or ends early.
    pub(super) fn spawn_unwatched(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Waits until all have ended.
    pub(super) async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
