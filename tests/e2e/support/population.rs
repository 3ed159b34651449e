//! Makes planned pods through CRI as the kubelet would, and remembers them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crisweep::model::ConfigSource;
use crisweep_proto::cri::{
    ContainerConfig, ContainerMetadata, ContainerState, ImageSpec, LinuxContainerConfig,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata, PodSandboxState,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;

use super::cri::Cri;
use super::node::{BUSYBOX_IMAGE, Node};
use super::plan::{ContainerPlan, End, Fate, Known, Network, PodPlan, SandboxPlan};
use super::wait::{PATIENCE, wait_for};

/// Pods made at a time. More is not faster on two cores.
const AT_A_TIME: usize = 6;

/// A container that was made.
#[derive(Clone, Debug)]
pub(crate) struct MadeContainer {
    pub(crate) id: String,
    pub(crate) plan: ContainerPlan,
}

/// A sandbox that was made.
#[derive(Clone, Debug)]
pub(crate) struct MadeSandbox {
    pub(crate) id: String,
    pub(crate) plan: SandboxPlan,
    pub(crate) containers: Vec<MadeContainer>,
}

/// A pod that was made.
#[derive(Clone, Debug)]
pub(crate) struct MadePod {
    pub(crate) plan: PodPlan,
    pub(crate) sandboxes: Vec<MadeSandbox>,
}

impl MadePod {
    /// Returns its containers over all its sandboxes, in the order in which they were made.
    pub(crate) fn containers(&self) -> impl Iterator<Item = &MadeContainer> {
        self.sandboxes
            .iter()
            .flat_map(|sandbox| &sandbox.containers)
    }

    /// Says whether a container is the newest of its name.
    pub(crate) fn is_newest(&self, container: &MadeContainer) -> bool {
        let plan = &container.plan;
        !self
            .containers()
            .any(|o| o.plan.name == plan.name && o.plan.attempt > plan.attempt)
    }
}

/// Everything that was made on a node.
#[derive(Clone, Debug)]
pub(crate) struct Population {
    pub(crate) pods: Vec<MadePod>,
}

impl Population {
    /// Makes all pods, some at a time, and waits until each has reached its final state.
    pub(crate) async fn make(node: &Node, plans: Vec<PodPlan>) -> Self {
        let cri = node.cri().await;
        let cri = &cri;
        let pods = stream::iter(plans)
            .map(|plan| async move { Ok::<_, ()>(make_pod(node, cri, plan).await) })
            .buffered(AT_A_TIME)
            .try_collect()
            .await
            .unwrap();
        Self { pods }
    }

    /// Returns every container with its pod.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (&MadePod, &MadeContainer)> {
        self.pods
            .iter()
            .flat_map(|pod| pod.containers().map(move |container| (pod, container)))
    }

    /// Returns every sandbox with its pod.
    pub(crate) fn sandboxes(&self) -> impl Iterator<Item = (&MadePod, &MadeSandbox)> {
        self.pods
            .iter()
            .flat_map(|pod| pod.sandboxes.iter().map(move |sandbox| (pod, sandbox)))
    }

    /// Returns how many containers should be in a state.
    pub(crate) fn count(&self, state: ContainerState) -> usize {
        self.containers()
            .filter(|(_, container)| container_state(container) == state)
            .count()
    }

    /// Returns how many sandboxes should be in a state.
    pub(crate) fn count_sandboxes(&self, state: PodSandboxState) -> usize {
        self.sandboxes()
            .filter(|(_, sandbox)| sandbox_state(sandbox) == state)
            .count()
    }

    /// Returns the state that each container should be in, by id.
    pub(crate) fn container_states(&self) -> BTreeMap<String, ContainerState> {
        self.containers()
            .map(|(_, c)| (c.id.clone(), container_state(c)))
            .collect()
    }

    /// Returns the state that each sandbox should be in, by id.
    pub(crate) fn sandbox_states(&self) -> BTreeMap<String, PodSandboxState> {
        self.sandboxes()
            .map(|(_, s)| (s.id.clone(), sandbox_state(s)))
            .collect()
    }

    /// Writes the pod source's answer, in the shape of the kubelet's `/pods`, in one step.
    pub(crate) fn write_pods_file(&self, path: &Path) {
        let items: Vec<_> = self.pods.iter().filter_map(pod_json).collect();
        let list = json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
        let fresh = path.with_extension("new");
        fs::write(&fresh, list.to_string()).unwrap();
        fs::rename(&fresh, path).unwrap();
    }
}

fn container_state(container: &MadeContainer) -> ContainerState {
    match container.plan.end {
        End::Created => ContainerState::ContainerCreated,
        End::Runs => ContainerState::ContainerRunning,
        End::Exits(_) => ContainerState::ContainerExited,
    }
}

fn sandbox_state(sandbox: &MadeSandbox) -> PodSandboxState {
    match sandbox.plan.fate {
        Fate::Ready => PodSandboxState::SandboxReady,
        Fate::Stopped | Fate::PauseKilled => PodSandboxState::SandboxNotready,
    }
}

fn pod_json(pod: &MadePod) -> Option<serde_json::Value> {
    let phase = match pod.plan.known {
        Known::Active => "Running",
        Known::Succeeded | Known::StaticSucceeded => "Succeeded",
        Known::Absent | Known::StaticAbsent | Known::Unmanaged => return None,
    };
    Some(json!({
        "metadata": {
            "uid": pod.plan.uid,
            "name": pod.plan.name,
            "namespace": pod.plan.namespace,
            "annotations": { ConfigSource::ANNOTATION: source_of(&pod.plan) },
        },
        "status": { "phase": phase },
    }))
}

/// The pod's source at the kubelet.
fn source_of(pod: &PodPlan) -> &'static str {
    match pod.known {
        Known::StaticSucceeded | Known::StaticAbsent => "file",
        Known::Active | Known::Succeeded | Known::Absent | Known::Unmanaged => "api",
    }
}

async fn make_pod(node: &Node, cri: &Cri, plan: PodPlan) -> MadePod {
    let mut sandboxes = Vec::new();
    for sandbox in &plan.sandboxes {
        sandboxes.push(make_sandbox(node, cri, &plan, sandbox).await);
    }
    MadePod { plan, sandboxes }
}

async fn make_sandbox(node: &Node, cri: &Cri, pod: &PodPlan, plan: &SandboxPlan) -> MadeSandbox {
    let config = sandbox_config(node, pod, plan);
    let id = cri.run_sandbox(&config).await;
    let mut containers = Vec::new();
    for container in &plan.containers {
        // As the kubelet does.
        let log_directory = PathBuf::from(&config.log_directory).join(&container.name);
        fs::create_dir_all(log_directory).unwrap();
        let made = container_config(pod, container);
        let container_id = cri.create_container(&id, &config, made).await;
        if container.end != End::Created {
            cri.start_container(&container_id).await;
        }
        containers.push(MadeContainer {
            id: container_id,
            plan: container.clone(),
        });
    }
    for container in &containers {
        if let End::Exits(code) = container.plan.end {
            wait_for_exit(cri, &container.id, code).await;
        }
    }
    match plan.fate {
        Fate::Ready => {}
        Fate::Stopped => cri.stop_sandbox(&id).await,
        Fate::PauseKilled => kill_pause_process(node, cri, &id).await,
    }
    MadeSandbox {
        id,
        plan: plan.clone(),
        containers,
    }
}

async fn wait_for_exit(cri: &Cri, id: &str, code: u8) {
    wait_for("a container to end", PATIENCE, || async {
        let status = cri
            .container_status(id)
            .await
            .map_err(|status| status.to_string())?;
        if status.state() != ContainerState::ContainerExited {
            return Err(format!("{status:?}"));
        }
        assert_eq!(status.exit_code, i32::from(code), "{status:?}");
        Ok(())
    })
    .await;
}

/// Kills the process in the sandbox's own control group; containers have their own groups.
async fn kill_pause_process(node: &Node, cri: &Cri, sandbox_id: &str) {
    let pids = node.cgroups().processes(sandbox_id);
    assert_eq!(pids.len(), 1, "the pause process of {sandbox_id}: {pids:?}");
    let killed = Command::new("kill")
        .arg("-KILL")
        .arg(pids[0].to_string())
        .status()
        .unwrap();
    assert!(killed.success());
    wait_for("the sandbox to be seen as dead", PATIENCE, || async {
        let sandboxes = cri.sandboxes().await;
        let sandbox = sandboxes
            .into_iter()
            .find(|sandbox| sandbox.id == sandbox_id)
            .unwrap();
        match sandbox.state() {
            PodSandboxState::SandboxNotready => Ok(()),
            PodSandboxState::SandboxReady => Err(format!("{sandbox:?}")),
        }
    })
    .await;
}

fn sandbox_config(node: &Node, pod: &PodPlan, plan: &SandboxPlan) -> PodSandboxConfig {
    // A pod on the host's network has no host name of its own, and runc refuses one.
    let (network, hostname) = match pod.network {
        Network::Host => (NamespaceMode::Node, String::new()),
        Network::Bridge => (NamespaceMode::Pod, pod.name.clone()),
    };
    let log_directory = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            attempt: plan.attempt,
        }),
        hostname,
        log_directory: node
            .log_root()
            .join(log_directory)
            .to_string_lossy()
            .into_owned(),
        labels: pod_labels(pod),
        annotations: [(
            ConfigSource::ANNOTATION.to_owned(),
            source_of(pod).to_owned(),
        )]
        .into(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: node.cgroups().path(),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(network)),
            }),
        }),
    }
}

fn container_config(pod: &PodPlan, plan: &ContainerPlan) -> ContainerConfig {
    let script = match plan.end {
        End::Created | End::Runs => "exec sleep 2147483647".to_owned(),
        End::Exits(code) => format!("echo {} {} ends; exit {code}", plan.name, plan.attempt),
    };
    let mut labels = pod_labels(pod);
    if pod.known != Known::Unmanaged {
        labels.insert("io.kubernetes.container.name".to_owned(), plan.name.clone());
    }
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: plan.name.clone(),
            attempt: plan.attempt,
        }),
        image: Some(ImageSpec {
            image: pod
                .image
                .clone()
                .unwrap_or_else(|| BUSYBOX_IMAGE.to_owned()),
            ..ImageSpec::default()
        }),
        command: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
        labels,
        annotations: container_annotations(plan),
        log_path: format!("{}/{}.log", plan.name, plan.attempt),
        linux: Some(LinuxContainerConfig {
            security_context: Some(LinuxContainerSecurityContext {
                namespace_options: Some(namespaces(NamespaceMode::Pod)),
                ..LinuxContainerSecurityContext::default()
            }),
        }),
        ..ContainerConfig::default()
    }
}

fn namespaces(network: NamespaceMode) -> NamespaceOption {
    NamespaceOption {
        network: network.into(),
        pid: NamespaceMode::Container.into(),
        ipc: NamespaceMode::Pod.into(),
    }
}

/// Returns the labels that the kubelet puts on a pod's sandboxes and containers.
fn pod_labels(pod: &PodPlan) -> BTreeMap<String, String> {
    if pod.known == Known::Unmanaged {
        return BTreeMap::new();
    }
    [
        ("io.kubernetes.pod.name", &pod.name),
        ("io.kubernetes.pod.namespace", &pod.namespace),
        ("io.kubernetes.pod.uid", &pod.uid),
    ]
    .map(|(key, value)| (key.to_owned(), value.clone()))
    .into()
}

/// Returns the annotations that the kubelet puts on a container.
fn container_annotations(plan: &ContainerPlan) -> BTreeMap<String, String> {
    [
        ("io.kubernetes.container.hash", "e2e00000".to_owned()),
        (
            "io.kubernetes.container.restartCount",
            plan.attempt.to_string(),
        ),
        (
            "io.kubernetes.container.terminationMessagePath",
            "/dev/termination-log".to_owned(),
        ),
        (
            "io.kubernetes.container.terminationMessagePolicy",
            "File".to_owned(),
        ),
        ("io.kubernetes.pod.terminationGracePeriod", "30".to_owned()),
        ("crisweep.test/ballast", "x".repeat(plan.ballast)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}
