//! The kubelet's log garbage collection in the same way: pod directories, then links.

use crisweep::model::ContainerState;

/// The result of the kubelet's status call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// An error: not found, or any other.
    Fails,
    /// The container's state.
    Is(ContainerState),
}

/// Says whether the kubelet removes an entry of the pods' log root: any kind of entry, of any age, with or
/// without containers. `is_deleted` is false for all while the kubelet's sources are not ready; then nothing
/// is removed.
pub(crate) fn removes_dir(
    name: &str,
    sources_ready: bool,
    is_deleted: &dyn Fn(&str) -> bool,
) -> bool {
    let uid = name.rsplit_once('_').map_or(name, |(_, uid)| uid);
    sources_ready && is_deleted(uid)
}

/// Says whether the kubelet removes an entry of the containers' log root. `missing`: its target does not
/// exist.
pub(crate) fn removes_link(path: &str, missing: bool, status: &dyn Fn(&str) -> Status) -> bool {
    let Some(stem) = path.strip_suffix(".log").filter(|_| missing) else {
        return false;
    };
    // Splits the whole path, so without a dash the "id" is the path.
    let id = stem.rsplit('-').next().unwrap_or(stem);
    if id.len() < 6 {
        return true;
    }
    match status(id) {
        Status::Fails => true,
        Status::Is(state) => state == ContainerState::Exited,
    }
}
