//! The node of every bench: an incident's litter in the same proportions at every size. The same size gives
//! the same rows, byte for byte.

use crisweep_proto::cri;
use crisweep_sim::{
    ContainerSpec, Handle, Node, NodeBuilder, Options, PodSpec, Sim, hours, minutes,
};
use jiff::{SignedDuration, Timestamp};
use prost::Message;

/// Far above the weight of 100,000 containers, on both sides: the benches measure sizes, not limits.
pub(crate) const MESSAGE_BYTES_MAX: usize = 512 << 20;
/// Number of containers in one round of [`spec`].
const ROUND_CONTAINERS: usize = 10;
const ROUND_PODS: usize = 4;
const NAMESPACES: usize = 40;

/// The time from which all ages count back.
pub(crate) fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 56)
}

/// Builds a node with this many containers (rounded up to ten) as of `at`: of ten, two run, five are
/// superseded or a deleted pod's, and there are five sandboxes, three of them dead.
pub(crate) fn node(containers: usize, at: Timestamp) -> Node {
    fill(NodeBuilder::new().at(at), containers)
}

/// Builds the same with the settings of a builder.
pub(crate) fn fill(builder: NodeBuilder, containers: usize) -> Node {
    let pods = containers.div_ceil(ROUND_CONTAINERS) * ROUND_PODS;
    builder.pods(pods, spec).build()
}

fn spec(number: usize) -> PodSpec {
    let namespace = format!("team-{:02}", number / ROUND_PODS % NAMESPACES);
    let age = minutes(10 + (number % 5_000) as u64);
    let pod = |kind: &str| PodSpec::new(&format!("{kind}-6d4cf56db6-{number:05}"));
    let pod = match number % ROUND_PODS {
        0 => pod("checkout-service")
            .failed("app", 0, age + hours(3))
            .failed("app", 1, age + hours(2))
            .failed("app", 2, age + hours(1))
            .container(ContainerSpec::running("app", 3, age)),
        1 => pod("nightly-report")
            .exited("prepare", 0, age + minutes(5))
            .exited("report", 0, age)
            .succeeded(),
        2 => pod("preview-branch")
            .failed("web", 0, age + hours(2))
            .failed("web", 1, age + hours(1))
            .exited("sidecar", 0, age)
            .leaked_sandbox(1, age)
            .deleted(),
        _ => pod("inventory-api").container(ContainerSpec::running("app", 0, age)),
    };
    pod.namespace(&namespace)
}

/// A simulated runtime that holds a node.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) sim: Sim,
    _directory: tempfile::TempDir,
}

/// Serves a node on a unix socket. Call it within a tokio runtime.
pub(crate) fn serve(node: Node, streaming: bool) -> Served {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = Options {
        send_limit_bytes: MESSAGE_BYTES_MAX,
        streaming,
        ..Options::default()
    };
    let socket = directory.path().join("cri.sock");
    let sim = Sim::start(socket, node, options).expect("a simulated runtime");
    Served {
        sim,
        _directory: directory,
    }
}

/// Returns the answer to `ListContainers` as it crosses the wire.
pub(crate) fn containers_answer(sim: &Handle) -> Vec<u8> {
    let rows = sim.containers().into_iter().map(|record| record.row);
    let containers = rows.collect();
    cri::ListContainersResponse { containers }.encode_to_vec()
}
