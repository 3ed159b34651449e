//! Converts wire messages to the model's values. Doubt keeps: a missing or unknown value is read in the way
//! that removes less.
//!
//! Never asks the runtime for anything.

mod interner;
mod sandbox_images;

use crisweep_proto::cri;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message;

pub use interner::Interner;
pub(crate) use sandbox_images::made_from;
use sandbox_images::sandbox_images;

use super::known_rows::{KeyFields, KnownRows};
use super::{ContainerStatus, SandboxStatus, Version};
use crate::model::{
    ConfigSource, Container, ContainerId, ContainerImage, ContainerState, Filesystem, Filesystems,
    HasId, Image, ImageId, MESSAGE_BYTES_MAX, PodRef, PodSandbox, PodSandboxId, PodSandboxState,
    PodUid, TEXT_BYTES_MAX, cut,
};

pub(super) const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";
const POD_NAMESPACE_LABEL: &str = "io.kubernetes.pod.namespace";
const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";
/// The kubelet's own labels, which are fields in the model.
const KUBELET_LABELS: [&str; 4] = [
    POD_UID_LABEL,
    POD_NAMESPACE_LABEL,
    POD_NAME_LABEL,
    "io.kubernetes.container.name",
];

/// Returns the label by which a list is filtered for a pod.
pub(super) fn selector_of(uid: &PodUid) -> BTreeMap<String, String> {
    [(POD_UID_LABEL.to_owned(), uid.to_string())].into()
}

/// The most file systems of one kind that are read: each is a series of every figure. Runtimes name one or two.
const FILESYSTEMS_MAX: usize = 16;

/// A row lacks a required id or is about another object, or a text that says which object it is about is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its id is missing or belongs to another object, or an identifying text is not UTF-8")]
pub struct Malformed;

/// A row of a list on the wire.
pub trait WireRow: Message + Default + 'static {
    /// What it becomes.
    type Model: Clone + std::fmt::Debug + HasId + Send + Sync + 'static;

    /// Converts it; it shares equal values with all that `shared` knows.
    fn into_model(self, shared: &mut Interner) -> Result<Self::Model, Malformed>;

    /// The fields by which a row of the last list is known; `None`: the rows are few, and read anew.
    const KEY: Option<KeyFields> = None;

    /// Returns the rows of the last list, if they are known.
    fn known(_shared: &mut Interner) -> Option<&mut KnownRows<Self::Model>> {
        None
    }
}

impl WireRow for cri::ContainerRow {
    type Model = Container;

    const KEY: Option<KeyFields> = Some(KeyFields {
        id: 1,
        state: 6,
        created_at: 7,
    });

    /// A row without metadata stays, nameless and without a pod, because it still holds its sandbox. So does a
    /// row without an id: it is ignored if it has exited, and counts as running otherwise.
    fn into_model(self, shared: &mut Interner) -> Result<Container, Malformed> {
        let image = container_image(self.image.as_ref(), [&self.image_id, &self.image_ref])?;
        let labels = labels(&self.labels)?;
        let mut pod = if self.metadata.is_some() {
            container_pod(&labels, shared)
        } else {
            None
        };
        let metadata = self.metadata.unwrap_or_default();
        let (name, attempt) = (text(&metadata.name)?, metadata.attempt);
        let mut state = container_state(self.state);
        let sandbox_id = PodSandboxId::new(shared.text(text(&self.pod_sandbox_id)?));
        let id = match (ContainerId::new(shared.text(text(&self.id)?)), &sandbox_id) {
            (Some(id), _) => id,
            (None, None) => return Err(Malformed),
            (None, Some(sandbox)) => {
                if state == ContainerState::Exited {
                    pod = None;
                } else {
                    state = ContainerState::Running;
                }
                ContainerId::stand_in(format_args!(" {name}#{attempt} in sandbox {sandbox}"))
            }
        };
        Ok(Container {
            id,
            sandbox_id: sandbox_id.unwrap_or_else(PodSandboxId::stand_in),
            name: shared.text(name),
            attempt,
            state,
            created_at: created_at(self.created_at),
            finished_at: None,
            exit_undated: false,
            pod,
            image: shared.image(image),
            labels: shared.labels(foreign(&labels)),
        })
    }

    fn known(shared: &mut Interner) -> Option<&mut KnownRows<Container>> {
        Some(&mut shared.containers)
    }
}

impl WireRow for cri::PodSandboxRow {
    type Model = PodSandbox;

    const KEY: Option<KeyFields> = Some(KeyFields {
        id: 1,
        state: 3,
        created_at: 4,
    });

    fn into_model(self, shared: &mut Interner) -> Result<PodSandbox, Malformed> {
        let labels = labels(&self.labels)?;
        let metadata = self.metadata.unwrap_or_default();
        let id = shared.text(text(&self.id)?);
        Ok(PodSandbox {
            pod: sandbox_pod(&metadata, &labels, shared)?,
            id: PodSandboxId::new(id).ok_or(Malformed)?,
            attempt: metadata.attempt,
            state: sandbox_state(self.state),
            created_at: created_at(self.created_at),
            config_source: config_source(&self.annotations),
            labels: shared.labels(foreign(&labels)),
        })
    }

    fn known(shared: &mut Interner) -> Option<&mut KnownRows<PodSandbox>> {
        Some(&mut shared.sandboxes)
    }
}

fn text(bytes: &Bytes) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_not_utf8| Malformed)
}

/// Labels, sorted by key.
type SortedLabels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Reads labels. Of two with the same key the later one counts, as in every map of protobuf. Runtimes that use gogo's
/// protobuf send labels that are not UTF-8, and the kubelet takes them: they are read with U+FFFD in place of such bytes,
/// so that they equal none that a policy names. The kubelet's own labels must be UTF-8: they say which object it is.
fn labels(entries: &[cri::EntryRow]) -> Result<SortedLabels<'_>, Malformed> {
    let entries = entries.iter();
    let labels = entries.map(|entry| {
        let key = String::from_utf8_lossy(&entry.key);
        let value = if KUBELET_LABELS.contains(&&*key) {
            text(&entry.value)?.into()
        } else {
            String::from_utf8_lossy(&entry.value)
        };
        Ok((key, value))
    });
    let mut labels = labels.collect::<Result<SortedLabels<'_>, Malformed>>()?;
    labels.sort_by(|(a, _), (b, _)| a.cmp(b));
    labels.dedup_by(|later, label| {
        let is_same = later.0 == label.0;
        if is_same {
            std::mem::swap(&mut label.1, &mut later.1);
        }
        is_same
    });
    Ok(labels)
}

fn label<'a>(labels: &'a SortedLabels<'_>, key: &str) -> Option<&'a str> {
    let found = labels.iter().find(|(name, _)| *name == key);
    found.map(|(_, value)| &**value)
}

/// Returns the labels that are not the kubelet's own.
fn foreign<'a>(labels: &'a SortedLabels<'_>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let labels = labels.iter().map(|(key, value)| (&**key, &**value));
    labels.filter(|(key, _)| !KUBELET_LABELS.contains(key))
}

fn config_source(annotations: &[cri::EntryRow]) -> Option<ConfigSource> {
    let mut annotations = annotations.iter();
    let found = annotations.find(|it| it.key == ConfigSource::ANNOTATION.as_bytes());
    found.and_then(|it| ConfigSource::of_annotation(&it.value))
}

impl WireRow for cri::ImageRow {
    type Model = Image;

    fn into_model(self, _shared: &mut Interner) -> Result<Image, Malformed> {
        Ok(Image {
            id: ImageId::new(self.id).ok_or(Malformed)?,
            repo_tags: self.repo_tags,
            repo_digests: self.repo_digests,
            size_bytes: self.size,
            pinned: self.pinned,
            handler: self.spec.unwrap_or_default().runtime_handler,
        })
    }
}

/// Converts the answer to `ContainerStatus` about `id`. An answer about another container, as from a runtime
/// that accepts prefixes, is malformed.
pub(crate) fn container_status(
    id: &ContainerId,
    raw: cri::ContainerStatus,
) -> Result<ContainerStatus, Malformed> {
    if raw.id != id.as_str() {
        return Err(Malformed);
    }
    let mut image = raw.image.unwrap_or_default();
    if image.user_specified_image.is_empty() {
        image.user_specified_image = image.image;
    }
    Ok(ContainerStatus {
        id: id.clone(),
        state: container_state(raw.state),
        created_at: created_at(raw.created_at),
        started_at: moment(raw.started_at),
        finished_at: moment(raw.finished_at),
        exit_code: raw.exit_code,
        reason: raw.reason,
        message: cut(&raw.message, MESSAGE_BYTES_MAX).to_owned(),
        image: image.user_specified_image,
        image_ref: raw.image_ref,
        log_path: raw.log_path,
        volume_images: volume_images(raw.mounts),
    })
}

/// Converts the answer to `PodSandboxStatus` about `id`, in the same way.
pub(crate) fn sandbox_status(
    id: &PodSandboxId,
    raw: &cri::PodSandboxStatus,
) -> Result<SandboxStatus, Malformed> {
    if raw.id != id.as_str() {
        return Err(Malformed);
    }
    Ok(SandboxStatus {
        state: sandbox_state(raw.state),
        created_at: created_at(raw.created_at),
    })
}

/// Builds a list row from the answer to `ContainerStatus`, with the exit time and the mounted images. A row
/// needs the id of its sandbox: if unknown, it is in the verbose answers of containerd and CRI-O, each in its
/// own format.
pub(crate) fn container_record(
    id: &ContainerId,
    sandbox: Option<PodSandboxId>,
    raw: cri::ContainerStatusResponse,
    shared: &mut Interner,
) -> Result<(Container, Vec<String>), Malformed> {
    let status = raw
        .status
        .filter(|status| status.id == id.as_str())
        .ok_or(Malformed)?;
    let finished_at = moment(status.finished_at);
    let from_info = || raw.info.get("info").and_then(|info| sandbox_id(info));
    let sandbox = sandbox.map(|id| id.to_string()).or_else(from_info);
    let row = cri::ContainerRow {
        id: status.id.into(),
        pod_sandbox_id: sandbox.ok_or(Malformed)?.into(),
        metadata: status.metadata.map(|metadata| cri::ContainerMetadataRow {
            name: metadata.name.into(),
            attempt: metadata.attempt,
        }),
        image: status.image.map(|spec| cri::ContainerImageRow {
            image: spec.image.into(),
            user_specified_image: spec.user_specified_image.into(),
            runtime_handler: spec.runtime_handler.into(),
        }),
        image_ref: status.image_ref.into(),
        state: status.state,
        created_at: status.created_at,
        labels: status.labels,
        image_id: status.image_id.into(),
    };
    let mut record = row.into_model(shared)?;
    record.finished_at = finished_at.filter(|_| record.state == ContainerState::Exited);
    Ok((record, volume_images(status.mounts)))
}

fn sandbox_id(info: &str) -> Option<String> {
    /// The rest is the container's whole specification.
    #[derive(serde::Deserialize)]
    struct Info {
        #[serde(rename = "sandboxID")]
        sandbox_id: String,
    }
    let info: Info = serde_json::from_str(info).ok()?;
    Some(info.sandbox_id)
}

/// Builds a list row from the answer to `PodSandboxStatus`.
pub(crate) fn sandbox_record(
    id: &PodSandboxId,
    raw: cri::PodSandboxStatusResponse,
    shared: &mut Interner,
) -> Result<PodSandbox, Malformed> {
    let status = raw
        .status
        .filter(|status| status.id == id.as_str())
        .ok_or(Malformed)?;
    let row = cri::PodSandboxRow {
        id: status.id.into(),
        metadata: status.metadata.map(|metadata| cri::PodSandboxMetadataRow {
            name: metadata.name.into(),
            uid: metadata.uid.into(),
            namespace: metadata.namespace.into(),
            attempt: metadata.attempt,
        }),
        state: status.state,
        created_at: status.created_at,
        labels: status.labels,
        annotations: status.annotations,
    };
    row.into_model(shared)
}

/// Converts the answer to `Version`.
pub(crate) fn version(raw: &cri::VersionResponse) -> Version {
    let bounded = |text: &str| cut(text, TEXT_BYTES_MAX).to_owned();
    Version {
        runtime: bounded(&raw.runtime_name),
        version: bounded(&raw.runtime_version),
    }
}

/// Returns the images that sandboxes are made from, as named by the runtime's configuration.
pub(crate) fn configured_sandbox_images(raw: &cri::StatusResponse) -> Vec<String> {
    let config = raw.info.get("config");
    config.map_or_else(Vec::new, |config| sandbox_images(config))
}

/// Converts the answer to `ImageFsInfo`. Leaves out a file system without a mount point, because it cannot be
/// measured.
pub(crate) fn filesystems(raw: cri::ImageFsInfoResponse) -> Filesystems {
    let named = |list: Vec<_>| {
        let named = list.into_iter().filter_map(filesystem);
        named.take(FILESYSTEMS_MAX).collect()
    };
    Filesystems {
        image: named(raw.image_filesystems),
        container: named(raw.container_filesystems),
    }
}

/// Collects every name of the images that are mounted as volumes.
fn volume_images(mounts: Vec<cri::Mount>) -> Vec<String> {
    let specs = mounts.into_iter().filter_map(|mount| mount.image);
    specs
        .flat_map(|spec| [spec.image, spec.user_specified_image, spec.image_ref])
        .filter(|name| !name.is_empty())
        .collect()
}

fn filesystem(raw: cri::FilesystemUsage) -> Option<Filesystem> {
    let mountpoint = raw.fs_id?.mountpoint;
    (!mountpoint.is_empty()).then(|| Filesystem {
        mountpoint,
        runtime_used_bytes: raw.used_bytes.map_or(0, |bytes| bytes.value),
        usage: None,
        is_btrfs: false,
    })
}

/// The pod named by the kubelet's labels. Without a uid another tool made the container.
fn container_pod(labels: &SortedLabels<'_>, shared: &mut Interner) -> Option<Arc<PodRef>> {
    let label = |key: &str| label(labels, key).unwrap_or_default();
    shared.pod(
        label(POD_UID_LABEL),
        label(POD_NAMESPACE_LABEL),
        label(POD_NAME_LABEL),
    )
}

/// The pod of a sandbox. The kubelet writes the uid twice; it counts only if both agree.
fn sandbox_pod(
    metadata: &cri::PodSandboxMetadataRow,
    labels: &SortedLabels<'_>,
    shared: &mut Interner,
) -> Result<Option<Arc<PodRef>>, Malformed> {
    let (uid, namespace) = (text(&metadata.uid)?, text(&metadata.namespace)?);
    let name = text(&metadata.name)?;
    let is_its = label(labels, POD_UID_LABEL) == Some(uid);
    Ok(is_its.then(|| shared.pod(uid, namespace, name)).flatten())
}

/// Collects every name of a container's image; runtimes differ in which fields they fill.
fn container_image(
    spec: Option<&cri::ContainerImageRow>,
    [id, reference]: [&Bytes; 2],
) -> Result<ContainerImage, Malformed> {
    let none = cri::ContainerImageRow::default();
    let spec = spec.unwrap_or(&none);
    let mut names = Vec::with_capacity(2);
    for name in [id, reference, &spec.image, &spec.user_specified_image] {
        let name = text(name)?;
        if !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(ContainerImage {
        names,
        handler: text(&spec.runtime_handler)?.to_owned(),
    })
}

/// An unknown state is `Unknown`, which keeps.
fn container_state(number: i32) -> ContainerState {
    match cri::ContainerState::try_from(number) {
        Ok(cri::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(cri::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(cri::ContainerState::ContainerExited) => ContainerState::Exited,
        Ok(cri::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    }
}

/// An unknown state is `Ready`, which keeps.
fn sandbox_state(number: i32) -> PodSandboxState {
    match cri::PodSandboxState::try_from(number) {
        Ok(cri::PodSandboxState::SandboxNotready) => PodSandboxState::NotReady,
        Ok(cri::PodSandboxState::SandboxReady) | Err(_) => PodSandboxState::Ready,
    }
}

/// An unknown creation time lies in the future, so the object counts as young.
fn created_at(nanoseconds: i64) -> Timestamp {
    moment(nanoseconds).unwrap_or(Timestamp::MAX)
}

fn moment(nanoseconds: i64) -> Option<Timestamp> {
    let known = (nanoseconds > 0).then_some(nanoseconds)?;
    Timestamp::from_nanosecond(known.into()).ok()
}

#[cfg(test)]
mod tests;
