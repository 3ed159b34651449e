//! What others see of the passes, and when it changes.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Worker;
use crate::model::Pass;
use crate::pass::record::Record;

impl Worker {
    /// Returns a pass of the history.
    pub fn find(&self, id: &str) -> Option<Arc<Record>> {
        self.state().history.find(id)
    }

    /// Returns the passes of the history, newest first.
    pub fn passes(&self) -> Vec<Pass> {
        self.state().history.passes()
    }

    /// Returns the running pass.
    pub fn running(&self) -> Option<Pass> {
        self.state().running().map(|record| record.pass())
    }

    /// Returns a receiver that hears when a pass is queued, begins or ends.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    pub(super) fn changed(&self) {
        self.inner.changes.send_modify(|count| *count += 1);
    }

    /// Returns the signal that the service goes down.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.inner.shutdown
    }
}
