//! Builds a node from specifications; its rows weigh as much as real ones.

use std::time::Duration;

use jiff::Timestamp;

use super::kubelet::KubeletPod;
use super::node::{self, ContainerRecord, Node, SandboxRecord, nanoseconds};
use super::rows;
use super::spec::{ContainerSpec, DEFAULT_IMAGE, PodSpec, SandboxSpec};
use crisweep_proto::cri::{self, ContainerState, PodSandboxState};

/// The default sandbox image.
pub const SANDBOX_IMAGE: &str = "registry.k8s.io/pause:3.9";

const MIB: u64 = 1 << 20;

/// Builds a [`Node`]. The same seed and steps give the same ids.
#[derive(Debug)]
#[must_use]
pub struct NodeBuilder {
    node: Node,
    at: Timestamp,
}

/// The ids of a pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodIds {
    /// Its UID.
    pub uid: String,
    /// Its sandboxes' ids, in the order of the specification.
    pub sandboxes: Vec<String>,
    /// Its containers' ids, likewise.
    pub containers: Vec<String>,
}

impl Default for NodeBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl NodeBuilder {
    /// Starts with seed 1, the sandbox image (pinned) and [`DEFAULT_IMAGE`].
    pub fn new() -> Self {
        Self::seeded(1)
    }

    /// Starts with this seed.
    pub fn seeded(seed: u64) -> Self {
        let node = Node::empty(seed, SANDBOX_IMAGE, "/var/log/pods");
        let builder = Self {
            node,
            at: Timestamp::now(),
        };
        builder
            .image_with(SANDBOX_IMAGE, MIB / 2, true)
            .image(DEFAULT_IMAGE, 80 * MIB)
    }

    /// Sets the time from which ages count back, for every pod added later.
    pub fn at(mut self, now: Timestamp) -> Self {
        self.at = now;
        self
    }

    /// Sets the log directory that the runtime reports; nothing is written there.
    pub fn log_root(mut self, root: &str) -> Self {
        root.clone_into(&mut self.node.log_root);
        self
    }

    /// Adds a pod.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "so that specifications chain without `&`"
    )]
    pub fn pod(mut self, spec: PodSpec) -> Self {
        self.node.add_pod(&spec, self.at);
        self
    }

    /// Adds `count` pods, each made from its number.
    pub fn pods(self, count: usize, make: impl Fn(usize) -> PodSpec) -> Self {
        (0..count).fold(self, |builder, number| builder.pod(make(number)))
    }

    /// Adds an image under one tag.
    pub fn image(self, tag: &str, size_bytes: u64) -> Self {
        self.image_with(tag, size_bytes, false)
    }

    /// Changes an existing image, by any of its names.
    pub fn edit_image(mut self, image: &str, edit: impl FnOnce(&mut cri::Image)) -> Self {
        self.node.edit_image(image, edit);
        self
    }

    /// Configures another sandbox image for later sandboxes; existing ones keep theirs.
    pub fn sandbox_image(mut self, tag: &str, size_bytes: u64) -> Self {
        tag.clone_into(&mut self.node.sandbox_image);
        self.image_with(tag, size_bytes, false)
    }

    /// Returns the node.
    pub fn build(self) -> Node {
        self.node
    }

    fn image_with(mut self, tag: &str, size: u64, pinned: bool) -> Self {
        let id = self.node.ensure_image(tag);
        if let Some(image) = self.node.images.get_mut(&id) {
            image.size = size;
            image.pinned = pinned;
        }
        self
    }
}

impl Node {
    /// Adds a pod as of the time `at`.
    pub(super) fn add_pod(&mut self, spec: &PodSpec, at: Timestamp) -> PodIds {
        let made = if spec.is_static {
            self.ids.hash()
        } else {
            self.ids.uuid()
        };
        let uid = spec.uid.clone().unwrap_or(made);
        let oldest = spec
            .sandboxes()
            .map(SandboxSpec::age)
            .max()
            .unwrap_or_default();
        if spec.at_kubelet {
            let pod = KubeletPod {
                namespace: spec.namespace.clone(),
                name: spec.name.clone(),
                uid: uid.clone(),
                is_static: spec.is_static,
                phase: spec.phase,
                created_at: before(at, oldest),
            };
            self.pods.insert(uid.clone(), pod);
        }
        if spec.unsynced {
            self.unsynced.insert(uid.clone());
        }
        let mut ids = PodIds {
            uid: uid.clone(),
            ..PodIds::default()
        };
        for sandbox in spec.sandboxes() {
            let sandbox_id = self.add_sandbox(spec, sandbox, &uid, at);
            for container in &sandbox.containers {
                let pod = rows::Pod {
                    spec,
                    uid: &uid,
                    sandbox_id: &sandbox_id,
                };
                ids.containers.push(self.add_container(&pod, container, at));
            }
            if let Some(cni) = spec.cni {
                self.cni.insert(sandbox_id.clone(), cni);
            }
            ids.sandboxes.push(sandbox_id);
        }
        ids
    }

    fn add_sandbox(
        &mut self,
        spec: &PodSpec,
        sandbox: &SandboxSpec,
        uid: &str,
        at: Timestamp,
    ) -> String {
        let id = self.ids.digest();
        let created_at = before(at, sandbox.age());
        let state = if sandbox.ready {
            PodSandboxState::SandboxReady
        } else {
            PodSandboxState::SandboxNotready
        };
        let row = cri::PodSandbox {
            id: id.clone(),
            metadata: Some(cri::PodSandboxMetadata {
                name: spec.name.clone(),
                uid: uid.to_owned(),
                namespace: spec.namespace.clone(),
                attempt: sandbox.attempt,
            }),
            state: state.into(),
            created_at: nanoseconds(created_at),
            labels: rows::sandbox_labels(spec, uid),
            annotations: rows::sandbox_annotations(spec, uid, &mut self.ids, created_at),
            runtime_handler: String::new(),
        };
        let record = SandboxRecord {
            row,
            host_network: spec.host_network,
            subject: format!("{}/{}#{}", spec.namespace, spec.name, sandbox.attempt),
            log_directory: format!("{}/{}_{}_{uid}", self.log_root, spec.namespace, spec.name),
            made_from: self.sandbox_image.clone(),
            network_is_down: false,
            removals_at_network: 0,
            is_note_only: false,
        };
        self.sandboxes.insert(id.clone(), record);
        id
    }

    /// Adds a container to an existing sandbox.
    pub(super) fn add_container(
        &mut self,
        pod: &rows::Pod<'_>,
        spec: &ContainerSpec,
        at: Timestamp,
    ) -> String {
        let image_id = self.ensure_image(&spec.image);
        let volumes = spec.image_volumes.iter();
        let volume_images = volumes.map(|tag| self.ensure_image(tag)).collect();
        let id = self.ids.digest();
        let when = |ago: Option<Duration>| ago.map_or(0, |ago| nanoseconds(before(at, ago)));
        let directory = self
            .sandboxes
            .get(pod.sandbox_id)
            .map(|s| s.log_directory.clone());
        let directory = directory.unwrap_or_default();
        let pod_name = format!("{}/{}", pod.spec.namespace, pod.spec.name);
        let record = ContainerRecord {
            row: cri::Container {
                id: id.clone(),
                pod_sandbox_id: pod.sandbox_id.to_owned(),
                metadata: Some(cri::ContainerMetadata {
                    name: spec.name.clone(),
                    attempt: spec.attempt,
                }),
                image: Some(rows::image_spec(&image_id, &spec.image)),
                image_ref: image_id,
                state: spec.state.into(),
                created_at: when(Some(spec.created)),
                labels: rows::container_labels(pod, &spec.name),
                annotations: rows::container_annotations(pod, spec, &mut self.ids),
                image_id: String::new(),
            },
            started_at: when(spec.started),
            finished_at: when(spec.finished),
            exit_code: spec.exit_code,
            reason: spec.reason_text().to_owned(),
            log_path: format!("{directory}/{}/{}.log", spec.name, spec.attempt),
            subject: format!("{pod_name}/{}#{}", spec.name, spec.attempt),
            volume_images,
            removing: false,
        };
        self.insert_container(record);
        id
    }

    /// Starts the next attempt of an exited container beside it, as the kubelet does; returns its id.
    pub fn next_attempt(&mut self, id: &str) -> Option<String> {
        let mut next = self.containers.get(id)?.clone();
        if next.row.state() != ContainerState::ContainerExited {
            return None;
        }
        let now = node::now();
        next.row.id = self.ids.digest();
        next.row.set_state(ContainerState::ContainerRunning);
        next.row.created_at = now;
        let metadata = next.row.metadata.as_mut()?;
        metadata.attempt += 1;
        let attempt = metadata.attempt;
        rows::set_restart_count(&mut next.row, attempt);
        (next.started_at, next.finished_at, next.exit_code) = (now, 0, 0);
        next.reason.clear();
        next.removing = false;
        let (directory, _) = next.log_path.rsplit_once('/')?;
        next.log_path = format!("{directory}/{attempt}.log");
        let (subject, _) = next.subject.rsplit_once('#')?;
        next.subject = format!("{subject}#{attempt}");
        let new_id = next.row.id.clone();
        self.insert_container(next);
        Some(new_id)
    }

    /// Returns the id of the image with this tag; adds the image if it is missing.
    pub(super) fn ensure_image(&mut self, tag: &str) -> String {
        if let Some(image) = self.find_image(tag) {
            return image.id.clone();
        }
        let id = format!("sha256:{}", self.ids.digest());
        let repository = tag
            .rsplit_once(':')
            .map_or(tag, |(repository, _)| repository);
        let digest = format!("{repository}@sha256:{}", self.ids.digest());
        let image = cri::Image {
            id: id.clone(),
            repo_tags: vec![tag.to_owned()],
            repo_digests: vec![digest],
            size: 60 * MIB,
            spec: None,
            pinned: false,
        };
        self.images.insert(id.clone(), image);
        id
    }
}

fn before(at: Timestamp, ago: Duration) -> Timestamp {
    at.checked_sub(ago).unwrap_or(Timestamp::MIN)
}
