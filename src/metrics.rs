//! The service's own metrics: what it did since its start. Never holds the runtime's state.
//!
//! Every label is a closed set. A series appears with its first event; a few appear from the start with 0.

mod labels;
mod last_pass;
mod optional_gauge;
pub mod scrape;
mod series;
mod state_set;
mod table;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::model::{
    AlertResult, Brake, CallerKind, Cause, EventResult, EvidenceFailure, FailureClass, Outcome,
    Pass, PollResult, RemoveReason, Target,
};
pub use labels::HttpEndpoint;
use labels::{RemovalLabels, StatusClass};
use last_pass::float;
use optional_gauge::seconds;
use series::{Series, register_infos};
use table::LabelSet as _;

/// The service's own counters. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<MetricsInner>,
}

#[derive(Debug)]
struct MetricsInner {
    registry: Registry,
    series: Series,
}

impl Metrics {
    /// Registers every metric. `node` is the node's name in alerts.
    pub fn new(node: &str) -> Self {
        let series = Series::default();
        let mut registry = Registry::with_prefix("crisweep");
        register_infos(&mut registry, node);
        series.clone().register(&mut registry);
        Self {
            inner: Arc::new(MetricsInner { registry, series }),
        }
    }

    /// Counts an ended pass: once for each of its targets, and once in duration and time. A dry run counts
    /// only as a dry run, because it removes nothing.
    pub fn pass_finished(&self, pass: &Pass) {
        let (series, cause) = (&self.inner.series, pass.trigger.cause);
        let Some(outcome) = pass.outcome else { return };
        if pass.dry_run {
            series.dry_runs.count(cause);
            return;
        }
        for (&target, report) in &pass.targets {
            series.passes.count((target, cause, outcome));
            series.already_gone.add(target, report.already_gone);
            series.skipped.add(target, report.skipped);
        }
        let Some(finished_at) = pass.finished_at else {
            return;
        };
        series.last_pass.set(outcome, Some(seconds(finished_at)));
        // The end of an interrupted pass is unknown; it is reported at the next start.
        let known_end = outcome != Outcome::Interrupted;
        if known_end {
            series.last_pass_ended(pass, finished_at);
        }
        if let Some(started_at) = pass.started_at.filter(|_| known_end) {
            // The clock may have been set back in between.
            let seconds = finished_at
                .duration_since(started_at)
                .as_secs_f64()
                .max(0.0);
            series.pass_duration.observe(seconds);
        }
    }

    /// Counts a removed object, and the time of its removal.
    pub fn removed(&self, target: Target, reason: RemoveReason, took: Duration) {
        let series = &self.inner.series;
        series.removals.count(RemovalLabels(target, reason));
        series.observe_removal(target, took);
    }

    /// Counts the listed size of a removed object.
    pub fn freed(&self, target: Target, bytes: u64) {
        self.inner.series.freed_bytes.add(target, bytes);
    }

    /// Counts a failed removal, and its time.
    pub fn removal_failed(&self, target: Target, class: FailureClass, took: Duration) {
        let series = &self.inner.series;
        series.removal_failures.count((target, class));
        series.observe_removal(target, took);
    }

    /// Counts the result of one alert.
    pub fn alert(&self, result: AlertResult) {
        self.inner.series.alerts.count(result);
    }

    /// Counts a poll of an Alertmanager.
    pub fn polled(&self, result: PollResult) {
        self.inner.series.polls.count(result);
    }

    /// Counts an answered HTTP request.
    pub fn http_request(&self, endpoint: HttpEndpoint, status: u16) {
        let labels = (endpoint, StatusClass::of(status));
        self.inner.series.http_requests.count(labels);
    }

    /// Counts a request that acts and was let in.
    pub fn act(&self, caller: CallerKind) {
        self.inner.series.acts.count(caller);
    }

    /// Counts a Kubernetes Event.
    pub fn event(&self, result: EventResult) {
        self.inner.series.events.count(result);
    }

    /// Returns the counter of failed and dropped state writes.
    pub fn state_write_failures(&self) -> Counter {
        self.inner.series.state_write_failures.clone()
    }

    /// Shows which brakes hold.
    pub fn braked(&self, holding: &[Brake]) {
        for brake in Brake::ALL {
            let engaged = i64::from(holding.contains(&brake));
            let gauge = self.inner.series.brakes.get(brake);
            gauge.map(|gauge| gauge.set(engaged));
        }
    }

    /// Shows when the fleet's switch was last read.
    pub fn fleet_read(&self, at: Option<Timestamp>) {
        self.inner.series.fleet_read.set(at.map(seconds));
    }

    /// Shows the configuration in force: the mode, the fingerprint, the keys that need a restart, and since
    /// when.
    pub fn configured(
        &self,
        modes: &[(&str, bool)],
        hash: &str,
        needs_restart: &[&str],
        at: Timestamp,
    ) {
        let series = &self.inner.series;
        series.mode.set(modes.iter().copied());
        series.config.set([(hash, true)]);
        series
            .needs_restart
            .set(needs_restart.iter().map(|key| (*key, true)));
        series.reloaded_well.set(1);
        series.reloaded_at.set(Some(seconds(at)));
    }

    /// Shows the passes of these causes from now on with 0: `increase()` misses the event that creates a
    /// series, and a node's first pass may come weeks after its start.
    pub fn expect_passes(&self, causes: impl IntoIterator<Item = Cause>) {
        for cause in causes {
            for (target, outcome) in <(Target, Outcome)>::combinations() {
                // An interrupted pass is counted at a start, so `increase()` never sees it.
                if outcome != Outcome::Interrupted {
                    self.inner.series.passes.get((target, cause, outcome));
                }
            }
        }
    }

    /// Shows that a reload failed; the old configuration stays in force.
    pub fn reload_failed(&self) {
        self.inner.series.reloaded_well.set(0);
    }

    /// Counts an alert for a node with this node's name and another domain; returns the count.
    pub fn similar_node(&self) -> u64 {
        self.inner.series.similar_nodes.inc()
    }

    /// Counts a target ended by the circuit breaker.
    pub fn breaker_tripped(&self) {
        self.inner.series.breaker_trips.inc();
    }

    /// Shows how much room all evidence takes; `None`: that is not known.
    pub fn evidence_takes(&self, bytes: Option<u64>) {
        self.inner.series.evidence_bytes.set(bytes.map(float));
    }

    /// Counts evidence that went for its age.
    pub fn evidence_dropped(&self, dropped: u64) {
        self.inner.series.evidence_dropped.inc_by(dropped);
    }

    /// Counts the evidence of one container, and evidence that made way for it.
    pub fn evidence_kept(&self, dropped: u64) {
        let series = &self.inner.series;
        series.evidence_kept.inc();
        series.evidence_dropped.inc_by(dropped);
    }

    /// Counts evidence of which something could not be kept.
    pub fn evidence_failed(&self, cause: EvidenceFailure) {
        self.inner.series.evidence_failures.count(cause);
    }

    /// Appends all metrics to `page` as `OpenMetrics` text, without an end mark.
    pub fn encode(&self, page: &mut String) -> fmt::Result {
        encode_registry(page, &self.inner.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_counters() {
        let metrics = Metrics::new("n");
        metrics.clone().alert(AlertResult::Duplicate);
        let mut page = String::new();
        metrics.encode(&mut page).unwrap();
        assert!(page.contains("crisweep_alerts_total{result=\"duplicate\"} 1\n"));
    }
}
