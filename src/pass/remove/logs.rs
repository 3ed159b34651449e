//! Removes a log, after asking the runtime once more about its container or pod.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::stops::Stops;
use super::{RemovalStep, stays};
use crate::gc::{Expected, Removal};
use crate::logs::{Error, Roots, container_log, dead_link, pod_dir};
use crate::model::{
    Container, ContainerId, ContainerState, FailureClass, PodRef, RemovalOutcome, RemovedContainer,
    Rows, link_name,
};
use crate::runtime::{self, Listing};
use crate::system::blocking::BlockingPool;

/// How old a shared list of containers may be.
const SHARED_FOR: Duration = Duration::from_millis(100);
/// How long the shared list is not tried again after it failed: it may be over the limit for the whole pass.
const FAILED_FOR: Duration = Duration::from_secs(5);

/// Removes logs.
#[derive(Debug)]
pub(super) struct LogRemover {
    roots: Arc<Roots>,
    pool: BlockingPool,
    patience: Duration,
    stops: Stops,
    shared: SharedList,
}

/// A list of the node's containers that removals of logs share for a moment: a filtered list for each removal would cost
/// the runtime as much as a whole one.
#[derive(Debug, Default)]
struct SharedList(Mutex<Option<LatestListing>>);

/// The last try of the shared list.
#[derive(Clone, Debug)]
struct LatestListing {
    asked_at: Instant,
    answered_at: Instant,
    /// `None`: the list failed, a row has no id, or the list is empty, which a second answer must confirm.
    containers: Option<Rows<Container>>,
}

impl LatestListing {
    /// Says whether a call that began then may use it.
    fn serves(&self, began: Instant) -> bool {
        match self.containers {
            Some(_) => self.asked_at + SHARED_FOR >= began,
            None => self.answered_at + FAILED_FOR >= began,
        }
    }
}

impl SharedList {
    /// Returns the node's containers as they were when this call began, or at most [`SHARED_FOR`] before, and when the
    /// runtime had answered; `None` if the list does not tell.
    async fn containers(&self, client: &runtime::Client) -> Option<(Instant, Rows<Container>)> {
        let began = Instant::now();
        let mut recent = self.0.lock().await;
        let recent = match &mut *recent {
            Some(it) if it.serves(began) => it,
            outdated => {
                let asked_at = Instant::now();
                let listed = client.containers_at_once().await;
                outdated.insert(LatestListing {
                    asked_at,
                    answered_at: Instant::now(),
                    containers: listed.ok().filter(tells).map(|it| it.rows),
                })
            }
        };
        let containers = recent.containers.clone()?;
        Some((recent.answered_at, containers))
    }
}

impl LogRemover {
    /// Removes below these roots, and waits for each removal at most `patience`.
    pub(super) fn new(roots: Roots, pool: BlockingPool, patience: Duration, stops: Stops) -> Self {
        Self {
            roots: Arc::new(roots),
            pool,
            patience,
            stops,
            shared: SharedList::default(),
        }
    }

    /// Asks once more, and removes the log if it is still as planned.
    pub(super) async fn remove(
        &self,
        client: &runtime::Client,
        removal: &Removal,
    ) -> RemovalStep<RemovalOutcome> {
        match &removal.expected {
            Expected::PodLogDir {
                uid,
                inode,
                modified_at,
            } => {
                if client.has_anything_of_pod(uid).await? {
                    return stays("the runtime has something of its pod");
                }
                let (name, inode, planned) = (removal.subject.name.clone(), *inode, *modified_at);
                let work = move |roots: &Roots| pod_dir(roots, &name, inode, planned);
                Ok(self.run(work).await)
            }
            Expected::LogLink(id) => {
                if lives(client, id).await? {
                    return stays("its container is there and has not exited");
                }
                let name = removal.subject.name.clone();
                Ok(self.run(move |roots| dead_link(roots, &name)).await)
            }
            Expected::ContainerLog(container) => self.of_container(client, container).await,
            Expected::Container(_) | Expected::Sandbox | Expected::Image { .. } => {
                stays("it was planned as something else")
            }
        }
    }

    async fn of_container(
        &self,
        client: &runtime::Client,
        container: &RemovedContainer,
    ) -> RemovalStep<RemovalOutcome> {
        self.not_needed(client, container).await?;
        let path = Path::new(container.log_path.as_str());
        let Ok(below) = path.strip_prefix(&self.roots.pods).map(Path::to_owned) else {
            return stays("it does not lie below the log root");
        };
        let link = link_name(&container.pod, &container.name, &container.id);
        let work = move |roots: &Roots| container_log(roots, &below, link.as_deref());
        Ok(self.run(work).await)
    }

    /// Ends the removal if the log of a removed container may be written or read again.
    async fn not_needed(&self, client: &runtime::Client, gone: &RemovedContainer) -> RemovalStep {
        let shared = self.shared.containers(client).await;
        let is_listed = |all: &Rows<Container>| all.iter().any(|it| it.id == gone.id);
        // It may have gone since.
        if shared.as_ref().is_none_or(|(_, all)| is_listed(all))
            && client.container_status(&gone.id).await?.is_some()
        {
            return stays("its container is still there");
        }
        // The answer to that question may have taken long.
        let listed = match shared {
            Some((answered_at, all)) if answered_at.elapsed() <= SHARED_FOR => all,
            Some(_) | None => client.containers_of_pod(&gone.pod.uid).await?.into(),
        };
        for other in listed.iter().filter(|it| is_namesake(it, gone)) {
            if writes(client, other, gone).await? {
                return stays("a container may write to it");
            }
        }
        Ok(())
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

/// Says whether a list names the containers of every pod.
fn tells(list: &Listing<Container>) -> bool {
    let has_id = |row: &Container| !row.id.is_stand_in();
    list.malformed == 0 && !list.rows.is_empty() && list.rows.iter().all(has_id)
}

/// Says whether a listed container is another one of the removed one's name in its pod. A pod that comes back (a static pod
/// keeps its UID) counts attempts from 0 again, so the file may have a new writer.
fn is_namesake(listed: &Container, gone: &RemovedContainer) -> bool {
    let is_of_pod = |pod: &Arc<PodRef>| pod.uid == gone.pod.uid;
    listed.id != gone.id && listed.name == gone.name && listed.pod.as_ref().is_some_and(is_of_pod)
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
