//! The calls that change the node, as dangerous as the real ones: removals kill.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use super::conduct::FaultKey;
use super::node::{EXIT_KILLED, Node, now};
use super::profile::Teardown;
use super::record::{Harm, Rpc};
use super::shared::{InFlight, Shared};
use crisweep_proto::cri::{ContainerState, PodSandboxState};

/// How often a second removal looks whether the first is over.
const OTHER_REMOVAL_EVERY: Duration = Duration::from_millis(5);

/// How long CRI-O's removal waits before it kills, where the call's deadline is half a minute.
const NEARLY_THE_DEADLINE: Duration = Duration::from_secs(29);

pub(super) async fn stop_container(
    shared: &Shared,
    call: &InFlight,
    asked: &str,
) -> Result<(), Status> {
    let is_carried_out = !shared.pretends(&FaultKey::Rpc(Rpc::StopContainer));
    shared.admit(Rpc::StopContainer).await?;
    let mut node = shared.node();
    if is_carried_out {
        if shared.options.profile.created_outlives_term(&node, asked) {
            node.end_container(asked, EXIT_KILLED, now());
        }
        kill(&mut node, call, asked);
    }
    Ok(())
}

pub(super) async fn remove_container(
    shared: &Arc<Shared>,
    call: &InFlight,
    asked: &str,
) -> Result<(), Status> {
    shared.admit(Rpc::RemoveContainer).await?;
    let is_there = shared.node().containers.contains_key(asked);
    if is_there {
        remove_one(shared, call, asked).await
    } else {
        shared.options.profile.remove_missing_container(asked)
    }
}

/// Kills and removes one container, alone or with its sandbox.
async fn remove_one(shared: &Arc<Shared>, call: &InFlight, id: &str) -> Result<(), Status> {
    other_removal(shared, id).await?;
    if shared
        .options
        .profile
        .created_outlives_term(&shared.node(), id)
    {
        tokio::time::sleep(NEARLY_THE_DEADLINE).await;
    }
    let Some(_removing) = Removing::begin(shared, call, id)? else {
        return Ok(());
    };
    if !shared.suffer_removal(id).await? {
        return Ok(());
    }
    let mut node = shared.node();
    if let Some(record) = node.remove_container(id) {
        shared.options.profile.remove_log_link(&record);
    }
    shared.note_weight(&mut node);
    Ok(())
}

/// Waits for another client's removal on CRI-O, which lets both begin and fails the one that ends last.
async fn other_removal(shared: &Shared, id: &str) -> Result<(), Status> {
    let removed_by_another = || {
        let node = shared.node();
        let record = node.containers.get(id);
        record.filter(|it| it.removing).map(|it| it.row.clone())
    };
    let Some(row) = removed_by_another() else {
        return Ok(());
    };
    let Some(lost) = shared.options.profile.lost_removal(&row) else {
        return Ok(());
    };
    while removed_by_another().is_some() {
        tokio::time::sleep(OTHER_REMOVAL_EVERY).await;
    }
    Err(lost)
}

/// Prevents a second removal of a container in progress.
struct Removing {
    shared: Arc<Shared>,
    id: String,
}

impl Removing {
    fn begin(shared: &Arc<Shared>, call: &InFlight, id: &str) -> Result<Option<Self>, Status> {
        let mut node = shared.node();
        shared.note_weight(&mut node);
        kill(&mut node, call, id);
        let newest = node.is_newest_of_living_pod(id);
        let early = shared.options.lagging_kubelet.is_some() && node.is_last_before_sync(id);
        let Some(record) = node.containers.get_mut(id) else {
            return Ok(None);
        };
        if record.removing {
            return Err(shared.options.profile.already_removing(id));
        }
        record.removing = true;
        if newest {
            call.harm(Harm::RemovedNewestOfLivingPod);
        }
        if early {
            call.harm(Harm::RemovedBeforeSync);
        }
        Ok(Some(Self {
            shared: Arc::clone(shared),
            id: id.to_owned(),
        }))
    }
}

impl Drop for Removing {
    fn drop(&mut self) {
        if let Some(record) = self.shared.node().containers.get_mut(&self.id) {
            record.removing = false;
        }
    }
}

/// Kills a running container, which is harm, or one of unknown state. A created one has no process.
fn kill(node: &mut Node, call: &InFlight, id: &str) {
    match node.containers.get(id).map(|c| c.row.state()) {
        None | Some(ContainerState::ContainerCreated | ContainerState::ContainerExited) => return,
        Some(ContainerState::ContainerUnknown) => {}
        Some(ContainerState::ContainerRunning) => call.harm(Harm::KilledRunningContainer),
    }
    node.end_container(id, EXIT_KILLED, now());
}

pub(super) async fn stop_pod_sandbox(
    shared: &Arc<Shared>,
    call: &InFlight,
    asked: &str,
) -> Result<(), Status> {
    shared.admit(Rpc::StopPodSandbox).await?;
    let stopped = stop_sandbox(shared, call, asked, false).await;
    stopped.map_err(Status::unknown)
}

pub(super) async fn remove_pod_sandbox(
    shared: &Arc<Shared>,
    call: &InFlight,
    asked: &str,
) -> Result<(), Status> {
    shared.admit(Rpc::RemovePodSandbox).await?;
    let is_there = shared.node().sandboxes.contains_key(asked);
    if !is_there {
        return Ok(());
    }
    let stopped = stop_sandbox(shared, call, asked, true).await;
    stopped.map_err(Status::unknown)?;
    let containers = shared.node().containers_of(asked);
    for container in containers {
        remove_one(shared, call, &container).await?;
    }
    if !shared.suffer_removal(asked).await? {
        return Ok(());
    }
    let mut node = shared.node();
    node.sandboxes.remove(asked);
    shared.note_weight(&mut node);
    Ok(())
}

/// Kills a sandbox's containers, then its pause process, then tears down its network, on containerd even if
/// that was done before.
async fn stop_sandbox(
    shared: &Arc<Shared>,
    call: &InFlight,
    id: &str,
    removing: bool,
) -> Result<(), String> {
    let profile = shared.options.profile;
    {
        let mut node = shared.node();
        for container in node.containers_of(id) {
            let state = node.containers.get(&container).map(|c| c.row.state());
            if removing && state == Some(ContainerState::ContainerCreated) {
                call.harm(Harm::RemovedCreatedWithSandbox);
            }
            kill(&mut node, call, &container);
        }
        let Some(sandbox) = node.sandboxes.get_mut(id) else {
            return Ok(());
        };
        if removing {
            profile.may_remove(sandbox)?;
        }
        if sandbox.row.state() == PodSandboxState::SandboxReady {
            call.harm(Harm::StoppedReadySandbox);
            sandbox.row.set_state(PodSandboxState::SandboxNotready);
        }
        match profile.teardown(sandbox, removing) {
            Teardown::Done => return Ok(()),
            Teardown::Leaks => {
                call.harm(Harm::LeakedNetwork);
                return Ok(());
            }
            Teardown::Runs => sandbox.removals_at_network += u32::from(removing),
        }
    }
    let result = shared.cni_del(id).await;
    let mut node = shared.node();
    let Some(sandbox) = node.sandboxes.get_mut(id) else {
        return Ok(());
    };
    sandbox.network_is_down |= profile.counts_as_down(result.is_ok());
    result.map_err(|why| profile.teardown_failed(sandbox, removing, why))
}

pub(super) async fn remove_image(
    shared: &Shared,
    call: &InFlight,
    asked: &str,
) -> Result<(), Status> {
    shared.admit(Rpc::RemoveImage).await?;
    if asked.is_empty() {
        return Err(Status::unknown("image reference can't be empty"));
    }
    let profile = shared.options.profile;
    let found = {
        let node = shared.node();
        let image = node.find_image(asked);
        let image = image.filter(|it| profile.removes_images_by_name() || it.id == asked);
        if let Some(image) = image {
            profile.remove_image_in_use(&node, image)?;
        }
        image.map(|image| (image.id.clone(), image.pinned, node.image_in_use(image)))
    };
    let Some((id, pinned, in_use)) = found else {
        return Ok(());
    };
    if !shared.suffer_removal(&id).await? {
        return Ok(());
    }
    let mut node = shared.node();
    let removed = node.images.remove(&id).is_some();
    shared.write_images(&node);
    drop(node);
    if removed && pinned {
        call.harm(Harm::RemovedPinnedImage);
    }
    if removed && in_use {
        call.harm(Harm::RemovedImageInUse);
    }
    Ok(())
}
