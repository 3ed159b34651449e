//! The nodes of the benches, each made once.

use crisweep_proto::cri;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use crisweep::model::{
    ConfigSource, Container, ContainerState, PodHistory, PodList, PodSandbox, PodUid, Pods, Seen,
    Snapshot, SourcePod,
};
use crisweep::runtime::codec;
use crisweep_sim::{Handle, Phase};
use jiff::SignedDuration;
use prost::Message;

use crate::{node, runtime};

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
    let containers = codec::read::<cri::ContainerRow>(node::containers_answer(sim).into());
    let sandboxes = codec::read::<cri::PodSandboxRow>(sandboxes_answer(sim).into());
    let mut containers: Vec<Container> = containers.expect("a list of containers").rows;
    let sandboxes: Vec<PodSandbox> = sandboxes.expect("a list of sandboxes").rows;
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
        pod_history: uids.map(|uid| (uid, history)).collect(),
        containers: containers.into(),
        sandboxes: sandboxes.into(),
        seen: Seen::default(),
        pods: Pods::Known(PodList {
            pods: pods.collect(),
            ..PodList::default()
        }),
        ..Snapshot::empty(node::now())
    }
}
