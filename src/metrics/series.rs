//! The series of the service's own metrics: their names, help texts and labels.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::gauges::{OptionalGauge, StateSet};
use super::labels::{HttpEndpoint, ListName, PassMoment, RemovalLabels, StatusClass};
use super::table::Table;
use crate::model::{
    AlertResult, Brake, CallerKind, Cause, EventResult, EvidenceFailure, FailureClass, Outcome,
    PollResult, Target,
};

/// Seconds: 3 ms on a fast disk, 5 s with a slow CNI, a minute at the default removal timeout.
const REMOVAL_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 2.5, 5.0, 15.0, 60.0];

/// Declares the handles to metrics with their first values, names, units and help texts, and registers them in the
/// order in which they stand.
macro_rules! series {
    ($($field:ident: $type:ty = $first:expr, $name:literal $($unit:ident)?, $help:literal;)*) => {
        /// Handles to the registered metrics.
        #[derive(Clone, Debug)]
        pub struct Series {
            $(pub(crate) $field: $type,)*
        }

        impl Default for Series {
            fn default() -> Self {
                Self { $($field: $first,)* }
            }
        }

        impl Series {
            pub(super) fn register(self, registry: &mut Registry) {
                $(series!(@register registry, $name, $help, self.$field $(, $unit)?);)*
            }
        }
    };
    (@register $registry:ident, $name:literal, $help:literal, $metric:expr) => {
        $registry.register($name, $help, $metric)
    };
    (@register $registry:ident, $name:literal, $help:literal, $metric:expr, $unit:ident) => {
        $registry.register_with_unit($name, $help, Unit::$unit, $metric)
    };
}

series! {
    passes: Table<((Target, Cause), Outcome), Counter> = Table::default(),
        "passes", "Passes that ended, once for each of their targets; without dry runs";
    dry_runs: Table<Cause, Counter> = Table::default(),
        "dry_runs", "Dry runs that ended";
    // Sum and count only: pass durations differ too much between nodes for one set of buckets.
    pass_duration: Histogram = Histogram::new([]),
        "pass_duration" Seconds, "How long passes took, without their time in the queue and without dry runs";
    last_pass: Table<Outcome, OptionalGauge> = Table::default(),
        "last_pass_timestamp" Seconds, "When a pass last ended with this outcome; absent until one has";
    last_ended: Table<Target, OptionalGauge> = Table::default(),
        "last_pass_target_timestamp" Seconds, "When a pass over this target last ended; absent until one has";
    last_remaining: Table<Target, OptionalGauge> = Table::default(),
        "last_pass_remaining", "Planned objects that still existed after the last pass over this target";
    last_dead: Table<(Target, PassMoment), OptionalGauge> = Table::default(),
        "last_pass_dead", "Exited containers, or sandboxes that are not ready, around the last pass over this target";
    last_list_bytes: Table<(ListName, PassMoment), OptionalGauge> = Table::default(),
        "last_pass_list" Bytes, "Size of an unfiltered list around the last pass over what it lists";
    last_fs_used_bytes: Table<PassMoment, OptionalGauge> = Table::default(),
        "last_pass_image_fs_used" Bytes, "The image file system's bytes in use around the last pass over images";
    last_fs_used_ratio: Table<PassMoment, OptionalGauge> = Table::default(),
        "last_pass_image_fs_used_ratio",
        "The image file system's used share, 0 to 1, around the last pass over images";
    last_fs_inodes_used: Table<PassMoment, OptionalGauge> = Table::default(),
        "last_pass_image_fs_inodes_used", "The image file system's inodes in use around the last pass over images";
    removals: Table<RemovalLabels, Counter> = Table::showing(|_| true, Counter::default),
        "removals", "Objects that crisweep removed";
    removal_failures: Table<(Target, FailureClass), Counter> = Table::showing(may_fail, Counter::default),
        "removal_failures", "Removals that failed";
    removal_duration: Table<Target, Histogram> = Table::new(|| Histogram::new(REMOVAL_BUCKETS)),
        "removal_duration" Seconds, "How long the runtime took for a removal, failed removals included";
    freed_bytes: Table<Target, Counter> = Table::showing(|_| true, Counter::default),
        "freed" Bytes,
        "Size of what crisweep removed: images as listed, shared layers in full; logs by their blocks";
    already_gone: Table<Target, Counter> = Table::default(),
        "removals_already_gone", "Planned objects that were gone before crisweep removed them";
    skipped: Table<Target, Counter> = Table::default(),
        "removals_skipped", "Planned objects that were left because their state had changed";
    alerts: Table<AlertResult, Counter> = Table::showing(|_| true, Counter::default),
        "alerts", "Alerts received or found at an Alertmanager, by result";
    polls: Table<PollResult, Counter> = Table::default(),
        "alertmanager_polls", "Polls of Alertmanagers (alertmanager.poll), by result";
    http_requests: Table<(HttpEndpoint, StatusClass), Counter> = Table::default(),
        "http_requests", "HTTP requests answered";
    acts: Table<CallerKind, Counter> = Table::showing(|_| true, Counter::default),
        "acts", "Requests to change something that were let in, by what proved who asked";
    state_write_failures: Counter = Counter::default(),
        "state_write_failures", "Writes of state to the disk that failed or were left out";
    evidence_bytes: OptionalGauge = OptionalGauge::default(),
        "evidence" Bytes, "Room that the evidence of removed containers takes";
    evidence_kept: Counter = Counter::default(),
        "evidence_kept", "Containers whose evidence was kept";
    evidence_dropped: Counter = Counter::default(),
        "evidence_dropped", "Evidence that was removed for its age or for newer evidence";
    evidence_failures: Table<EvidenceFailure, Counter> = Table::showing(|_| true, Counter::default),
        "evidence_failures", "Evidence of which something could not be kept";
    events: Table<EventResult, Counter> = Table::showing(|it| it == EventResult::Failed, Counter::default),
        "events", "Kubernetes Events by what became of them";
    brakes: Table<Brake, Gauge> = Table::showing(|_| true, Gauge::default),
        "brake_engaged", "Whether this brake would hold an alert now";
    fleet_read: OptionalGauge = OptionalGauge::default(),
        "fleet_hold_read_timestamp" Seconds, "When the fleet's switch (fleet.hold_config_map) was last read";
    breaker_trips: Counter = Counter::default(),
        "circuit_breaker_trips", "Targets that the circuit breaker (gc.failure_ratio) ended in mid-pass";
    similar_nodes: Counter = Counter::default(),
        "node_name_mismatches", "Alerts about this node's name with another domain; they are not obeyed";
    mode: StateSet = StateSet::new("mode"),
        "mode", "Whether passes remove (enforce) or only plan (observe)";
    config: StateSet = StateSet::new("hash"),
        "config_info", "Fingerprint of the configuration in force, without the node's name";
    needs_restart: StateSet = StateSet::new("key"),
        "config_needs_restart", "Changed settings that a reload could not put in force";
    reloaded_well: Gauge = Gauge::default(),
        "config_last_reload_successful", "Whether the last reload of the configuration was accepted";
    reloaded_at: OptionalGauge = OptionalGauge::default(),
        "config_last_reload_success_timestamp" Seconds, "When the configuration in force was read";
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
}
