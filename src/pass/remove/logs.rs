//! Removes a log, after asking the runtime once more about its container or pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::super::stops::Stops;
use crate::gc::{Expected, Removal};
use crate::logs::{Error, Roots, container_log, dead_link, pod_dir};
use crate::model::{
    Container, ContainerId, ContainerState, FailureClass, RemovalOutcome, RemovedContainer,
    link_name,
};
use crate::runtime;
use crate::system::blocking::BlockingPool;

/// Removes logs.
#[derive(Debug)]
pub(super) struct LogRemover {
    roots: Arc<Roots>,
    pool: BlockingPool,
    patience: Duration,
    stops: Stops,
}

impl LogRemover {
    /// Removes below these roots, and waits for each removal at most `patience`.
    pub(super) fn new(roots: Roots, pool: BlockingPool, patience: Duration, stops: Stops) -> Self {
        Self {
            roots: Arc::new(roots),
            pool,
            patience,
            stops,
        }
    }

    /// Asks once more, and removes the log if it is still as planned.
    pub(super) async fn remove(
        &self,
        client: &runtime::Client,
        removal: &Removal,
    ) -> Result<RemovalOutcome, runtime::Error> {
        match &removal.expected {
            Expected::PodLogDir {
                uid,
                inode,
                modified_at,
            } => {
                if client.has_anything_of_pod(uid).await? {
                    return Ok(RemovalOutcome::skipped(
                        "the runtime has something of its pod",
                    ));
                }
                let (name, inode, planned) = (removal.subject.name.clone(), *inode, *modified_at);
                let work = move |roots: &Roots| pod_dir(roots, &name, inode, planned);
                Ok(self.run(work).await)
            }
            Expected::LogLink(id) => {
                if lives(client, id).await? {
                    return Ok(RemovalOutcome::skipped(
                        "its container is there and has not exited",
                    ));
                }
                let name = removal.subject.name.clone();
                Ok(self.run(move |roots| dead_link(roots, &name)).await)
            }
            Expected::ContainerLog(container) => self.of_container(client, container).await,
            Expected::Container(_) | Expected::Sandbox | Expected::Image { .. } => {
                Ok(RemovalOutcome::skipped("it was planned as something else"))
            }
        }
    }

    async fn of_container(
        &self,
        client: &runtime::Client,
        container: &RemovedContainer,
    ) -> Result<RemovalOutcome, runtime::Error> {
        if client.container_status(&container.id).await?.is_some() {
            return Ok(RemovalOutcome::skipped("its container is still there"));
        }
        // A pod that comes back (a static pod keeps its UID) counts attempts from 0 again, so the file may have
        // a new writer.
        let of_pod = client.containers_of_pod(&container.pod.uid).await?;
        for other in of_pod.iter().filter(|it| it.name == container.name) {
            if writes(client, other, container).await? {
                return Ok(RemovalOutcome::skipped("a container may write to it"));
            }
        }
        let path = Path::new(container.log_path.as_str());
        let Ok(below) = path.strip_prefix(&self.roots.pods).map(Path::to_owned) else {
            return Ok(RemovalOutcome::skipped(
                "it does not lie below the log root",
            ));
        };
        let link = link_name(&container.pod, &container.name, &container.id);
        let work = move |roots: &Roots| container_log(roots, &below, link.as_deref());
        Ok(self.run(work).await)
    }

    async fn run(
        &self,
        work: impl FnOnce(&Roots) -> Result<RemovalOutcome, Error> + Send + 'static,
    ) -> RemovalOutcome {
        if self.stops.reached().is_some() {
            return RemovalOutcome::NotBegun;
        }
        let roots = Arc::clone(&self.roots);
        match self.pool.run(self.patience, move || work(&roots)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => RemovalOutcome::failed(error.class(), error.to_string()),
            Err(error) => {
                RemovalOutcome::failed(FailureClass::Timeout, format!("log roots: {error}"))
            }
        }
    }
}

/// Says whether another record of the same name writes to the log: by its attempt, or, if it runs, by its log
/// path.
async fn writes(
    client: &runtime::Client,
    other: &Container,
    gone: &RemovedContainer,
) -> Result<bool, runtime::Error> {
    if other.attempt == gone.attempt {
        return Ok(true);
    }
    if other.state == ContainerState::Exited {
        return Ok(false);
    }
    let status = client.container_status(&other.id).await?;
    Ok(status.is_some_and(|status| status.log_path.as_str() == gone.log_path.as_str()))
}

async fn lives(client: &runtime::Client, id: &ContainerId) -> Result<bool, runtime::Error> {
    let status = client.container_status(id).await?;
    Ok(status.is_some_and(|status| status.state != ContainerState::Exited))
}
