//! The kubelet's log garbage collection, likewise: pods' directories, then links.

use crisweep::model::ContainerState;

/// What the kubelet's status call brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// An error: not found, or any other.
    Fails,
    /// The container's state.
    Is(ContainerState),
}

/// Says whether an entry of the pods' log root goes: a directory or not, of whatever age, with
/// containers or without. `is_deleted` is false for all while the kubelet's sources are not ready;
/// then nothing goes.
pub(crate) fn removes_dir(
    name: &str,
    sources_ready: bool,
    is_deleted: &dyn Fn(&str) -> bool,
) -> bool {
    let uid = name.rsplit_once('_').map_or(name, |(_, uid)| uid);
    sources_ready && is_deleted(uid)
}

/// Says whether an entry of the containers' log root goes. `missing`: following it ends at nothing.
pub(crate) fn removes_link(path: &str, missing: bool, status: &dyn Fn(&str) -> Status) -> bool {
    let Some(stem) = path.strip_suffix(".log").filter(|_| missing) else {
        return false;
    };
    // The whole path is split, so that without a dash the "id" is the path.
    let id = stem.rsplit('-').next().unwrap_or(stem);
    if id.len() < 6 {
        return true;
    }
    match status(id) {
        Status::Fails => true,
        Status::Is(state) => state == ContainerState::Exited,
    }
}
