//! Counters of the evidence of removed containers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Metrics;
use super::table::Table;
use crate::model::EvidenceFailure;

/// Handles to the metrics of evidence.
#[derive(Clone, Debug)]
pub(super) struct EvidenceSeries {
    bytes: Gauge,
    kept: Counter,
    dropped: Counter,
    failures: Table<EvidenceFailure, Counter>,
}

impl EvidenceSeries {
    pub(super) fn new() -> Self {
        Self {
            bytes: Gauge::default(),
            kept: Counter::default(),
            dropped: Counter::default(),
            failures: Table::showing(|_| true, Counter::default),
        }
    }

    pub(super) fn register(self, registry: &mut Registry) {
        let room = "Room that the evidence of removed containers takes";
        registry.register_with_unit("evidence", room, Unit::Bytes, self.bytes);
        let kept = "Containers whose evidence was kept";
        registry.register("evidence_kept", kept, self.kept);
        let dropped = "Evidence that was removed for its age or for newer evidence";
        registry.register("evidence_dropped", dropped, self.dropped);
        let failures = "Evidence of which something could not be kept";
        registry.register("evidence_failures", failures, self.failures);
    }
}

impl Metrics {
    /// Shows how much room all evidence takes.
    pub fn evidence_takes(&self, bytes: u64) {
        let gauge = &self.inner.series.evidence.bytes;
        gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts the evidence of one container, and evidence that made way for it.
    pub fn evidence_kept(&self, dropped: u64) {
        let series = &self.inner.series.evidence;
        series.kept.inc();
        series.dropped.inc_by(dropped);
    }

    /// Counts evidence of which something could not be kept.
    pub fn evidence_failed(&self, cause: EvidenceFailure) {
        self.inner.series.evidence.failures.count(cause);
    }
}
