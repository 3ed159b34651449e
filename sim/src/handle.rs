//! The control side of a simulated node, for tests and the demo; it bypasses the socket.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::builder::PodIds;
use super::conduct::{Cni, Conduct, Fault, FaultKey};
use super::kubelet::{self, KubeletPod};
use super::lifecycle::finished;
use super::node::{ContainerRecord, Node, SandboxRecord};
use super::record::{Call, Rpc};
use super::server;
use super::shared::Shared;
use super::spec::PodSpec;
use crisweep_proto::cri::{self, ContainerState, PodSandboxState};

/// A handle on a simulated runtime. Clones control the same runtime; dropping one does nothing.
#[derive(Clone, Debug)]
pub struct Handle(pub(super) Arc<Shared>);

/// Lifecycle.
impl Handle {
    /// Returns where the socket is.
    pub fn socket(&self) -> &Path {
        &self.0.socket
    }

    /// Returns the socket as an endpoint: `unix://...`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.0.socket.display())
    }

    /// Stops the runtime: removes the socket and breaks each connection. Its content stays.
    pub async fn stop(&self) {
        let task = self.0.lifecycle().stop(&self.0.socket);
        finished(task).await;
    }

    /// Starts the runtime after [`stop`](Self::stop), on a new socket. All calls fail at first, for
    /// `Options::initialization`.
    pub fn start(&self) -> io::Result<()> {
        self.0.initialize_for(self.0.options.initialization);
        server::start(&self.0)
    }

    /// Stops the runtime and starts it again at once.
    pub async fn restart(&self) -> io::Result<()> {
        self.restart_after(Duration::ZERO).await
    }

    /// Stops the runtime and starts it again after this time.
    pub async fn restart_after(&self, down: Duration) -> io::Result<()> {
        self.stop().await;
        sleep(down).await;
        self.start()
    }
}

/// Behaviour. Each change affects calls from then on; hanging calls continue when the cause is cleared.
impl Handle {
    /// Makes an RPC misbehave.
    pub fn set_fault(&self, rpc: Rpc, fault: Fault) {
        self.conduct(|conduct| conduct.faults.insert(FaultKey::Rpc(rpc), fault));
    }

    /// Makes an RPC behave again.
    pub fn clear_fault(&self, rpc: Rpc) {
        self.conduct(|conduct| conduct.faults.remove(&FaultKey::Rpc(rpc)));
    }

    /// Makes the removal of one container, sandbox or image misbehave, by full id: after running containers
    /// were killed, before the record is removed.
    pub fn set_removal_fault(&self, id: &str, fault: Fault) {
        let key = FaultKey::Removal(id.to_owned());
        self.conduct(|conduct| conduct.faults.insert(key, fault));
    }

    /// Makes the status of one container misbehave, by its full id.
    pub fn set_status_fault(&self, id: &str, fault: Fault) {
        let key = FaultKey::Status(id.to_owned());
        self.conduct(|conduct| conduct.faults.insert(key, fault));
    }

    /// Makes the removal behave again.
    pub fn clear_removal_fault(&self, id: &str) {
        self.conduct(|conduct| conduct.faults.remove(&FaultKey::Removal(id.to_owned())));
    }

    /// Sets what the network plugin does for one sandbox, by its full id.
    pub fn set_cni(&self, sandbox_id: &str, cni: Cni) {
        self.conduct(|conduct| conduct.cni.insert(sandbox_id.to_owned(), cni));
    }

    /// Makes the network plugin healthy for all sandboxes.
    pub fn heal_cni(&self) {
        self.conduct(|conduct| {
            conduct.cni.clear();
            conduct.cni_default = Cni::healthy();
        });
    }

    /// Clears every fault of RPCs and removals.
    pub fn clear_faults(&self) {
        self.conduct(|conduct| conduct.faults.clear());
    }

    /// Changes how the runtime behaves.
    pub fn conduct<T>(&self, change: impl FnOnce(&mut Conduct) -> T) {
        self.0.conduct.send_modify(|conduct| {
            change(conduct);
        });
    }
}

/// The node's content.
impl Handle {
    /// Reads the node, which is locked meanwhile, so be quick.
    pub fn look<T>(&self, look: impl FnOnce(&Node) -> T) -> T {
        look(&self.0.node())
    }

    /// Returns the id of the container called `namespace/pod/container#attempt`.
    pub fn container_id(&self, subject: &str) -> Option<String> {
        self.look(|node| {
            let found = node.containers.values().find(|it| it.subject == subject);
            found.map(|it| it.row.id.clone())
        })
    }

    /// Returns the id of the sandbox called `namespace/pod#attempt`.
    pub fn sandbox_id(&self, subject: &str) -> Option<String> {
        self.look(|node| {
            let found = node.sandboxes.values().find(|it| it.subject == subject);
            found.map(|it| it.row.id.clone())
        })
    }

    /// Returns the UID of the pod that the kubelet knows as `namespace/name`.
    pub fn pod_uid(&self, subject: &str) -> Option<String> {
        self.look(|node| node.pod_uid(subject))
    }

    /// Returns every container, by id.
    pub fn containers(&self) -> Vec<ContainerRecord> {
        self.look(|node| node.containers.values().cloned().collect())
    }

    /// Returns a container by its full id.
    pub fn container(&self, id: &str) -> Option<ContainerRecord> {
        self.look(|node| node.containers.get(id).cloned())
    }

    /// Returns every sandbox, by id.
    pub fn sandboxes(&self) -> Vec<SandboxRecord> {
        self.look(|node| node.sandboxes.values().cloned().collect())
    }

    /// Returns a sandbox by its full id.
    pub fn sandbox(&self, id: &str) -> Option<SandboxRecord> {
        self.look(|node| node.sandboxes.get(id).cloned())
    }

    /// Returns every image, by id.
    pub fn images(&self) -> Vec<cri::Image> {
        self.look(|node| node.images.values().cloned().collect())
    }

    /// Returns the id of the image of this tag.
    pub fn image_id(&self, tag: &str) -> Option<String> {
        self.look(|node| node.find_image(tag).map(|image| image.id.clone()))
    }

    /// Returns how many containers are in this state.
    pub fn count_containers(&self, state: ContainerState) -> usize {
        let is_in = |it: &&ContainerRecord| it.row.state() == state;
        self.look(|node| node.containers.values().filter(is_in).count())
    }

    /// Returns how many sandboxes are in this state.
    pub fn count_sandboxes(&self, state: PodSandboxState) -> usize {
        let is_in = |it: &&SandboxRecord| it.row.state() == state;
        self.look(|node| node.sandboxes.values().filter(is_in).count())
    }

    /// Returns the pods that the kubelet knows.
    pub fn pods(&self) -> Vec<KubeletPod> {
        self.look(|node| node.pods.values().cloned().collect())
    }

    /// Returns the present answer of the kubelet's `/pods`.
    pub fn pods_json(&self) -> String {
        self.look(|node| kubelet::pods_json(&node.pods))
    }
}

/// The recorded calls.
impl Handle {
    /// Returns the changing calls, in the order of their arrival.
    pub fn calls(&self) -> Vec<Call> {
        self.0.record().calls.iter().cloned().collect()
    }

    /// Returns the changing calls of one RPC.
    pub fn calls_of(&self, rpc: Rpc) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.rpc == rpc);
        calls
    }

    /// Returns the calls that did harm.
    pub fn harmful_calls(&self) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| !call.harms.is_empty());
        calls
    }

    /// Returns the total number of harms, including those of forgotten calls.
    pub fn harm_count(&self) -> u64 {
        self.0.record().harmful
    }

    /// Returns how often an RPC was called, whatever the result.
    pub fn call_count(&self, rpc: Rpc) -> u64 {
        let record = self.0.record();
        record.counts.get(&rpc).copied().unwrap_or_default()
    }

    /// Returns how many calls were of RPCs that the simulated runtime lacks, such as those that create.
    pub fn unknown_calls(&self) -> u64 {
        self.0.record().unknown
    }

    /// Returns the `grpc-timeout` of the last call of an RPC that had one.
    pub fn last_deadline(&self, rpc: Rpc) -> Option<String> {
        self.0.record().deadlines.get(&rpc).cloned()
    }

    /// Returns how many removals are in flight.
    pub fn removals_in_flight(&self) -> usize {
        self.0.record().in_flight
    }

    /// Returns the largest number of concurrent removals.
    pub fn peak_removals_in_flight(&self) -> usize {
        self.0.record().peak_in_flight
    }

    /// Forgets calls, counts and harm so far.
    pub fn clear_record(&self) {
        self.0.record().clear();
    }
}

/// Events on the node.
impl Handle {
    /// Adds a pod with its present state, at the kubelet and in the runtime.
    pub fn add_pod(&self, spec: &PodSpec) -> PodIds {
        self.0.change(|node| node.add_pod(spec, Timestamp::now()))
    }

    /// Changes the node in one step, so that no call sees an intermediate state.
    pub fn change<T>(&self, change: impl FnOnce(&mut Node) -> T) -> T {
        self.0.change(change)
    }
}
