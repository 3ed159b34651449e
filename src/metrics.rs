//! The service's own metrics: what it did since its start. Never holds the runtime's state.
//!
//! Every label is a closed set. A series appears with its first event; a few appear from the start with 0.

mod events;
mod evidence;
mod labels;
mod last_pass;
mod optional_gauge;
pub mod scrape;
mod state_set;
mod table;

use crate::model::every;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::model::{
    AlertResult, Brake, CallerKind, Cause, EventResult, FailureClass, Outcome, Pass, PollResult,
    RemoveReason, Target,
};
use evidence::EvidenceSeries;
use labels::Removed;
use last_pass::LastPass;
use optional_gauge::OptionalGauge;
use state_set::StateSet;
use table::{Labels as _, Table};

/// Seconds: 3 ms on a fast disk, 5 s with a slow CNI, a minute at the default removal timeout.
const REMOVAL_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 2.5, 5.0, 15.0, 60.0];

/// A part of the HTTP interface, as a label.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Endpoint {
    /// `/metrics`.
    Metrics,
    /// `/gc`.
    Gc,
    /// `/webhook/alertmanager`.
    Webhook,
    /// `/api/...`.
    Api,
    /// `/-/...`.
    Management,
    /// `/`.
    Page,
    /// Any other path: paths from outside are not labels.
    Other,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 7] = every();

    /// Returns the part of the interface that a request's path belongs to.
    pub fn of_path(path: &str) -> Self {
        match path {
            "/" => Self::Page,
            "/metrics" => Self::Metrics,
            "/gc" => Self::Gc,
            "/webhook/alertmanager" => Self::Webhook,
            _ if path.starts_with("/api/") => Self::Api,
            _ if path.starts_with("/-/") => Self::Management,
            _ => Self::Other,
        }
    }

    /// Returns the label.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// The class of an HTTP status, as a label.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
enum StatusClass {
    #[strum(serialize = "2xx")]
    Success,
    #[strum(serialize = "4xx")]
    ClientError,
    #[strum(serialize = "5xx")]
    ServerError,
}

impl StatusClass {
    const ALL: [Self; 3] = every();

    /// We never redirect, so everything below 400 is one class.
    fn of(status: u16) -> Self {
        match status {
            ..400 => Self::Success,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }

    fn label(self) -> &'static str {
        self.into()
    }
}

/// The service's own counters. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    series: Series,
}

/// Handles to the registered metrics.
#[derive(Clone, Debug)]
struct Series {
    passes: Table<(Target, Cause, Outcome), Counter>,
    dry_runs: Table<Cause, Counter>,
    pass_duration: Histogram,
    last_pass: Table<Outcome, OptionalGauge>,
    last_pass_figures: LastPass,
    removals: Table<Removed, Counter>,
    removal_failures: Table<(Target, FailureClass), Counter>,
    removal_duration: Table<Target, Histogram>,
    freed_bytes: Table<Target, Counter>,
    already_gone: Table<Target, Counter>,
    skipped: Table<Target, Counter>,
    alerts: Table<AlertResult, Counter>,
    polls: Table<PollResult, Counter>,
    http_requests: Table<(Endpoint, StatusClass), Counter>,
    acts: Table<CallerKind, Counter>,
    state_write_failures: Counter,
    evidence: EvidenceSeries,
    events: Table<EventResult, Counter>,
    brakes: Table<Brake, Gauge>,
    fleet_read: OptionalGauge,
    breaker_trips: Counter,
    similar_nodes: Counter,
    mode: StateSet,
    config: StateSet,
    needs_restart: StateSet,
    reloaded_well: Gauge,
    reloaded_at: OptionalGauge,
}

impl Metrics {
    /// Registers every metric. `node` is the node's name in alerts.
    pub fn new(node: &str) -> Self {
        let series = Series {
            passes: Table::new(Counter::default),
            dry_runs: Table::new(Counter::default),
            // Sum and count only: pass durations differ too much between nodes for one set of buckets.
            pass_duration: Histogram::new([]),
            last_pass: Table::new(OptionalGauge::default),
            last_pass_figures: LastPass::default(),
            removals: Table::showing(|_| true, Counter::default),
            removal_failures: Table::showing(may_fail, Counter::default),
            removal_duration: Table::new(|| Histogram::new(REMOVAL_BUCKETS)),
            freed_bytes: Table::new(Counter::default),
            already_gone: Table::new(Counter::default),
            skipped: Table::new(Counter::default),
            alerts: Table::showing(|_| true, Counter::default),
            polls: Table::new(Counter::default),
            http_requests: Table::new(Counter::default),
            acts: Table::showing(|_| true, Counter::default),
            state_write_failures: Counter::default(),
            evidence: EvidenceSeries::new(),
            events: Table::showing(|it| it == EventResult::Failed, Counter::default),
            brakes: Table::showing(|_| true, Gauge::default),
            fleet_read: OptionalGauge::default(),
            breaker_trips: Counter::default(),
            similar_nodes: Counter::default(),
            mode: StateSet::new("mode"),
            config: StateSet::new("hash"),
            needs_restart: StateSet::new("key"),
            reloaded_well: Gauge::default(),
            reloaded_at: OptionalGauge::default(),
        };
        let mut registry = Registry::with_prefix("crisweep");
        register_infos(&mut registry, node);
        series.clone().register(&mut registry);
        Self {
            inner: Arc::new(Inner { registry, series }),
        }
    }

    /// Counts an ended pass: once for each of its targets, and once in duration and time. A dry run counts
    /// only as a dry run, because it removes nothing.
    pub fn pass_finished(&self, pass: &Pass) {
        let (series, cause) = (&self.inner.series, pass.trigger.cause);
        let Some(outcome) = pass.outcome else { return };
        if pass.dry_run {
            series.dry_runs.get(cause).map(Counter::inc);
            return;
        }
        for (&target, report) in &pass.targets {
            series
                .passes
                .get((target, cause, outcome))
                .map(Counter::inc);
            series
                .already_gone
                .get(target)
                .map(|counter| counter.inc_by(report.already_gone));
            series
                .skipped
                .get(target)
                .map(|counter| counter.inc_by(report.skipped));
        }
        let Some(finished_at) = pass.finished_at else {
            return;
        };
        if let Some(gauge) = series.last_pass.get(outcome) {
            gauge.set_time(finished_at);
        }
        // The end of an interrupted pass is unknown; it is reported at the next start.
        let known_end = outcome != Outcome::Interrupted;
        if known_end {
            series.last_pass_figures.ended(pass, finished_at);
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
        series
            .removals
            .get(Removed(target, reason))
            .map(Counter::inc);
        series.observe_removal(target, took);
    }

    /// Counts the listed size of a removed object.
    pub fn freed(&self, target: Target, bytes: u64) {
        let freed = self.inner.series.freed_bytes.get(target);
        freed.map(|counter| counter.inc_by(bytes));
    }

    /// Counts a failed removal, and its time.
    pub fn removal_failed(&self, target: Target, class: FailureClass, took: Duration) {
        let series = &self.inner.series;
        series
            .removal_failures
            .get((target, class))
            .map(Counter::inc);
        series.observe_removal(target, took);
    }

    /// Counts the result of one alert.
    pub fn alert(&self, result: AlertResult) {
        self.inner.series.alerts.get(result).map(Counter::inc);
    }

    /// Counts a poll of an Alertmanager.
    pub fn polled(&self, result: PollResult) {
        self.inner.series.polls.get(result).map(Counter::inc);
    }

    /// Counts an answered HTTP request.
    pub fn http_request(&self, endpoint: Endpoint, status: u16) {
        self.inner
            .series
            .http_requests
            .get((endpoint, StatusClass::of(status)))
            .map(Counter::inc);
    }

    /// Counts a request that acts and was let in.
    pub fn act(&self, caller: CallerKind) {
        self.inner.series.acts.get(caller).map(Counter::inc);
    }

    /// Returns the counter of failed and dropped state writes.
    pub fn state_write_failures(&self) -> Counter {
        self.inner.series.state_write_failures.clone()
    }

    /// Shows which brakes hold.
    pub fn braked(&self, holding: &[Brake]) {
        for brake in Brake::ALL {
            let engaged = i64::from(holding.contains(&brake));
            self.inner
                .series
                .brakes
                .get(brake)
                .map(|gauge| gauge.set(engaged));
        }
    }

    /// Shows when the fleet's switch was last read.
    pub fn fleet_read(&self, at: Option<Timestamp>) {
        match at {
            Some(at) => self.inner.series.fleet_read.set_time(at),
            None => self.inner.series.fleet_read.clear(),
        }
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
        series.reloaded_at.set_time(at);
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

    /// Appends all metrics to `page` as `OpenMetrics` text, without an end mark.
    pub fn encode(&self, page: &mut String) -> fmt::Result {
        encode_registry(page, &self.inner.registry)
    }
}

/// Only a sandbox has a network to tear down.
fn may_fail((target, class): (Target, FailureClass)) -> bool {
    match class {
        FailureClass::NetworkTeardown | FailureClass::PluginMissing => target == Target::Sandboxes,
        FailureClass::Busy | FailureClass::Timeout | FailureClass::Other => true,
    }
}

fn register_infos(registry: &mut Registry, node: &str) {
    let build = Info::new(vec![
        ("version", env!("CARGO_PKG_VERSION")),
        (
            "revision",
            option_env!("CRISWEEP_REVISION").unwrap_or("unknown"),
        ),
        ("arch", std::env::consts::ARCH),
    ]);
    registry.register("build", "What this crisweep was built from", build);
    let node = Info::new(vec![("node", node.to_owned())]);
    registry.register(
        "node",
        "The node's name, as alerts carry it in their label `node`",
        node,
    );
}

impl Series {
    fn observe_removal(&self, target: Target, took: Duration) {
        if let Some(histogram) = self.removal_duration.get(target) {
            histogram.observe(took.as_secs_f64());
        }
    }

    fn register(self, registry: &mut Registry) {
        let passes = "Passes that ended, once for each of their targets; without dry runs";
        registry.register("passes", passes, self.passes);
        registry.register("dry_runs", "Dry runs that ended", self.dry_runs);
        let duration = "How long passes took, without their time in the queue and without dry runs";
        registry.register_with_unit("pass_duration", duration, Unit::Seconds, self.pass_duration);
        let last = "When a pass last ended with this outcome; absent until one has";
        registry.register_with_unit("last_pass_timestamp", last, Unit::Seconds, self.last_pass);
        self.last_pass_figures.register(registry);
        registry.register("removals", "Objects that crisweep removed", self.removals);
        let failures = "Removals that failed";
        registry.register("removal_failures", failures, self.removal_failures);
        let took = "How long the runtime took for a removal, failed removals included";
        registry.register_with_unit(
            "removal_duration",
            took,
            Unit::Seconds,
            self.removal_duration,
        );
        let freed = "Size of what crisweep removed: images as listed, shared layers in full; logs by their blocks";
        registry.register_with_unit("freed", freed, Unit::Bytes, self.freed_bytes);
        let gone = "Planned objects that were gone before crisweep removed them";
        registry.register("removals_already_gone", gone, self.already_gone);
        let skipped = "Planned objects that were left because their state had changed";
        registry.register("removals_skipped", skipped, self.skipped);
        registry.register(
            "alerts",
            "Alerts received or found at an Alertmanager, by result",
            self.alerts,
        );
        let polls = "Polls of Alertmanagers (alertmanager.poll), by result";
        registry.register("alertmanager_polls", polls, self.polls);
        let requests = "HTTP requests answered";
        registry.register("http_requests", requests, self.http_requests);
        let acts = "Requests to change something that were let in, by what proved who asked";
        registry.register("acts", acts, self.acts);
        let failures = "Writes of state to the disk that failed or were left out";
        registry.register("state_write_failures", failures, self.state_write_failures);
        self.evidence.register(registry);
        let events = "Kubernetes Events by what became of them";
        registry.register("events", events, self.events);
        let brakes = "Whether this brake would hold an alert now";
        registry.register("brake_engaged", brakes, self.brakes);
        let read = "When the fleet's switch (fleet.hold_config_map) was last read";
        let name = "fleet_hold_read_timestamp";
        registry.register_with_unit(name, read, Unit::Seconds, self.fleet_read);
        let trips = "Targets that the circuit breaker (gc.failure_ratio) ended in mid-pass";
        registry.register("circuit_breaker_trips", trips, self.breaker_trips);
        let similar = "Alerts about this node's name with another domain; they are not obeyed";
        registry.register("node_name_mismatches", similar, self.similar_nodes);
        registry.register(
            "mode",
            "Whether passes remove (enforce) or only plan (observe)",
            self.mode,
        );
        let hash = "Fingerprint of the configuration in force, without the node's name";
        registry.register("config_info", hash, self.config);
        let waiting = "Changed settings that a reload could not put in force";
        registry.register("config_needs_restart", waiting, self.needs_restart);
        let well = "Whether the last reload of the configuration was accepted";
        registry.register("config_last_reload_successful", well, self.reloaded_well);
        let at = "When the configuration in force was read";
        let name = "config_last_reload_success_timestamp";
        registry.register_with_unit(name, at, Unit::Seconds, self.reloaded_at);
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

    #[test]
    fn paths_from_outside_are_one_label() {
        let cases = [
            ("/", Endpoint::Page),
            ("/metrics", Endpoint::Metrics),
            ("/gc", Endpoint::Gc),
            ("/webhook/alertmanager", Endpoint::Webhook),
            ("/api/v1/passes/17", Endpoint::Api),
            ("/-/ready", Endpoint::Management),
            ("/metrics/", Endpoint::Other),
            ("/gc/../etc", Endpoint::Other),
            ("", Endpoint::Other),
        ];
        for (path, endpoint) in cases {
            assert_eq!(Endpoint::of_path(path), endpoint, "{path}");
        }
    }

    #[test]
    fn statuses_are_classed_by_their_hundred() {
        let cases = [
            (200, StatusClass::Success),
            (399, StatusClass::Success),
            (400, StatusClass::ClientError),
            (499, StatusClass::ClientError),
            (500, StatusClass::ServerError),
        ];
        for (status, class) in cases {
            assert_eq!(StatusClass::of(status), class, "{status}");
        }
    }
}
