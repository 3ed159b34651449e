//! Where CRI-O and cri-dockerd answer differently from containerd. Each fact was read in their sources
//! or measured (`docs/distributions.md`); all else is left as containerd has it.

use crisweep_proto::cri::{self, ContainerState as State};
use serde_json::{Value, json};
use tonic::Status;

use super::node::{ContainerRecord, Node, SandboxRecord};
use super::rows::image_spec;

/// cri-dockerd's lists have whole seconds; its statuses have Docker's own time, this much later.
const FRACTION_NANOSECONDS: i64 = 123_456_789;
const SECOND_NANOSECONDS: i64 = 1_000_000_000;
/// CRI-O lists when it began to make a container; its status has the OCI runtime's time, this much later on a slow
/// disk.
const MAKING_NANOSECONDS: i64 = 60 * SECOND_NANOSECONDS + 99_924_314;
/// When containerd made a container, by its own record.
const RECORDED_NANOSECONDS: i64 = 1_700_000_000 * SECOND_NANOSECONDS;

/// The runtime whose answers are imitated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// containerd.
    #[default]
    Containerd,
    /// CRI-O 1.36, which drops the pause process where it can.
    CriO,
    /// cri-dockerd 0.4 on Docker's own image store.
    CriDockerd,
}

/// What a runtime does with a sandbox's network when asked to remove the sandbox or to stop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Teardown {
    /// DEL runs.
    Runs,
    /// DEL ran before and is not repeated, or the sandbox has no network of its own.
    Done,
    /// The network stays as it is, and nothing takes it down later.
    Leaks,
}

/// The rows.
impl Profile {
    /// Gives every row of the node this runtime's form. Does nothing to rows that have it.
    pub(super) fn shape(self, node: &mut Node) {
        match self {
            Self::Containerd => {}
            Self::CriO => shape_as_crio(node),
            Self::CriDockerd => shape_as_docker(node),
        }
    }

    /// Completes a container's status, which names times and images in other forms than the list.
    pub(super) fn complete(self, node: &Node, status: &mut cri::ContainerStatus) {
        status.created_at = match self {
            Self::CriO => status.created_at + MAKING_NANOSECONDS,
            // A list has none where containerd could not read the container's status at its start; the status then has
            // the one of containerd's own record.
            Self::Containerd if status.created_at <= 0 => RECORDED_NANOSECONDS,
            Self::Containerd | Self::CriDockerd => self.status_created_at(status.created_at),
        };
        let failed_to_start = status.state() == State::ContainerCreated && status.exit_code != 0;
        if self == Self::CriDockerd && failed_to_start {
            status.set_state(State::ContainerExited);
            (status.started_at, status.finished_at) = (status.created_at, status.created_at);
            "ContainerCannotRun".clone_into(&mut status.reason);
        }
        if self == Self::CriDockerd && status.state() == State::ContainerUnknown {
            // A dead one, which Docker began to remove. With an exit code of 0 it never ran.
            let ran = status.exit_code != 0;
            status.set_state(if ran {
                State::ContainerExited
            } else {
                State::ContainerCreated
            });
            status.finished_at = if ran { status.created_at + 1 } else { 0 };
        }
        let id = match self {
            Self::Containerd => return,
            Self::CriO => &status.image_id,
            Self::CriDockerd => &status.image_ref,
        };
        let Some(image) = node.images.get(id) else {
            return;
        };
        if let (Some(spec), Some(tag)) = (&mut status.image, image.repo_tags.first()) {
            tag.clone_into(&mut spec.image);
        }
        if self == Self::CriDockerd {
            let by_id = || format!("docker://{}", image.id);
            let by_digest = |digest: &String| format!("docker-pullable://{digest}");
            status.image_ref = image.repo_digests.first().map_or_else(by_id, by_digest);
        }
    }

    /// Returns a sandbox's creation as its status says it.
    pub(super) fn status_created_at(self, listed: i64) -> i64 {
        match self {
            Self::Containerd | Self::CriO => listed,
            Self::CriDockerd => listed + FRACTION_NANOSECONDS,
        }
    }

    /// Returns what the verbose status of a sandbox says.
    pub(super) fn sandbox_info(self, record: &SandboxRecord) -> Option<Value> {
        match self {
            // Most is left out.
            Self::Containerd => Some(json!({
                "pid": 4711,
                "processStatus": "running",
                "image": record.made_from,
                "snapshotter": "overlayfs",
                "runtimeType": "io.containerd.runc.v2",
            })),
            Self::CriO => Some(json!({ "runtimeSpec": {} })),
            Self::CriDockerd => None,
        }
    }

    /// Returns the configuration in the verbose status.
    pub(super) fn config(self, sandbox_image: &str) -> Value {
        match self {
            Self::Containerd => json!({
                "containerd": { "snapshotter": "overlayfs", "defaultRuntimeName": "runc" },
                "cni": { "binDir": "/opt/cni/bin", "confDir": "/etc/cni/net.d" },
                "sandboxImage": sandbox_image,
            }),
            Self::CriO => json!({ "sandboxImage": sandbox_image, "crio": {} }),
            Self::CriDockerd => json!({ "sandboxImage": sandbox_image }),
        }
    }

    /// Returns the containers' file systems: containerd names none, the others the images' own.
    pub(super) fn container_filesystems(
        self,
        of_images: &cri::FilesystemUsage,
    ) -> Vec<cri::FilesystemUsage> {
        match self {
            Self::Containerd => Vec::new(),
            Self::CriO | Self::CriDockerd => vec![of_images.clone()],
        }
    }
}

/// The refusals.
impl Profile {
    /// Refuses a list of containers in a state that Docker does not know.
    pub(super) fn may_list(self, filter: Option<&cri::ContainerFilter>) -> Result<(), Status> {
        let state = filter.and_then(|it| it.state).map(|it| it.state());
        if self != Self::CriDockerd || state != Some(State::ContainerUnknown) {
            return Ok(());
        }
        Err(Status::unknown(
            "Error response from daemon: invalid filter 'status=unknown': invalid value for state (unknown): \
             must be one of created, running, paused, restarting, removing, exited, dead",
        ))
    }

    /// Returns the answer to a status call about a missing object.
    pub(super) fn not_found(self, what: &str, id: &str) -> Status {
        match (self, what) {
            (Self::Containerd, _) => Status::not_found(format!(
                "an error occurred when try to find {what} \"{id}\": not found"
            )),
            (Self::CriO, "sandbox") => Status::not_found(format!(
                "could not find pod \"{id}\": PodSandbox with ID starting with {id} not found: \
                 ID does not exist"
            )),
            (Self::CriO, _) => Status::not_found(format!(
                "could not find {what} \"{id}\": {what} with ID starting with {id} not found: \
                 ID does not exist"
            )),
            (Self::CriDockerd, _) => Status::unknown(no_such_container(id)),
        }
    }

    /// Says whether a container's process outlives SIGTERM although it never started: crun's does on CRI-O, whose
    /// removal then waits until the call's deadline is nearly over before it kills.
    pub(super) fn created_outlives_term(self, node: &Node, id: &str) -> bool {
        let state = node.containers.get(id).map(|it| it.row.state());
        self == Self::CriO && state == Some(State::ContainerCreated)
    }

    /// Answers the removal of a missing container.
    pub(super) fn remove_missing_container(self, id: &str) -> Result<(), Status> {
        match self {
            Self::Containerd | Self::CriO => Ok(()),
            Self::CriDockerd => Err(Status::unknown(format!(
                "failed to get container \"{id}\" log path: failed to inspect container \"{id}\": {}",
                no_such_container(id)
            ))),
        }
    }

    /// Returns the answer to a second removal of a container while the first runs.
    pub(super) fn already_removing(self, id: &str) -> Status {
        Status::unknown(match self {
            Self::Containerd | Self::CriO => format!(
                "failed to set removing state for container \"{id}\": \
                 container is already in removing state"
            ),
            Self::CriDockerd => format!(
                "failed to remove container \"{id}\": Error response from daemon: \
                 removal of container {id} is already in progress"
            ),
        })
    }

    /// Returns the error of a removal that another one overtook, where the runtime lets both run.
    pub(super) fn lost_removal(self, row: &cri::Container) -> Option<Status> {
        if self != Self::CriO {
            return None;
        }
        let metadata = row.metadata.clone().unwrap_or_default();
        let label = |key: &str| row.labels.get(key).map_or("", String::as_str);
        let name = format!(
            "k8s_{}_{}_{}_{}_{}",
            metadata.name,
            label("io.kubernetes.pod.name"),
            label("io.kubernetes.pod.namespace"),
            label("io.kubernetes.pod.uid"),
            metadata.attempt
        );
        let (sandbox, id) = (&row.pod_sandbox_id, &row.id);
        Some(Status::unknown(format!(
            "failed to delete container {name} in pod sandbox {sandbox} from index: no such id: '{id}'"
        )))
    }

    /// Says whether images are found by tag and digest too when they are removed.
    pub(super) fn removes_images_by_name(self) -> bool {
        self != Self::CriDockerd
    }

    /// Refuses the removal of an image in use, where the runtime does.
    pub(super) fn remove_image_in_use(self, node: &Node, image: &cri::Image) -> Result<(), Status> {
        let first = |uses: &dyn Fn(&ContainerRecord) -> bool| {
            let mut containers = node.containers.values();
            containers.find(|it| uses(it)).map(|it| &it.row.id)
        };
        let runner = first(&|it| it.is_made_from(image));
        let mounter = first(&|it| it.volume_images.contains(&image.id));
        let by_sandbox = || {
            let mut sandboxes = node.sandboxes.values();
            sandboxes.find(|it| image.repo_tags.contains(&it.made_from))
        };
        match self {
            Self::Containerd => Ok(()),
            Self::CriO => match (mounter, runner) {
                (Some(id), _) => Err(format!("the image is in use by {id}")),
                (None, Some(id)) => Err(format!(
                    "delete image: image used by {id}: image is in use by a container"
                )),
                (None, None) => Ok(()),
            },
            Self::CriDockerd => runner
                .or_else(|| by_sandbox().map(|it| &it.row.id))
                .map_or(Ok(()), |id| {
                    let tag = image.repo_tags.first().unwrap_or(&image.id);
                    Err(format!(
                        "Error response from daemon: conflict: unable to remove repository reference \
                         \"{tag}\" (must force) - container {} is using its referenced image {}",
                        short(id),
                        short(image.id.trim_start_matches("sha256:")),
                    ))
                }),
        }
        .map_err(Status::unknown)
    }
}

/// Networks and logs.
impl Profile {
    /// Says what a removal or a stop does with the sandbox's network.
    pub(super) fn teardown(self, sandbox: &SandboxRecord, removing: bool) -> Teardown {
        let done = sandbox.host_network || sandbox.network_is_down;
        match self {
            Self::Containerd if sandbox.host_network => Teardown::Done,
            Self::CriO | Self::CriDockerd if done => Teardown::Done,
            Self::CriDockerd if removing => Teardown::Leaks,
            Self::Containerd | Self::CriO | Self::CriDockerd => Teardown::Runs,
        }
    }

    /// Says whether the runtime counts a network as down after DEL. CRI-O does so even if DEL failed.
    pub(super) fn counts_as_down(self, worked: bool) -> bool {
        worked || self == Self::CriO
    }

    /// Refuses a removal after one that came as far as the network. CRI-O removes the pause container before that: where
    /// the teardown then fails or is cut short, each later removal fails too, until CRI-O starts again.
    pub(super) fn may_remove(self, sandbox: &SandboxRecord) -> Result<(), String> {
        if self != Self::CriO || sandbox.removals_at_network == 0 {
            return Ok(());
        }
        let (id, pod) = (&sandbox.row.id, sandbox.row.metadata.clone());
        let name = crio_name("k8s_POD", &pod.unwrap_or_default());
        Err(format!(
            "failed to delete container {name} in pod sandbox {id} from index: no such id: '{id}'"
        ))
    }

    /// Returns the error of a failed DEL.
    pub(super) fn teardown_failed(
        self,
        sandbox: &SandboxRecord,
        removing: bool,
        why: &str,
    ) -> String {
        let id = &sandbox.row.id;
        let pod = sandbox.row.metadata.clone().unwrap_or_default();
        let failed = match self {
            Self::Containerd => format!("failed to destroy network for sandbox \"{id}\": {why}"),
            Self::CriO => {
                let name = crio_name("k8s", &pod);
                format!("network teardown failed for pod sandbox {name}({id}): {why}")
            }
            Self::CriDockerd => format!(
                "networkPlugin cni failed to teardown pod \"{}_{}\" network: {why}",
                pod.name, pod.namespace
            ),
        };
        match self {
            Self::Containerd if removing => {
                format!("failed to forcibly stop sandbox \"{id}\": {failed}")
            }
            Self::CriO if removing => format!("stop pod network: {failed}"),
            Self::Containerd | Self::CriO | Self::CriDockerd => failed,
        }
    }

    /// Removes the link that cri-dockerd made for a container's log. The log itself is Docker's.
    pub(super) fn remove_log_link(self, record: &ContainerRecord) {
        let is_link = |path: &str| {
            std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_symlink())
        };
        if self == Self::CriDockerd
            && is_link(&record.log_path)
            && let Err(error) = std::fs::remove_file(&record.log_path)
        {
            tracing::warn!(path = record.log_path, %error, "cannot remove the simulated log's link");
        }
    }
}

/// CRI-O's image ids have no algorithm; a container's `image_ref` is a digest of its repository.
fn shape_as_crio(node: &mut Node) {
    let bare = |id: &str| id.trim_start_matches("sha256:").to_owned();
    for (id, mut image) in std::mem::take(&mut node.images) {
        image.id = bare(&id);
        node.images.insert(image.id.clone(), image);
    }
    for record in node.containers.values_mut() {
        record
            .volume_images
            .iter_mut()
            .for_each(|id| *id = bare(id));
        if !record.row.image_id.is_empty() {
            continue;
        }
        let id = bare(&record.row.image_ref);
        let image = node.images.get(&id);
        let digest = image.and_then(|image| image.repo_digests.first());
        record.row.image_ref = digest.unwrap_or(&id).clone();
        record.row.image = Some(image_spec(&id, ""));
        record.row.image_id = id;
    }
}

/// cri-dockerd's lists have no `image_id`, no name that the user gave, and whole seconds.
fn shape_as_docker(node: &mut Node) {
    let whole = |at: i64| at - at.rem_euclid(SECOND_NANOSECONDS);
    for record in node.containers.values_mut() {
        record.row.created_at = whole(record.row.created_at);
        record.row.image = Some(image_spec(&record.row.image_ref, ""));
    }
    for record in node.sandboxes.values_mut() {
        record.row.created_at = whole(record.row.created_at);
    }
}

/// CRI-O's name of a sandbox or of its pause container.
fn crio_name(prefix: &str, pod: &cri::PodSandboxMetadata) -> String {
    let (name, namespace) = (&pod.name, &pod.namespace);
    format!("{prefix}_{name}_{namespace}_{}_{}", pod.uid, pod.attempt)
}

fn no_such_container(id: &str) -> String {
    format!("Error response from daemon: No such container: {id}")
}

/// Docker's short form of an id.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
