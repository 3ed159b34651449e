//! Removes one object, after asking about it once more. The plan may be minutes old; this question
//! is not.

mod image;

use std::sync::Arc;
use std::time::Duration;

use crate::cri;
use crate::gc::{Expected, Removal, Target};
use crate::model::{ContainerId, ContainerState, PodSandboxId, PodSandboxState};
use crate::observe::Look;
use crate::report::FailureClass;

/// What a container in state unknown is given to stop by itself: the kubelet's least.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// What came of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// We removed it.
    Removed,
    /// It was gone before we asked.
    AlreadyGone,
    /// It is no longer what was planned; it stays.
    Skipped(&'static str),
    /// The runtime would not.
    Failed {
        /// How.
        class: FailureClass,
        /// In its words.
        error: String,
    },
    /// The runtime went away; nobody knows what became of it.
    Lost(String),
}

/// Asks, and removes what is still as planned. `look` is the one that the plan rests on.
pub(super) async fn remove(
    client: &cri::Client,
    look: Option<&Arc<Look>>,
    removal: &Removal,
) -> Outcome {
    let id = removal.subject.id.as_str();
    let result = match removal.subject.target {
        Target::Containers => match ContainerId::new(id) {
            Some(id) => container(client, removal, &id).await,
            None => return Outcome::Skipped("it has no id"),
        },
        Target::Sandboxes => match PodSandboxId::new(id) {
            Some(id) => sandbox(client, removal, &id).await,
            None => return Outcome::Skipped("it has no id"),
        },
        Target::Images => match look {
            Some(look) => image::image(client, look, removal).await,
            None => return Outcome::Skipped("nobody knows what the plan rests on"),
        },
        Target::Logs => return Outcome::Skipped("nobody can remove it yet"),
    };
    result.unwrap_or_else(|error| failure(&error))
}

fn failure(error: &cri::Error) -> Outcome {
    if error.is_lost() {
        return Outcome::Lost(error.to_string());
    }
    Outcome::Failed {
        class: error.class(),
        error: error.to_string(),
    }
}

async fn container(
    client: &cri::Client,
    removal: &Removal,
    id: &ContainerId,
) -> Result<Outcome, cri::Error> {
    let Some(status) = client.container_status(id).await? else {
        return Ok(Outcome::AlreadyGone);
    };
    if status.created_at != removal.subject.created_at {
        return Ok(Outcome::Skipped(
            "it was created at another time than planned",
        ));
    }
    if removal.expected != Expected::Container(status.state) {
        return Ok(Outcome::Skipped("its state has changed since the plan"));
    }
    if status.state == ContainerState::Unknown {
        client.stop_container(id, STOP_GRACE).await?;
        match client.container_status(id).await? {
            None => return Ok(Outcome::AlreadyGone),
            Some(status) if status.state != ContainerState::Exited => {
                return Ok(Outcome::Skipped("it did not stop"));
            }
            Some(_) => {}
        }
    }
    match client.remove_container(id).await {
        Ok(()) => Ok(Outcome::Removed),
        Err(error) if error.is_lost() || error.is_timeout() => Err(error),
        // Someone else (the kubelet) may have been at it: gone is success.
        Err(error) => match client.container_status(id).await {
            Ok(None) => Ok(Outcome::AlreadyGone),
            Ok(Some(_)) | Err(_) => Err(error),
        },
    }
}

async fn sandbox(
    client: &cri::Client,
    removal: &Removal,
    id: &PodSandboxId,
) -> Result<Outcome, cri::Error> {
    if let Some(stays) = not_due(client, removal, id).await? {
        return Ok(stays);
    }
    let mut result = client.remove_pod_sandbox(id).await;
    // `RemovePodSandbox` stops what a dead sandbox still has, and each `StopPodSandbox` would run the
    // CNI teardown once more, so it is called only where the runtime asks for it.
    if result
        .as_ref()
        .is_err_and(|error| wants_stop(&error.to_string()))
    {
        // The first call took its time: both of these kill what has come up since.
        if let Some(stays) = not_due(client, removal, id).await? {
            return Ok(stays);
        }
        client.stop_pod_sandbox(id).await?;
        result = client.remove_pod_sandbox(id).await;
    }
    match result {
        Ok(()) => Ok(Outcome::Removed),
        Err(error) if error.is_lost() || error.is_timeout() => Err(error),
        Err(error) => match client.sandbox_status(id).await {
            Ok(None) => Ok(Outcome::AlreadyGone),
            Ok(Some(_)) | Err(_) => Err(error),
        },
    }
}

/// Asks the runtime whether the sandbox is still what was planned; if not, what becomes of it.
async fn not_due(
    client: &cri::Client,
    removal: &Removal,
    id: &PodSandboxId,
) -> Result<Option<Outcome>, cri::Error> {
    let Some(status) = client.sandbox_status(id).await? else {
        return Ok(Some(Outcome::AlreadyGone));
    };
    if status.created_at != removal.subject.created_at {
        return Ok(Some(Outcome::Skipped(
            "it was created at another time than planned",
        )));
    }
    if status.state != PodSandboxState::NotReady {
        return Ok(Some(Outcome::Skipped("it is ready")));
    }
    if !client.containers_of_sandbox(id).await?.is_empty() {
        return Ok(Some(Outcome::Skipped("a container names it")));
    }
    Ok(None)
}

/// No runtime that we tried asks for it; these are the ways in which one might.
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
