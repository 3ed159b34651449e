//! The content of the simulated node, as plain data with indexes. No waiting, no IO.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::conduct::Cni;
use super::ids::Ids;
use super::kubelet::KubeletPod;
use crisweep_proto::cri::{self, ContainerState};

pub(super) const LABEL_POD_NAME: &str = "io.kubernetes.pod.name";
pub(super) const LABEL_POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(super) const LABEL_POD_UID: &str = "io.kubernetes.pod.uid";
pub(super) const LABEL_CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Exit code of killed processes.
pub(super) const EXIT_KILLED: i32 = 137;

/// A container as stored by the runtime.
#[derive(Clone, Debug)]
pub struct ContainerRecord {
    /// Its row in lists.
    pub row: cri::Container,
    /// Nanoseconds since the epoch; 0 if it never started.
    pub started_at: i64,
    /// Nanoseconds since the epoch; 0 if it has not exited.
    pub finished_at: i64,
    /// Its exit code.
    pub exit_code: i32,
    /// `Completed`, `Error`, `OOMKilled`, ...
    pub reason: String,
    /// The path of its log.
    pub log_path: String,
    /// The images that it has mounted as volumes, by id.
    pub volume_images: Vec<String>,
    /// `namespace/pod/container#attempt`.
    pub subject: String,
    /// A removal has begun.
    pub(super) removing: bool,
}

impl ContainerRecord {
    /// Says whether it runs from the image: CRI-O names the id in `image_id` alone.
    pub(super) fn is_made_from(&self, image: &cri::Image) -> bool {
        self.row.image_ref == image.id || self.row.image_id == image.id
    }
}

/// A pod sandbox as stored by the runtime.
#[derive(Clone, Debug)]
pub struct SandboxRecord {
    /// Its row in lists.
    pub row: cri::PodSandbox,
    /// It uses the host's network, so no CNI call is made for it.
    pub host_network: bool,
    /// `namespace/pod#attempt`.
    pub subject: String,
    pub(super) log_directory: String,
    /// The image that it was made from, by its tag.
    pub made_from: String,
    /// The network plugin's DEL counts as done; containerd repeats it nevertheless.
    pub(super) network_is_down: bool,
    /// Removals that came as far as its network; CRI-O then has no pause container to remove again.
    pub(super) removals_at_network: u32,
    /// Its container is gone, and only cri-dockerd's own note of it is left.
    pub(super) is_note_only: bool,
}

/// A simulated node: the runtime's content, and the kubelet's pods.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) ids: Ids,
    pub(super) log_root: String,
    pub(super) sandbox_image: String,
    pub(super) containers: BTreeMap<String, ContainerRecord>,
    pub(super) sandboxes: BTreeMap<String, SandboxRecord>,
    pub(super) images: BTreeMap<String, cri::Image>,
    pub(super) pods: BTreeMap<String, KubeletPod>,
    /// UIDs of the pods whose end the kubelet has not synced a second time.
    pub(super) unsynced: BTreeSet<String>,
    /// The network plugin's behaviour for newly added sandboxes.
    pub cni: BTreeMap<String, Cni>,
    by_sandbox: BTreeMap<String, BTreeSet<String>>,
    by_pod: BTreeMap<String, BTreeSet<String>>,
}

impl Node {
    pub(super) fn empty(seed: u64, sandbox_image: &str, log_root: &str) -> Self {
        Self {
            ids: Ids::new(seed),
            log_root: log_root.to_owned(),
            sandbox_image: sandbox_image.to_owned(),
            containers: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            images: BTreeMap::new(),
            pods: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            cni: BTreeMap::new(),
            by_sandbox: BTreeMap::new(),
            by_pod: BTreeMap::new(),
        }
    }

    /// Returns the UID of the pod that the kubelet knows as `namespace/name`.
    pub fn pod_uid(&self, subject: &str) -> Option<String> {
        let found = self.pods.values().find(|pod| pod.subject() == subject);
        found.map(|pod| pod.uid.clone())
    }

    pub(super) fn insert_container(&mut self, record: ContainerRecord) {
        let id = record.row.id.clone();
        let sandbox = record.row.pod_sandbox_id.clone();
        let of_sandbox = self.by_sandbox.entry(sandbox).or_default();
        of_sandbox.insert(id.clone());
        if let Some(uid) = record.row.labels.get(LABEL_POD_UID) {
            let of_pod = self.by_pod.entry(uid.clone()).or_default();
            of_pod.insert(id.clone());
        }
        self.containers.insert(id, record);
    }

    pub(super) fn remove_container(&mut self, id: &str) -> Option<ContainerRecord> {
        let record = self.containers.remove(id)?;
        unlink(&mut self.by_sandbox, &record.row.pod_sandbox_id, id);
        if let Some(uid) = record.row.labels.get(LABEL_POD_UID) {
            unlink(&mut self.by_pod, uid, id);
        }
        Some(record)
    }

    pub(super) fn containers_of(&self, sandbox_id: &str) -> Vec<String> {
        let ids = self.by_sandbox.get(sandbox_id);
        ids.map(|ids| ids.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Finds an image by id, with or without its algorithm, by tag or by digest.
    pub(super) fn find_image(&self, reference: &str) -> Option<&cri::Image> {
        let by_id = self.images.get(reference);
        by_id
            .or_else(|| self.images.get(&format!("sha256:{reference}")))
            .or_else(|| {
                self.images.values().find(|image| {
                    let mut names = image.repo_tags.iter().chain(&image.repo_digests);
                    names.any(|name| name == reference)
                })
            })
    }

    /// Says whether a container in any state uses this image, has it mounted, or a sandbox is made from it.
    pub fn image_in_use(&self, image: &cri::Image) -> bool {
        let mut containers = self.containers.values();
        image.repo_tags.contains(&self.sandbox_image)
            || self
                .sandboxes
                .values()
                .any(|s| image.repo_tags.contains(&s.made_from))
            || containers.any(|c| c.is_made_from(image) || c.volume_images.contains(&image.id))
    }

    /// Changes a container's record; says whether there is one.
    pub fn edit_container(&mut self, id: &str, edit: impl FnOnce(&mut ContainerRecord)) -> bool {
        self.containers.get_mut(id).map(edit).is_some()
    }

    /// Changes an existing image, by any of its names.
    pub fn edit_image(&mut self, image: &str, edit: impl FnOnce(&mut cri::Image)) {
        let id = self.find_image(image).map(|image| image.id.clone());
        if let Some(image) = id.and_then(|id| self.images.get_mut(&id)) {
            edit(image);
        }
    }

    /// Says whether the kubelet would run this container again without its record: its pod exists and has not
    /// finished (or is static), and the record is the newest of its name.
    pub(super) fn is_newest_of_living_pod(&self, id: &str) -> bool {
        let Some((row, uid)) = self.row_and_pod(id) else {
            return false;
        };
        if self.pods.get(uid).is_none_or(KubeletPod::is_over) {
            return false;
        }
        let (name, attempt) = name_and_attempt(row);
        let mut newer = (false, false);
        for sibling in self.containers_of_pod(uid) {
            let (other, other_attempt) = name_and_attempt(&sibling.row);
            if other == name {
                newer.0 |= other_attempt > attempt;
                newer.1 |= sibling.row.created_at > row.created_at;
            }
        }
        newer != (true, true)
    }

    /// Says whether a kubelet that has not synced this container's end would find no record of its name
    /// without this one, and would run it again.
    pub(super) fn is_last_before_sync(&self, id: &str) -> bool {
        let Some((row, uid)) = self.row_and_pod(id) else {
            return false;
        };
        let is_another = |other: &ContainerRecord| {
            let is_same_name = name_and_attempt(&other.row).0 == name_and_attempt(row).0;
            other.row.id != id && !other.removing && is_same_name
        };
        self.unsynced.contains(uid) && !self.containers_of_pod(uid).any(is_another)
    }

    /// Returns a container's row, and its pod's UID.
    fn row_and_pod(&self, id: &str) -> Option<(&cri::Container, &str)> {
        let row = &self.containers.get(id)?.row;
        Some((row, row.labels.get(LABEL_POD_UID)?))
    }

    fn containers_of_pod(&self, uid: &str) -> impl Iterator<Item = &ContainerRecord> {
        let ids = self.by_pod.get(uid).into_iter().flatten();
        ids.filter_map(|id| self.containers.get(id))
    }

    /// Ends a running or created container, as a kill does.
    pub(super) fn end_container(&mut self, id: &str, exit_code: i32, now: i64) -> bool {
        let Some(record) = self.containers.get_mut(id) else {
            return false;
        };
        match record.row.state() {
            ContainerState::ContainerExited => return false,
            ContainerState::ContainerCreated
            | ContainerState::ContainerRunning
            | ContainerState::ContainerUnknown => {}
        }
        record.row.set_state(ContainerState::ContainerExited);
        record.finished_at = now;
        record.exit_code = exit_code;
        reason_of(exit_code).clone_into(&mut record.reason);
        true
    }

    pub(super) fn used_image_bytes(&self) -> u64 {
        self.images.values().map(|image| image.size).sum()
    }

    /// Returns the number of the images' files, at 20 kB each.
    pub(super) fn used_inodes(&self) -> u64 {
        self.used_image_bytes() / 20_000
    }
}

pub(super) fn reason_of(exit_code: i32) -> &'static str {
    if exit_code == 0 { "Completed" } else { "Error" }
}

fn name_and_attempt(row: &cri::Container) -> (&str, u32) {
    let metadata = row.metadata.as_ref();
    metadata
        .map(|m| (m.name.as_str(), m.attempt))
        .unwrap_or_default()
}

fn unlink(index: &mut BTreeMap<String, BTreeSet<String>>, key: &str, id: &str) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}

/// Returns the time in CRI's unit.
pub(super) fn nanoseconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}

pub(super) fn now() -> i64 {
    nanoseconds(Timestamp::now())
}
