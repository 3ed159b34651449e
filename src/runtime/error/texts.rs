//! What runtimes say, as far as crisweep must tell errors apart by their texts.

/// The text of containerd 1.6 and 1.7 (as UNKNOWN) and 2.x (as UNAVAILABLE) for a moment after their start,
/// also for `Version`.
pub(super) const NOT_INITIALIZED: &str = "server is not initialized yet";

/// RPCs about one object. For them UNAVAILABLE can mean that something behind the object is down (its shim, a
/// proxy snapshotter), not the runtime.
pub(super) const ABOUT_ONE_OBJECT: [&str; 7] = [
    "ContainerStatus",
    "PodSandboxStatus",
    "StopContainer",
    "RemoveContainer",
    "StopPodSandbox",
    "RemovePodSandbox",
    "RemoveImage",
];

/// RPCs that ask about one container or sandbox.
pub(super) const QUESTIONS: [&str; 2] = ["ContainerStatus", "PodSandboxStatus"];

/// Docker's text for a missing container; cri-dockerd, whose sandboxes are containers too, hands it on as UNKNOWN.
pub(super) const DOCKER_MISSING_TEXT: &str = "No such container: ";

/// Docker's text for a state that it does not know; cri-dockerd asks it for `unknown`.
pub(super) const UNKNOWN_FILTER_TEXT: &str = "invalid filter 'status=";

/// cri-dockerd's text where Docker did not answer in time; it comes as UNKNOWN too.
pub(super) const DOCKER_TIMEOUT_TEXT: &str = "operation timeout: context deadline exceeded";

/// Texts of a failed network teardown of a sandbox: of containerd and CRI-O up to 1.33, of CRI-O from 1.34 on, and
/// of cri-dockerd.
pub(super) const NETWORK_TEXTS: [&str; 4] = [
    "failed to destroy network",
    "failed to teardown network",
    "network teardown failed",
    "failed to teardown pod",
];

/// Texts of a missing CNI plugin: the CNI library's for a missing program, and those of containerd, CRI-O and
/// cri-dockerd for a missing configuration.
pub(super) const PLUGIN_TEXTS: [&str; 4] = [
    "failed to find plugin",
    "cni plugin not initialized",
    "CNI configuration file in",
    "cni config uninitialized",
];

/// Texts of a runtime that already removes the object for another client.
pub(super) const REMOVING_TEXTS: [&str; 4] = [
    "already in removing state",
    "is in removing state",
    "is being removed",
    "is already in progress",
];

/// Texts of a runtime while another client holds the object. The last two are Docker's, for an image in use.
pub(super) const BUSY_TEXTS: [&str; 5] = [
    "in starting state",
    "is in use",
    "device or resource busy",
    "is using its referenced image",
    "image is being used by",
];

/// cri-dockerd's texts while Docker is away, and of a call that Docker's end broke off; they come as UNKNOWN too.
pub(super) const DOCKER_AWAY_TEXTS: [&str; 2] = [
    "Cannot connect to the Docker daemon",
    "error during connect: ",
];
