//! The node, runtime and settings with which each RPC is called. Exhaustive: a new RPC of the simulated
//! runtime must be tested here.

use crisweep_proto::cri::{ContainerState, ListContainersResponse};
use crisweep_sim::{DEFAULT_IMAGE, Fault, NodeBuilder, Options, PodSpec, Rpc, hours};
use prost::Message;
use serde_json::{Value, json};
use tonic::Code;

use crate::support::{Rig, nodes};

/// When crisweep calls an RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// On any node with deleted pods, in looks and passes.
    Usual,
    /// If lists are streamed.
    Streams,
    /// If the exited containers alone are over the message limit.
    OverLimit,
    /// If the runtime requires sandboxes to be stopped before their removal.
    StopsFirst,
    /// If containers in state UNKNOWN may be removed.
    StateUnknown,
    /// If there are unused images.
    UnusedImages,
}

pub(super) fn occasion(rpc: Rpc) -> Occasion {
    match rpc {
        Rpc::Version
        | Rpc::Status
        | Rpc::ListContainers
        | Rpc::ContainerStatus
        | Rpc::RemoveContainer
        | Rpc::ListPodSandbox
        | Rpc::PodSandboxStatus
        | Rpc::RemovePodSandbox
        | Rpc::ListImages
        | Rpc::ImageFsInfo => Occasion::Usual,
        Rpc::StreamContainers | Rpc::StreamPodSandboxes | Rpc::StreamImages => Occasion::Streams,
        Rpc::ContainersListStream => Occasion::OverLimit,
        Rpc::StopPodSandbox => Occasion::StopsFirst,
        Rpc::StopContainer => Occasion::StateUnknown,
        Rpc::RemoveImage => Occasion::UnusedImages,
    }
}

/// Returns the RPCs of the selected occasions.
pub(super) fn asked(wanted: impl Fn(Occasion) -> bool) -> Vec<Rpc> {
    let called = |rpc: &Rpc| wanted(occasion(*rpc));
    Rpc::ALL.iter().copied().filter(called).collect()
}

/// Starts the service in a situation in which it calls this RPC, which has a fault from the first pass on.
pub(super) async fn rig(rpc: Rpc, mut changes: Value, fault: Fault) -> Rig {
    let occasion = occasion(rpc);
    if occasion == Occasion::StateUnknown {
        // It is young when it was stopped and not removed.
        let containers = json!({ "include_unknown": true, "min_age": "0s" });
        changes["policy"] = json!({ "containers": containers });
    }
    if occasion == Occasion::UnusedImages {
        let images = json!({ "min_age": "0s", "max_age": "1ms" });
        changes["policy"] = json!({ "images": images });
    }
    let options = match occasion {
        Occasion::Streams => Options::containerd_2_4(),
        Occasion::Usual
        | Occasion::OverLimit
        | Occasion::StopsFirst
        | Occasion::StateUnknown
        | Occasion::UnusedImages => Options::default(),
    };
    let rig = Rig::with(node(occasion).build(), options, changes).await;
    if occasion == Occasion::OverLimit {
        rig.sim
            .conduct(|it| it.send_limit_bytes = weigh_exited(&rig) - 1);
    }
    if occasion == Occasion::StopsFirst {
        let wants = "the sandbox must be stopped first";
        let wants = Fault::fail(Code::FailedPrecondition, wants);
        rig.sim.set_fault(Rpc::RemovePodSandbox, wants);
    }
    rig.sim.set_fault(rpc, fault);
    rig
}

fn node(occasion: Occasion) -> NodeBuilder {
    let node = nodes::litter(3);
    match occasion {
        Occasion::StateUnknown => {
            let lost = PodSpec::new("lost").unknown("app", 0, hours(3));
            node.pod(lost.deleted())
        }
        Occasion::UnusedImages => {
            let node = node.image(DEFAULT_IMAGE, 1 << 20);
            node.image("registry.example/idle:1", 4 << 20)
        }
        Occasion::Usual | Occasion::Streams | Occasion::OverLimit | Occasion::StopsFirst => node,
    }
}

fn weigh_exited(rig: &Rig) -> usize {
    let rows = rig.sim.containers().into_iter().map(|record| record.row);
    let is_exited = |state| state == ContainerState::ContainerExited;
    let containers = rows.filter(|row| is_exited(row.state())).collect();
    ListContainersResponse { containers }.encoded_len()
}

/// Asserts that the fault was hit, and that crisweep called no RPC that creates: the simulated runtime has none.
#[track_caller]
pub(super) fn assert_met(rig: &Rig, rpc: Rpc) {
    assert!(rig.sim.call_count(rpc) > 0, "{rpc:?} was not called");
    assert_eq!(rig.sim.unknown_calls(), 0);
}
