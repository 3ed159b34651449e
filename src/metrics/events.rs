//! What became of Kubernetes Events.

use prometheus_client::metrics::counter::Counter;

use super::Metrics;
use crate::model::EventResult;

impl Metrics {
    /// Counts a Kubernetes Event.
    pub fn event(&self, result: EventResult) {
        self.inner.series.events.get(result).map(Counter::inc);
    }
}
