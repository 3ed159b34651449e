//! The nodes of the benches, each made once: their lists on the wire, what the planner sees, a look, its page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use crisweep::gc::Summary;
use crisweep::gc::knowledge::SourceState;
use crisweep::metrics::Metrics;
use crisweep::metrics::scrape::{Format, NodePart, PageInput};
use crisweep::model::{
    ConfigSource, Container, ContainerState, Coverage, Filesystems, ListCoverage, PodHistory,
    PodList, PodOrigin, PodSandbox, PodUid, Pods, Rows, Snapshot, SourcePod, Target,
};
use crisweep::runtime::{ListMode, Listing, Version};
use crisweep::snapshot::{Look, Timings};
use crisweep_proto::cri;
use crisweep_sim::{Handle, Phase};
use jiff::SignedDuration;
use prost::Message;
use tokio::runtime::Runtime;

use crate::node;
use crate::rows::rows;

/// A node on the wire and for the planner; made once per size.
pub(crate) struct Fixture {
    pub(crate) containers: Bytes,
    pub(crate) sandboxes: Bytes,
    pub(crate) snapshot: Snapshot,
}

/// Returns the node of that size.
pub(crate) fn fixture(size: usize) -> &'static Fixture {
    static MADE: Mutex<BTreeMap<usize, &'static Fixture>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(size).or_insert_with(|| {
        let _entered = Box::leak(Box::new(runtime())).enter();
        let served = node::serve(node::node(size, node::now()), false);
        Box::leak(Box::new(Fixture {
            containers: node::containers_answer(&served.sim).into(),
            sandboxes: sandboxes_answer(&served.sim).into(),
            snapshot: snapshot(&served.sim),
        }))
    })
}

/// Returns the answer to `ListPodSandbox` as it crosses the wire.
fn sandboxes_answer(sim: &Handle) -> Vec<u8> {
    let rows = sim.sandboxes().into_iter().map(|record| record.row);
    let items = rows.collect();
    cri::ListPodSandboxResponse { items }.encode_to_vec()
}

/// Returns the planning snapshot of the node, with exit times and a complete pod list.
fn snapshot(sim: &Handle) -> Snapshot {
    // As the client does: both lists share their pods and ids.
    let shared = Arc::default();
    let containers = node::containers_answer(sim).into();
    let containers = rows::<cri::ContainerRow>(containers, &shared);
    let sandboxes = sandboxes_answer(sim).into();
    let sandboxes = rows::<cri::PodSandboxRow>(sandboxes, &shared);
    let mut containers: Vec<Container> = containers.rows;
    let sandboxes: Vec<PodSandbox> = sandboxes.rows;
    for container in &mut containers {
        let exited = container.state == ContainerState::Exited;
        container.finished_at =
            exited.then(|| container.created_at + SignedDuration::from_secs(10));
    }
    let pods = sim.pods().into_iter().filter_map(|pod| {
        let finished = matches!(pod.phase, Phase::Succeeded | Phase::Failed);
        let config_source = if pod.is_static {
            ConfigSource::File
        } else {
            ConfigSource::Api
        };
        Some((
            PodUid::new(pod.uid)?,
            SourcePod {
                finished,
                config_source,
            },
        ))
    });
    // Each pod has been finished or absent for an hour.
    let long_ago = node::now() - SignedDuration::from_hours(1);
    let history = PodHistory {
        absent_since: Some(long_ago),
        over_since: Some(long_ago),
        config_source: None,
    };
    let uids = sandboxes
        .iter()
        .filter_map(|it| Some(it.pod.as_ref()?.uid.clone()));
    Snapshot {
        pod_history: Arc::new(uids.map(|uid| (uid, history)).collect()),
        containers: containers.into(),
        sandboxes: sandboxes.into(),
        seen: ListCoverage::default(),
        pods: Pods::Known(PodList {
            pods: pods.collect(),
            ..PodList::default()
        }),
        ..Snapshot::empty(node::now())
    }
}

/// Returns the targets that depend on the size of the node.
pub(crate) fn both() -> BTreeSet<Target> {
    [Target::Containers, Target::Sandboxes].into()
}

/// Returns a runtime with as many workers as the service has.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a tokio runtime")
}

/// Writes the metrics page of a look.
pub(crate) fn render(
    look: &Look,
    plan: &BTreeMap<Target, Summary>,
    metrics: &Metrics,
    format: Format,
) -> Result<String, fmt::Error> {
    let input = PageInput {
        look: Some((look, SourceState::Known)),
        version: None,
        plan: Some(plan),
        quarantined: &BTreeMap::new(),
        thresholds: &crisweep::config::Thresholds::default(),
    };
    crisweep::metrics::scrape::render(&NodePart::of(&input)?, metrics, format)
}

/// Returns the look that sees the node.
pub(crate) fn look(fixture: &Fixture) -> Look {
    let snapshot = &fixture.snapshot;
    let millis = Duration::from_millis(10);
    Look {
        uptime: Duration::MAX,
        pod_history: Arc::default(),
        outage: None,
        taken_at: snapshot.taken_at,
        started: tokio::time::Instant::now(),
        duration: millis,
        runtime: Ok(Version {
            runtime: "containerd".to_owned(),
            version: "1.7.24".to_owned(),
        }),
        containers: Ok(listed(
            snapshot.containers.clone(),
            fixture.containers.len(),
        )),
        sandboxes: Ok(listed(snapshot.sandboxes.clone(), fixture.sandboxes.len())),
        images: Ok(listed(Rows::default(), 0)),
        store: snapshot.images.clone(),
        filesystems: Ok(Filesystems::default()),
        logs: snapshot.logs.clone(),
        pods: Pods::clone(&snapshot.pods),
        pod_origin: PodOrigin::default(),
        exits_unknown: 0,
        last_exits: Arc::default(),
        timings: Timings {
            containers: millis,
            ..Timings::default()
        },
    }
}

fn listed<T>(rows: Rows<T>, response_bytes: usize) -> Listing<T> {
    Listing {
        rows,
        malformed: 0,
        mounted: BTreeMap::new(),
        odd: 0,
        coverage: Coverage::Whole,
        whole_pods: BTreeSet::new(),
        cut_short: false,
        limit_bytes: None,
        response_bytes: response_bytes as u64,
        mode: ListMode::Unary,
    }
}
