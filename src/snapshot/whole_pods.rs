//! Which pods are seen whole although a list is incomplete. Never decides anything of them.

use std::collections::BTreeSet;

use super::ListResult;
use crate::model::{ConfigSource, Container, Coverage, PodSandbox, PodSandboxId, PodUid};
use crate::system::maps::IdSet;

/// Returns the pods of the API server of which an incomplete look has every record. A static pod can come back under
/// its UID with records that no later look finds, so none is among them.
pub(super) fn whole_pods(
    containers: &ListResult<Container>,
    sandboxes: &ListResult<PodSandbox>,
) -> BTreeSet<PodUid> {
    let (Ok(containers), Ok(sandboxes)) = (containers, sandboxes) else {
        return BTreeSet::new();
    };
    // A row without an id may belong to any pod.
    if containers.malformed > 0 || sandboxes.malformed > 0 {
        return BTreeSet::new();
    }
    let mut whole = match (containers.coverage, sandboxes.coverage) {
        (Coverage::Whole, Coverage::Whole) => return BTreeSet::new(),
        (Coverage::Whole, _) => sandboxes.whole_pods.clone(),
        (_, Coverage::Whole) => containers.whole_pods.clone(),
        (_, _) => &containers.whole_pods & &sandboxes.whole_pods,
    };
    let mut of_the_api = BTreeSet::new();
    for sandbox in &sandboxes.rows {
        let Some(pod) = &sandbox.pod else { continue };
        let source = sandbox.config_source;
        match source.unwrap_or_else(|| ConfigSource::of_shape(&pod.uid)) {
            ConfigSource::Api => {
                of_the_api.insert(&pod.uid);
            }
            ConfigSource::File | ConfigSource::Http | ConfigSource::Other => {
                whole.remove(&pod.uid);
            }
        }
    }
    whole.retain(|uid| of_the_api.contains(uid));
    let seen = sandboxes.rows.iter().map(|it| &it.id);
    let seen: IdSet<&PodSandboxId> = seen.collect();
    for container in &containers.rows {
        if let Some(pod) = &container.pod
            && !seen.contains(&container.sandbox_id)
        {
            whole.remove(&pod.uid);
        }
    }
    whole
}
