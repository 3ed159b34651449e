//! The service's own metrics: what it did since its start. Never holds the runtime's state.
//!
//! Every label is a closed set. A series appears with its first event; a few appear from the start with 0.

mod gauges;
mod labels;
mod last_pass;
pub mod scrape;
mod series;
mod table;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use crate::model::{Brake, Cause, FailureClass, Outcome, Pass, RemoveReason, Target};
use gauges::seconds;
pub use labels::HttpEndpoint;
use labels::{RemovalLabels, StatusClass};
use last_pass::float;
use series::{Series, register_infos};
use table::LabelSet as _;

/// The service's own counters: its methods change several series, or convert. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<MetricsInner>,
}

#[derive(Debug)]
struct MetricsInner {
    registry: Registry,
    series: Series,
}

impl Deref for Metrics {
    type Target = Series;

    fn deref(&self) -> &Series {
        &self.inner.series
    }
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
        // A pass that never began (its alert resolved, or a person cancelled it) has not failed.
        let (Some(outcome), Some(started_at)) = (pass.outcome, pass.started_at) else {
            return;
        };
        if pass.dry_run {
            series.dry_runs.count(cause);
            return;
        }
        for (&target, report) in &pass.targets {
            series.passes.count(((target, cause), outcome));
            series.already_gone.add(target, report.already_gone);
            series.skipped.add(target, report.skipped);
        }
        let Some(finished_at) = pass.finished_at else {
            return;
        };
        series.last_pass.set(outcome, Some(seconds(finished_at)));
        // The end of an interrupted pass is unknown; it is reported at the next start.
        if outcome != Outcome::Interrupted {
            series.last_pass_ended(pass, finished_at);
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
        self.removals.count(RemovalLabels(target, reason));
        self.observe_removal(target, took);
    }

    /// Counts a failed removal, and its time.
    pub fn removal_failed(&self, target: Target, class: FailureClass, took: Duration) {
        self.removal_failures.count((target, class));
        self.observe_removal(target, took);
    }

    /// Counts an answered HTTP request.
    pub fn http_request(&self, endpoint: HttpEndpoint, status: u16) {
        let labels = (endpoint, StatusClass::of(status));
        self.http_requests.count(labels);
    }

    /// Shows which brakes hold.
    pub fn braked(&self, holding: &[Brake]) {
        for brake in Brake::ALL {
            let engaged = i64::from(holding.contains(&brake));
            let gauge = self.brakes.get(brake);
            gauge.map(|gauge| gauge.set(engaged));
        }
    }

    /// Shows when the fleet's switch was last read.
    pub fn fleet_read(&self, at: Option<Timestamp>) {
        self.fleet_read.set(at.map(seconds));
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
        self.mode.set(modes.iter().copied());
        self.config.set([(hash, true)]);
        let keys = needs_restart.iter().map(|key| (*key, true));
        self.needs_restart.set(keys);
        self.reloaded_well.set(1);
        self.reloaded_at.set(Some(seconds(at)));
    }

    /// Shows the passes of these causes from now on with 0: `increase()` misses the event that creates a
    /// series, and a node's first pass may come weeks after its start.
    pub fn expect_passes(&self, causes: impl IntoIterator<Item = Cause>) {
        for cause in causes {
            for (target, outcome) in <(Target, Outcome)>::combinations() {
                // An interrupted pass is counted at a start, so `increase()` never sees it.
                if outcome != Outcome::Interrupted {
                    self.passes.get(((target, cause), outcome));
                }
            }
        }
    }

    /// Shows how much room all evidence takes; `None`: that is not known.
    pub fn evidence_takes(&self, bytes: Option<u64>) {
        self.evidence_bytes.set(bytes.map(float));
    }

    /// Counts the evidence of one container, and evidence that made way for it.
    pub fn evidence_kept(&self, dropped: u64) {
        self.evidence_kept.inc();
        self.evidence_dropped.inc_by(dropped);
    }

    /// Appends all metrics to `page` as `OpenMetrics` text, without an end mark.
    pub fn encode(&self, page: &mut String) -> fmt::Result {
        encode_registry(page, &self.inner.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AlertResult;

    #[test]
    fn clones_share_their_counters() {
        let metrics = Metrics::new("n");
        metrics.clone().alerts.count(AlertResult::Duplicate);
        let mut page = String::new();
        metrics.encode(&mut page).unwrap();
        assert!(page.contains("crisweep_alerts_total{result=\"duplicate\"} 1\n"));
    }
}
