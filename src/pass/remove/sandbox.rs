//! Removes one sandbox: its network goes first, and that may take long.

use jiff::Timestamp;

use super::superseded::NewerRecords;
use super::{Keeper, RemovalStep, Remover, ended, not_needed, stays};
use crate::gc::Removal;
use crate::model::{PodSandboxId, PodSandboxState, RemovalOutcome};

/// Asks once more, and removes the sandbox if it is still as planned.
pub(super) async fn sandbox(
    remover: &Remover,
    removal: &Removal,
    id: &PodSandboxId,
    keeper: Keeper,
) -> RemovalStep<RemovalOutcome> {
    let client = &remover.client;
    due(remover, removal, id, &remover.newer).await?;
    // CRI promises only of `StopPodSandbox` that it frees the network. Without it cri-dockerd's removal leaks the pod's
    // address, and CRI-O's, where the teardown fails in it, fails for ever after: the pause container is gone by then.
    if keeper != Keeper::Containerd {
        stop_first(remover, removal, id).await?;
    }
    let mut result = client.remove_pod_sandbox(id).await;
    if result
        .as_ref()
        .is_err_and(|error| wants_stop(&error.to_string()))
    {
        // The first call took time, and both calls kill whatever runs by now.
        due(remover, removal, id, &NewerRecords::default()).await?;
        stop_first(remover, removal, id).await?;
        result = client.remove_pod_sandbox(id).await;
    }
    ended(remover, result, || client.sandbox_status(id)).await
}

/// Stops a sandbox, and asks again whether it may go, because the network plugin took time.
async fn stop_first(remover: &Remover, removal: &Removal, id: &PodSandboxId) -> RemovalStep {
    let client = &remover.client;
    if let Err(error) = client.stop_pod_sandbox(id).await {
        return Err(ended(remover, Err(error), || client.sandbox_status(id)).await?);
    }
    due(remover, removal, id, &NewerRecords::default()).await
}

/// Says whether a status is of a later creation than the planned one: the sandbox is another one. cri-dockerd lists whole
/// seconds, and its statuses are exact. An earlier time is no other sandbox's: one whose list has no time is planned as
/// created when crisweep first saw it.
fn is_later(exact: Timestamp, planned: Timestamp) -> bool {
    let is_rounded = planned.subsec_nanosecond() == 0 && exact.as_second() == planned.as_second();
    exact > planned && !is_rounded
}

/// Asks the runtime whether the sandbox is still as planned, and the newer ones exist; ends the removal if not. A shared
/// answer about these is too old after a step that took time.
async fn due(
    remover: &Remover,
    removal: &Removal,
    id: &PodSandboxId,
    newer: &NewerRecords,
) -> RemovalStep {
    let client = &remover.client;
    let status = client.sandbox_status(id).await?;
    let status = status.ok_or(RemovalOutcome::AlreadyGone)?;
    // A status without a time of creation contradicts none.
    let has_time = status.created_at != Timestamp::MAX;
    if has_time && is_later(status.created_at, removal.subject.created_at) {
        return stays("it was created at another time than planned");
    }
    if status.state != PodSandboxState::NotReady {
        return stays("it is ready");
    }
    not_needed(remover, removal, newer).await?;
    if !client.containers_of_sandbox(id).await?.is_empty() {
        return stays("a container names it");
    }
    remover.may_go_on()
}

/// Says whether an error asks to stop the sandbox first. No runtime that we tried does; these texts are the
/// likely ones.
fn wants_stop(error: &str) -> bool {
    [
        "must be stopped",
        "is not stopped",
        "not stopped yet",
        "stop it before",
    ]
    .iter()
    .any(|words| error.contains(words))
}
