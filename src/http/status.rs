//! `GET /api/v1/status`: the node, the service, and which brakes hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde::Serialize;

use super::api::NoParameters;
use super::quarantine::QuarantinedSandbox;
use super::{Service, json};
use crate::config::{Config, Mode};
use crate::fleet::FleetStatus;
use crate::gc::knowledge::{Knowledge, SourceState};
use crate::gc::{self, Policy};
use crate::model::{
    Brake, ContainerState, Coverage, FailureClass, NodeFigures, Pass, PodSandboxState, Pods,
    Snapshot, Target, by_state,
};
use crate::pass::at_risk;
use crate::runtime::Listing;
use crate::snapshot::{Look, LookResult, Weight};
use crate::state;

/// How long the status waits for a new look.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);

/// What the service knows of itself and of the node.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct StatusAnswer {
    /// The node's name.
    node: String,
    /// The version of crisweep.
    version: &'static str,
    /// Since the service's start.
    uptime_seconds: u64,
    mode: Mode,
    /// Whether `brakes.pause` is set.
    paused: bool,
    config: ConfigStatus,
    /// Why there is no new look, or why it is not complete enough to plan.
    look_error: Option<String>,
    #[serde(flatten)]
    observed: Observed,
    /// The state directory.
    state: state::StateStatus,
    /// Number of quarantined sandboxes by failure class.
    quarantined_sandboxes: BTreeMap<FailureClass, usize>,
    /// The 20 quarantined sandboxes that are tried next.
    quarantine: Vec<QuarantinedSandbox>,
    brakes: BrakesStatus,
    fleet: FleetStatus,
    /// The setting; `null`: off.
    assume_finished_after_seconds: Option<u64>,
    /// The running pass.
    running: Option<Pass>,
    /// The ids of the waiting passes, newest first.
    waiting: Vec<String>,
    /// The last pass that began and ended.
    last_pass: Option<Pass>,
}

/// The configuration in force.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ConfigStatus {
    /// The same for equal settings.
    hash: String,
    /// When it was read.
    loaded_at: Timestamp,
    /// Why the last reload was refused; `null`: it was not.
    last_reload_error: Option<String>,
    /// Changed settings that need a restart.
    needs_restart: Vec<&'static str>,
}

/// The limits of automatic passes.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct BrakesStatus {
    cooldown_seconds: u64,
    /// Of each target; `null`: no limit.
    max_passes_per_hour: Option<u32>,
    pause: bool,
    /// Share of failed removals that ends a target; `null`: none.
    failure_ratio: Option<f64>,
    /// The brakes that hold now.
    holding: Vec<&'static str>,
}

/// What the last look found; nothing on a node that was never observed.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Observed {
    runtime: RuntimeStatus,
    #[serde(flatten)]
    found: Option<NodeStatus>,
}

/// What a look found.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NodeStatus {
    look: LookStatus,
    figures: NodeFigures,
    /// Number of objects in each state; lacks lists that could not be read.
    states: BTreeMap<&'static str, BTreeMap<&'static str, usize>>,
    /// The image policy's marks.
    marks: ImageMarks,
    /// How each list was read; lacks those that could not be read.
    lists: BTreeMap<&'static str, ListStatus>,
    pods: PodsStatus,
    /// Number of objects that a pass would remove now; `null`: the lists could not be read.
    removable: Option<BTreeMap<Target, usize>>,
    /// Number of further objects that it may remove at a risk, where nothing else makes a list fit that is over its limit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    at_risk: BTreeMap<Target, usize>,
}

/// Where images begin to go, and how far.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Marks"))]
struct ImageMarks {
    image_high_percent: u8,
    image_low_percent: u8,
}

/// A look at the node.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct LookStatus {
    /// When it began.
    taken_at: Timestamp,
    age_seconds: f64,
    duration_seconds: f64,
    /// Number of dead containers whose exit time the runtime did not say.
    exit_times_unknown: usize,
    /// What could not be read or written, and why.
    errors: BTreeMap<&'static str, String>,
}

/// The container runtime.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RuntimeStatus {
    /// Its socket.
    endpoint: String,
    /// Whether it answered to the last look, and that look is new; without one, whether it answers now.
    up: bool,
    name: Option<String>,
    version: Option<String>,
    /// Why it is not known.
    error: Option<String>,
}

/// How a list was read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ListStatus {
    /// The way; `null`: it failed for its size.
    mode: Option<&'static str>,
    /// Whether no row is missing.
    complete: bool,
    /// Why rows may be missing, what follows from it and what helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// What the whole list weighs.
    bytes: Option<u64>,
    /// The lower of the kubelet's and the runtime's limit.
    limit_bytes: u64,
}

/// What is known of the node's pods.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PodsStatus {
    /// The setting.
    configured: &'static str,
    /// The source.
    source: &'static str,
    /// Why this source was chosen.
    chosen: String,
    /// Whether the API server answered from its watch cache.
    from_cache: bool,
    /// Whether the list is believed.
    known: bool,
    /// `none`, `settling`, `failed`, `incomplete` or `known`.
    state: &'static str,
    /// Why it is not believed.
    why: Option<String>,
}

/// Answers with the status. If the runtime does not answer in time, the latest look is shown with its age.
pub(super) async fn get(State(service): State<Service>, NoParameters: NoParameters) -> Response {
    let (observed, error) = match tokio::time::timeout(LOOK_PATIENCE, service.look()).await {
        Ok(Ok(look)) => (observed(&service, &look, true).await, None),
        Ok(Err(problem)) => (without_look(&service).0, Some(problem.error)),
        // While the runtime hangs the client wants to know exactly that; the age shows how old the rest is.
        Err(_elapsed) => {
            let (observed, error) = match service.latest() {
                Some(look) => (
                    observed(&service, &look, false).await,
                    "the runtime does not answer in time; this is what the last look found",
                ),
                None => without_look(&service),
            };
            (observed, Some(error.to_owned()))
        }
    };
    json(StatusCode::OK, &status(&service, observed, error))
}

fn status(service: &Service, observed: Observed, look_error: Option<String>) -> StatusAnswer {
    let latest = service.observer.latest();
    let config = service.config();
    let passes = service.worker.passes();
    let waiting = passes.iter().filter(|pass| pass.waits());
    let waiting = waiting.map(|pass| pass.id.clone()).collect();
    let assume_finished_after = config.policy.assume_finished_after;
    StatusAnswer {
        node: config.node.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        uptime_seconds: service.fixed.started.elapsed().as_secs(),
        mode: config.mode,
        paused: config.brakes.pause,
        config: config_status(service),
        look_error,
        observed,
        state: service.worker.runner().journal.status(),
        quarantined_sandboxes: service.quarantined_by_class(latest.as_deref()),
        quarantine: service.quarantined_first(latest.as_deref()),
        brakes: brakes(service),
        fleet: service.worker.fleet().status(),
        assume_finished_after_seconds: assume_finished_after.map(|after| after.as_secs()),
        running: service.worker.running(),
        waiting,
        last_pass: passes.into_iter().find(Pass::has_run),
    }
}

fn config_status(service: &Service) -> ConfigStatus {
    let config = service.config();
    let last = service.last_reload.lock().clone();
    ConfigStatus {
        hash: config.hash(),
        loaded_at: last.loaded_at,
        last_reload_error: last.refused,
        needs_restart: config.needs_restart.clone(),
    }
}

fn brakes(service: &Service) -> BrakesStatus {
    let config = service.config();
    let holding = service.worker.holding().into_iter().map(Brake::label);
    BrakesStatus {
        cooldown_seconds: config.brakes.cooldown.as_secs(),
        max_passes_per_hour: config.brakes.max_passes_per_hour,
        pause: config.brakes.pause,
        failure_ratio: config.gc.failure_ratio,
        holding: holding.collect(),
    }
}

/// The answer while no look tells anything, and why. The runtime may have answered already: a look at many dead
/// containers takes long on a sick node.
fn without_look(service: &Service) -> (Observed, &'static str) {
    let mut why = "the runtime does not answer in time; the node was not looked at yet";
    let mut runtime = RuntimeStatus {
        endpoint: service.observer.client().endpoint(),
        ..RuntimeStatus::default()
    };
    match service.observer.version_so_far() {
        Some(Ok(it)) => {
            why = "the runtime answers; the look at the node is not over yet";
            (runtime.up, runtime.name, runtime.version) =
                (true, Some(it.runtime), Some(it.version));
        }
        Some(Err(error)) => runtime.error = Some(error.to_string()),
        None => {}
    }
    let found = None;
    (Observed { runtime, found }, why)
}

/// What a look found. One that is not `young` does not show whether the runtime is up.
async fn observed(service: &Service, look: &Arc<Look>, young: bool) -> Observed {
    let judged = {
        let look = Arc::clone(look);
        service.heavy(move |service| judge(service, &look)).await
    };
    let config = service.config();
    let endpoint = service.observer.client().endpoint();
    let mut observed = of_look(look, judged.ok().flatten(), endpoint, &config);
    observed.runtime.up &= young;
    observed
}

/// The same without a service, for `crisweep status`.
pub(crate) fn of_look(
    look: &Look,
    judged: Option<PlanStatus>,
    endpoint: String,
    config: &Config,
) -> Observed {
    let runtime = look.runtime.as_ref();
    let images = &config.policy.images;
    Observed {
        runtime: RuntimeStatus {
            endpoint,
            up: runtime.is_ok(),
            name: runtime.ok().map(|runtime| runtime.runtime.clone()),
            version: runtime.ok().map(|runtime| runtime.version.clone()),
            error: runtime.err().map(ToString::to_string),
        },
        found: Some(NodeStatus {
            look: LookStatus {
                taken_at: look.taken_at,
                age_seconds: look.started.elapsed().as_secs_f64(),
                duration_seconds: look.duration.as_secs_f64(),
                exit_times_unknown: look.exits_unknown,
                errors: errors(look),
            },
            figures: look.figures(),
            states: states(look),
            marks: ImageMarks {
                image_high_percent: images.high_threshold_percent,
                image_low_percent: images.low_threshold_percent,
            },
            lists: lists(look),
            pods: pods(config, look, judged.as_ref()),
            at_risk: judged
                .as_ref()
                .map_or_else(BTreeMap::new, |it| it.at_risk.clone()),
            removable: judged.map(|judged| judged.removable),
        }),
    }
}

fn pods(config: &Config, look: &Look, judged: Option<&PlanStatus>) -> PodsStatus {
    let judged = judged.map(|it| it.pods.clone());
    let PodsJudgement { state, why } =
        judged.unwrap_or_else(|| PodsJudgement::by_source(&look.pods));
    PodsStatus {
        configured: config.pods.source.label(),
        source: look.pod_origin.source.label(),
        chosen: look.pod_origin.why.clone(),
        from_cache: look.pods.is_cached(),
        known: state == SourceState::Known,
        state: state.label(),
        why,
    }
}

/// How far the pods are known.
#[derive(Clone)]
pub(super) struct PodsJudgement {
    pub(super) state: SourceState,
    /// Why no further.
    pub(super) why: Option<String>,
}

impl PodsJudgement {
    /// Judges the pod source's answer beside the runtime's lists.
    pub(super) fn of(knowledge: &Knowledge<'_>) -> Self {
        Self {
            state: knowledge.source_state(),
            why: knowledge.source_doubt(),
        }
    }

    /// Judges the pod source's answer alone, because the lists could not be read.
    pub(super) fn by_source(pods: &Pods) -> Self {
        let (state, why) = match pods {
            Pods::Unknown(why) => (why.into(), Some(why.to_string())),
            Pods::Known(_) => (SourceState::Known, None),
        };
        Self { state, why }
    }
}

/// How many objects are in each state.
fn states(look: &Look) -> BTreeMap<&'static str, BTreeMap<&'static str, usize>> {
    let mut states = BTreeMap::new();
    if let Ok(list) = &look.containers {
        let counts = by_state(ContainerState::ALL, &list.rows, |row| row.state);
        states.insert("containers", counts.into());
    }
    if let Ok(list) = &look.sandboxes {
        let counts = by_state(PodSandboxState::ALL, &list.rows, |row| row.state);
        states.insert("sandboxes", counts.into());
    }
    states
}

/// How each list was read, and whether rows may be missing. A list that failed for its size has no mode. Omits
/// lists that could not be read for another reason.
fn lists(look: &Look) -> BTreeMap<&'static str, ListStatus> {
    fn list<T>(part: &LookResult<Listing<T>>, weight: Weight) -> Option<ListStatus> {
        let listed = part.as_ref().ok();
        (listed.is_some() || weight.bytes.is_some()).then(|| ListStatus {
            mode: listed.map(|listed| listed.mode.label()),
            complete: listed.is_some_and(|listed| listed.coverage == Coverage::Whole),
            why: listed.and_then(Listing::doubt),
            bytes: weight.bytes,
            limit_bytes: weight.limit_bytes,
        })
    }
    let weights = look.weights();
    let lists = [
        ("containers", list(&look.containers, weights.containers)),
        ("sandboxes", list(&look.sandboxes, weights.sandboxes)),
        ("images", list(&look.images, weights.images)),
    ];
    lists
        .into_iter()
        .filter_map(|(name, list)| Some((name, list?)))
        .collect()
}

/// What could not be read or written, and why.
fn errors(look: &Look) -> BTreeMap<&'static str, String> {
    let of_lists = look.errors().map(|(part, error)| (part, error.to_string()));
    let runtime = look.runtime.as_ref().err();
    let runtime = runtime.map(|error| ("runtime", error.to_string()));
    let of_logs = [&*look.logs.unread, &*look.logs.unwritable].concat();
    let logs = (!of_logs.is_empty()).then(|| ("logs", of_logs.join("; ")));
    of_lists.chain(runtime).chain(logs).collect()
}

/// What a plan on the look says.
pub(crate) struct PlanStatus {
    removable: BTreeMap<Target, usize>,
    at_risk: BTreeMap<Target, usize>,
    pods: PodsJudgement,
}

fn judge(service: &Service, look: &Look) -> Option<PlanStatus> {
    let snapshot = service.worker.runner().snapshot(look).ok()?;
    let policy = &service.config().policy;
    Some(PlanStatus::of(look, &snapshot, policy))
}

impl PlanStatus {
    /// Plans on a look's snapshot.
    pub(crate) fn of(look: &Look, snapshot: &Snapshot, policy: &Policy) -> Self {
        // Before `knowledge` is built: on a node of 20,000 pods each of them takes some megabytes.
        let at_risk = at_risk(look, snapshot, policy, &Target::ALL.into());
        let knowledge = Knowledge::of(snapshot, policy);
        let counts = gc::plan::summarize(&knowledge, &Target::ALL.into());
        let pods = PodsJudgement::of(&knowledge);
        Self {
            removable: counts
                .into_iter()
                .map(|(target, summary)| (target, summary.remove.values().sum()))
                .collect(),
            at_risk,
            pods,
        }
    }
}
