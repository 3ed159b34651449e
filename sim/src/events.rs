//! Events on a node without crisweep: containers start, exit, finish, vanish and leak. Names are
//! `namespace/pod`; objects are named by full id; the result says whether the object existed.

use std::time::Duration;

use jiff::Timestamp;

use super::kubelet::{self, Phase};
use super::node::{EXIT_KILLED, Node, now};
use super::rows;
use super::spec::{ContainerSpec, PodSpec};
use crisweep_proto::cri;
use crisweep_proto::cri::{ContainerState, PodSandboxState};

impl Node {
    /// Returns the answer of the kubelet's `/pods`.
    pub fn pods_json(&self) -> String {
        kubelet::pods_json(&self.pods)
    }

    /// Creates a container in a sandbox, unless there is no such sandbox; returns its id.
    pub fn create_container(&mut self, sandbox_id: &str, name: &str) -> Option<String> {
        let pod = self.sandboxes.get(sandbox_id)?.row.metadata.clone()?;
        let pod = rows::Pod {
            spec: &PodSpec::new(&pod.name).namespace(&pod.namespace),
            uid: &pod.uid,
            sandbox_id,
        };
        let container = ContainerSpec::created(name, 0, Duration::ZERO);
        Some(self.add_container(&pod, &container, Timestamp::now()))
    }

    /// Starts a created container whose sandbox is ready.
    pub fn start_container(&mut self, id: &str) -> bool {
        let Some(record) = self.containers.get_mut(id) else {
            return false;
        };
        let sandbox = self.sandboxes.get(&record.row.pod_sandbox_id);
        let is_ready = sandbox.is_some_and(|it| it.row.state() == PodSandboxState::SandboxReady);
        let is_created = record.row.state() == ContainerState::ContainerCreated;
        let starts = is_ready && is_created && !record.removing;
        if starts {
            record.row.set_state(ContainerState::ContainerRunning);
            record.started_at = now();
        }
        starts
    }

    /// Ends a running container.
    pub fn exit_container(&mut self, id: &str, exit_code: i32) -> bool {
        let state = self.containers.get(id).map(|c| c.row.state());
        state == Some(ContainerState::ContainerRunning) && self.end_container(id, exit_code, now())
    }

    /// Removes a container as another client would, without a recorded call.
    pub fn vanish_container(&mut self, id: &str) -> bool {
        self.remove_container(id).is_some()
    }

    /// Removes a sandbox and its containers in the same way.
    pub fn vanish_sandbox(&mut self, id: &str) -> bool {
        for container in self.containers_of(id) {
            self.remove_container(&container);
        }
        self.sandboxes.remove(id).is_some()
    }

    /// Leaves only cri-dockerd's own note of a sandbox, as when its container is removed behind its back.
    pub fn leave_note_only(&mut self, id: &str) -> bool {
        let Some(record) = self.sandboxes.get_mut(id) else {
            return false;
        };
        let metadata = record.row.metadata.take().unwrap_or_default();
        record.is_note_only = true;
        record.row = cri::PodSandbox {
            id: id.to_owned(),
            metadata: Some(cri::PodSandboxMetadata {
                name: metadata.name,
                namespace: metadata.namespace,
                ..cri::PodSandboxMetadata::default()
            }),
            state: PodSandboxState::SandboxNotready.into(),
            ..cri::PodSandbox::default()
        };
        true
    }

    /// Removes an image in the same way, by any of its names.
    pub fn vanish_image(&mut self, image: &str) -> bool {
        let id = self.find_image(image).map(|image| image.id.clone());
        id.is_some_and(|id| self.images.remove(&id).is_some())
    }

    /// Adds an image, as a pull does.
    pub fn pull_image(&mut self, image: cri::Image) {
        self.images.insert(image.id.clone(), image);
    }

    /// Ends a sandbox's pause process; its containers keep running.
    pub fn end_sandbox(&mut self, id: &str) -> bool {
        let record = self.sandboxes.get_mut(id);
        record
            .map(|s| s.row.set_state(PodSandboxState::SandboxNotready))
            .is_some()
    }

    /// Finishes a pod: its containers exit with this code, its sandboxes end, and its phase becomes Succeeded
    /// or Failed. The kubelet still knows it.
    pub fn finish_pod(&mut self, pod: &str, exit_code: i32) -> bool {
        let Some(uid) = self.pod_uid(pod) else {
            return false;
        };
        self.end_pod(&uid, exit_code);
        self.unsynced.insert(uid.clone());
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.phase = if exit_code == 0 {
                Phase::Succeeded
            } else {
                Phase::Failed
            };
        }
        true
    }

    /// Deletes a pod at the kubelet: its containers are killed, its sandboxes end, and all records stay in
    /// the runtime.
    pub fn delete_pod(&mut self, pod: &str) -> bool {
        let Some(uid) = self.pod_uid(pod) else {
            return false;
        };
        self.end_pod(&uid, EXIT_KILLED);
        self.unsynced.insert(uid.clone());
        self.pods.remove(&uid).is_some()
    }

    fn end_pod(&mut self, uid: &str, exit_code: i32) {
        let of_pod = self.sandboxes.iter().filter(|(_, sandbox)| {
            sandbox
                .row
                .metadata
                .as_ref()
                .is_some_and(|metadata| metadata.uid == uid)
        });
        let sandboxes: Vec<String> = of_pod.map(|(id, _)| id.clone()).collect();
        for id in sandboxes {
            for container in self.containers_of(&id) {
                self.exit_container(&container, exit_code);
            }
            self.end_sandbox(&id);
        }
    }
}
