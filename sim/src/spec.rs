//! The specification of a pod, for tests and the demo; all times are ages.

use std::collections::BTreeMap;
use std::time::Duration;

use super::conduct::Cni;
use super::kubelet::Phase;
use super::node::reason_of;
use crisweep_proto::cri::ContainerState;

/// The default image of containers, which the node has.
pub const DEFAULT_IMAGE: &str = "registry.example/library/app:1.0";

/// How long a container runs before it exits, unless its creation time is set.
const USUAL_RUN: Duration = Duration::from_secs(10);

/// A container of a [`PodSpec`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ContainerSpec {
    pub(super) name: String,
    pub(super) attempt: u32,
    pub(super) state: ContainerState,
    pub(super) created: Duration,
    pub(super) started: Option<Duration>,
    pub(super) finished: Option<Duration>,
    pub(super) exit_code: i32,
    pub(super) reason: Option<String>,
    pub(super) image: String,
    pub(super) image_volumes: Vec<String>,
}

impl ContainerSpec {
    /// A running container, created this long ago.
    pub fn running(name: &str, attempt: u32, created: Duration) -> Self {
        Self::new(name, attempt, ContainerState::ContainerRunning, created)
    }

    /// A container that exited this long ago with code 0, after a run of 10 s.
    pub fn exited(name: &str, attempt: u32, finished: Duration) -> Self {
        let state = ContainerState::ContainerExited;
        Self {
            finished: Some(finished),
            ..Self::new(name, attempt, state, finished + USUAL_RUN)
        }
    }

    /// A container that was created this long ago and never started.
    pub fn created(name: &str, attempt: u32, created: Duration) -> Self {
        Self::new(name, attempt, ContainerState::ContainerCreated, created)
    }

    /// A container, created this long ago, whose state the runtime does not know.
    pub fn unknown(name: &str, attempt: u32, created: Duration) -> Self {
        Self::new(name, attempt, ContainerState::ContainerUnknown, created)
    }

    fn new(name: &str, attempt: u32, state: ContainerState, created: Duration) -> Self {
        Self {
            name: name.to_owned(),
            attempt,
            state,
            created,
            started: (state != ContainerState::ContainerCreated).then_some(created),
            finished: None,
            exit_code: 0,
            reason: None,
            image: DEFAULT_IMAGE.to_owned(),
            image_volumes: Vec::new(),
        }
    }

    /// Sets the exit code, and the reason that fits it unless the reason is set.
    pub fn exit_code(mut self, code: i32) -> Self {
        self.exit_code = code;
        self
    }

    /// Sets the reason of the exit.
    pub fn reason(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self
    }

    /// Sets when it was created and started, in any state.
    pub fn created_ago(mut self, created: Duration) -> Self {
        self.created = created;
        self.started = self.started.map(|_| created);
        self
    }

    /// Sets its image, by tag; the node adds the image if it is missing.
    pub fn image(mut self, tag: &str) -> Self {
        tag.clone_into(&mut self.image);
        self
    }

    /// Mounts an image as a volume, by tag; the node adds the image if it is missing.
    pub fn image_volume(mut self, tag: &str) -> Self {
        self.image_volumes.push(tag.to_owned());
        self
    }

    pub(super) fn reason_text(&self) -> &str {
        let by_code = self.finished.map_or("", |_| reason_of(self.exit_code));
        self.reason.as_deref().unwrap_or(by_code)
    }
}

/// One sandbox of a [`PodSpec`], with its containers.
#[derive(Clone, Debug)]
pub(super) struct SandboxSpec {
    pub(super) attempt: u32,
    pub(super) ready: bool,
    pub(super) age: Option<Duration>,
    pub(super) containers: Vec<ContainerSpec>,
}

impl SandboxSpec {
    fn ready(attempt: u32) -> Self {
        Self {
            attempt,
            ready: true,
            age: None,
            containers: Vec::new(),
        }
    }

    /// Returns its age: as set, else a little more than its oldest container's, else an hour.
    pub(super) fn age(&self) -> Duration {
        let oldest = self.containers.iter().map(|c| c.created).max();
        let guess = oldest.map_or(Duration::from_secs(3600), |age| {
            age + Duration::from_secs(2)
        });
        self.age.unwrap_or(guess)
    }
}

/// A pod, in the runtime and at the kubelet. By default the kubelet knows it, it runs, and it has one ready
/// sandbox on the pod network.
///
/// Containers go into the last named sandbox.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the pod"
)]
#[must_use]
pub struct PodSpec {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: Option<String>,
    pub(super) is_static: bool,
    pub(super) phase: Phase,
    pub(super) at_kubelet: bool,
    pub(super) managed: bool,
    pub(super) host_network: bool,
    pub(super) cni: Option<Cni>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) first: SandboxSpec,
    pub(super) further: Vec<SandboxSpec>,
    pub(super) leaked: Vec<SandboxSpec>,
    pub(super) has_sandbox: bool,
    pub(super) unsynced: bool,
}

impl PodSpec {
    /// A pod of the namespace `default`.
    pub fn new(name: &str) -> Self {
        Self {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: None,
            is_static: false,
            phase: Phase::Running,
            at_kubelet: true,
            managed: true,
            host_network: false,
            cni: None,
            labels: BTreeMap::new(),
            first: SandboxSpec::ready(0),
            further: Vec::new(),
            leaked: Vec::new(),
            has_sandbox: true,
            unsynced: false,
        }
    }

    /// Sets its namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Sets its UID instead of one made from the node's seed.
    pub fn uid(mut self, uid: &str) -> Self {
        self.uid = Some(uid.to_owned());
        self
    }

    /// Makes it a static pod: its UID has 32 hex digits, and the kubelet reads it from a file.
    pub fn static_pod(mut self) -> Self {
        self.is_static = true;
        self
    }

    /// Sets its phase at the kubelet. The runtime's records do not change.
    pub fn phase(mut self, phase: Phase) -> Self {
        self.phase = phase;
        self
    }

    /// Finishes it: phase Succeeded, the last named sandbox not ready.
    pub fn succeeded(self) -> Self {
        self.phase(Phase::Succeeded).not_ready()
    }

    /// Deletes it at the kubelet; the runtime's records stay, and the last named sandbox is not ready.
    pub fn deleted(mut self) -> Self {
        self.at_kubelet = false;
        self.not_ready()
    }

    /// Leaves its end unsynced by a lagging kubelet (`Options::lagging_kubelet`).
    pub fn unsynced(mut self) -> Self {
        self.unsynced = true;
        self
    }

    /// Hides it from the kubelet; the runtime's records do not change.
    pub fn unknown_to_kubelet(mut self) -> Self {
        self.at_kubelet = false;
        self
    }

    /// Makes it another tool's pod: no kubelet labels, unknown to the kubelet.
    pub fn unmanaged(mut self) -> Self {
        self.managed = false;
        self.at_kubelet = false;
        self
    }

    /// Puts it on the host's network, without CNI.
    pub fn host_network(mut self) -> Self {
        self.host_network = true;
        self
    }

    /// Sets the network plugin's behaviour for each of its sandboxes.
    pub fn cni(mut self, cni: Cni) -> Self {
        self.cni = Some(cni);
        self
    }

    /// Adds a label of the pod, which the runtime shows on its sandboxes.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a ready sandbox with this attempt; the one before it is no longer ready.
    pub fn sandbox(mut self, attempt: u32) -> Self {
        self.current().ready = false;
        self.further.push(SandboxSpec::ready(attempt));
        self
    }

    /// Makes the last named sandbox not ready; its containers keep running.
    pub fn not_ready(mut self) -> Self {
        self.current().ready = false;
        self
    }

    /// Sets how long ago the last named sandbox was created.
    pub fn age(mut self, age: Duration) -> Self {
        self.current().age = Some(age);
        self
    }

    /// Adds an empty sandbox that is not ready, created this long ago.
    pub fn leaked_sandbox(mut self, attempt: u32, age: Duration) -> Self {
        self.leaked.push(SandboxSpec {
            ready: false,
            age: Some(age),
            ..SandboxSpec::ready(attempt)
        });
        self
    }

    /// Leaves only leaked sandboxes in the runtime; the kubelet still knows the pod.
    pub fn without_sandbox(mut self) -> Self {
        self.has_sandbox = false;
        self
    }

    /// Adds a container.
    pub fn container(mut self, container: ContainerSpec) -> Self {
        self.current().containers.push(container);
        self
    }

    /// Adds a container that has been running for an hour.
    pub fn running(self, name: &str, attempt: u32) -> Self {
        self.container(ContainerSpec::running(
            name,
            attempt,
            Duration::from_secs(3600),
        ))
    }

    /// Adds a container that exited with code 0 this long ago.
    pub fn exited(self, name: &str, attempt: u32, finished: Duration) -> Self {
        self.container(ContainerSpec::exited(name, attempt, finished))
    }

    /// Adds a container that exited with code 1 this long ago.
    pub fn failed(self, name: &str, attempt: u32, finished: Duration) -> Self {
        self.container(ContainerSpec::exited(name, attempt, finished).exit_code(1))
    }

    /// Adds a container that was created this long ago and never started.
    pub fn created(self, name: &str, attempt: u32, created: Duration) -> Self {
        self.container(ContainerSpec::created(name, attempt, created))
    }

    /// Adds a container of unknown state, created this long ago.
    pub fn unknown(self, name: &str, attempt: u32, created: Duration) -> Self {
        self.container(ContainerSpec::unknown(name, attempt, created))
    }

    pub(super) fn sandboxes(&self) -> impl Iterator<Item = &SandboxSpec> {
        let own = std::iter::once(&self.first).chain(&self.further);
        own.filter(|_| self.has_sandbox).chain(&self.leaked)
    }

    fn current(&mut self) -> &mut SandboxSpec {
        self.further.last_mut().unwrap_or(&mut self.first)
    }
}

/// Returns a number of seconds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns a number of minutes.
pub const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

/// Returns a number of hours.
pub const fn hours(count: u64) -> Duration {
    Duration::from_secs(count * 3600)
}
