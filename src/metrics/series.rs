//! The series of the service's own metrics: their names, help texts and labels.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::evidence::EvidenceSeries;
use super::labels::{Endpoint, Removed, StatusClass};
use super::last_pass::LastPass;
use super::optional_gauge::OptionalGauge;
use super::state_set::StateSet;
use super::table::Table;
use crate::model::{
    AlertResult, Brake, CallerKind, Cause, EventResult, FailureClass, Outcome, PollResult, Target,
};

/// Seconds: 3 ms on a fast disk, 5 s with a slow CNI, a minute at the default removal timeout.
const REMOVAL_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 2.5, 5.0, 15.0, 60.0];

/// Handles to the registered metrics.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) passes: Table<(Target, Cause, Outcome), Counter>,
    pub(super) dry_runs: Table<Cause, Counter>,
    pub(super) pass_duration: Histogram,
    pub(super) last_pass: Table<Outcome, OptionalGauge>,
    pub(super) last_pass_figures: LastPass,
    pub(super) removals: Table<Removed, Counter>,
    pub(super) removal_failures: Table<(Target, FailureClass), Counter>,
    pub(super) removal_duration: Table<Target, Histogram>,
    pub(super) freed_bytes: Table<Target, Counter>,
    pub(super) already_gone: Table<Target, Counter>,
    pub(super) skipped: Table<Target, Counter>,
    pub(super) alerts: Table<AlertResult, Counter>,
    pub(super) polls: Table<PollResult, Counter>,
    pub(super) http_requests: Table<(Endpoint, StatusClass), Counter>,
    pub(super) acts: Table<CallerKind, Counter>,
    pub(super) state_write_failures: Counter,
    pub(super) evidence: EvidenceSeries,
    pub(super) events: Table<EventResult, Counter>,
    pub(super) brakes: Table<Brake, Gauge>,
    pub(super) fleet_read: OptionalGauge,
    pub(super) breaker_trips: Counter,
    pub(super) similar_nodes: Counter,
    pub(super) mode: StateSet,
    pub(super) config: StateSet,
    pub(super) needs_restart: StateSet,
    pub(super) reloaded_well: Gauge,
    pub(super) reloaded_at: OptionalGauge,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            passes: Table::default(),
            dry_runs: Table::default(),
            // Sum and count only: pass durations differ too much between nodes for one set of buckets.
            pass_duration: Histogram::new([]),
            last_pass: Table::default(),
            last_pass_figures: LastPass::default(),
            removals: Table::showing(|_| true, Counter::default),
            removal_failures: Table::showing(may_fail, Counter::default),
            removal_duration: Table::new(|| Histogram::new(REMOVAL_BUCKETS)),
            freed_bytes: Table::default(),
            already_gone: Table::default(),
            skipped: Table::default(),
            alerts: Table::showing(|_| true, Counter::default),
            polls: Table::default(),
            http_requests: Table::default(),
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
        }
    }
}

/// Only a sandbox has a network to tear down.
fn may_fail((target, class): (Target, FailureClass)) -> bool {
    match class {
        FailureClass::NetworkTeardown | FailureClass::PluginMissing => target == Target::Sandboxes,
        FailureClass::Busy | FailureClass::Timeout | FailureClass::Other => true,
    }
}

pub(super) fn register_infos(registry: &mut Registry, node: &str) {
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
    pub(super) fn observe_removal(&self, target: Target, took: Duration) {
        if let Some(histogram) = self.removal_duration.get(target) {
            histogram.observe(took.as_secs_f64());
        }
    }

    pub(super) fn register(self, registry: &mut Registry) {
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
