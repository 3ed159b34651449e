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
use crate::system::blocking::{BlockingPool, FreeThread, NoAnswer};

/// How old a shared list of containers may be.
const SHARED_FOR: Duration = Duration::from_millis(100);
/// How long the shared list is not tried again after it failed: it may be over the limit for the whole pass.
const FAILED_FOR: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct LogRemover {
    roots: Arc<Roots>,
    pool: BlockingPool,
    patience: Duration,
    stops: Stops,
    shared: SharedList,
}

/// A list of the node's containers that removals of logs share for a moment: a filtered list for each removal would
/// cost the runtime as much as a whole one.
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
        // Before the questions: no answer may grow old while its removal waits for a thread.
        let thread = self.pool.free_thread(self.patience).await;
        let thread = thread.map_err(without_answer)?;
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
                self.may_go_on()?;
                Ok(self.run(thread, work).await)
            }
            Expected::LogLink(id) => {
                if lives(client, id).await? {
                    return stays("its container is there and has not exited");
                }
                let name = removal.subject.name.clone();
                let work = move |roots: &Roots| dead_link(roots, &name);
                self.may_go_on()?;
                Ok(self.run(thread, work).await)
            }
            Expected::ContainerLog(container) => self.of_container(thread, client, container).await,
            Expected::Container(_) | Expected::Sandbox | Expected::Image { .. } => {
                stays("it was planned as something else")
            }
        }
    }

    async fn of_container(
        &self,
        thread: FreeThread,
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
        Ok(self.run(thread, work).await)
    }

    /// Ends the removal if the log of a removed container may be written or read again.
    async fn not_needed(&self, client: &runtime::Client, gone: &RemovedContainer) -> RemovalStep {
        let shared = self.shared.containers(client).await;
        let is_listed = |all: &Rows<Container>| all.iter().any(|it| it.id == gone.id);
        // The shared list may be older than the removal of the container: ask again.
        if shared.as_ref().is_none_or(|(_, all)| is_listed(all))
            && client.container_status(&gone.id).await?.is_some()
        {
            return stays("its container is still there");
        }
        // The status call may have taken long: take a new list then.
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

    /// Ends the removal if the pass must end. The log of a removed container goes all the same.
    fn may_go_on(&self) -> RemovalStep {
        if self.stops.reached().is_some() {
            return Err(RemovalOutcome::NotBegun);
        }
        Ok(())
    }

    async fn run(
        &self,
        thread: FreeThread,
        work: impl FnOnce(&Roots) -> Result<RemovalOutcome, Error> + Send + 'static,
    ) -> RemovalOutcome {
        let roots = Arc::clone(&self.roots);
        match thread.run(self.patience, move || work(&roots)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => RemovalOutcome::failed(error.class(), error.to_string()),
            Err(error) => without_answer(error),
        }
    }
}

fn without_answer(error: NoAnswer) -> RemovalOutcome {
    RemovalOutcome::failed(FailureClass::Timeout, format!("log roots: {error}"))
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use crisweep_proto::cri;
    use crisweep_sim::{Fault, NodeBuilder, Options, PodSpec, Rpc, Sim};
    use jiff::Timestamp;
    use prost::Message;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::gc::{PodKnowledge, Subject};
    use crate::model::{PodUid, RemoveReason, Target};

    const UID: &str = "0123456789abcdef0123456789abcdef";
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A removal of the log of a static pod's container.
    fn removal(roots: &Roots) -> Removal {
        let pod = Arc::new(PodRef {
            uid: PodUid::new(UID).unwrap(),
            namespace: "default".into(),
            name: "etcd".into(),
        });
        let log_path = format!("{}/default_etcd_{UID}/app/0.log", roots.pods.display());
        let container = RemovedContainer {
            id: ContainerId::new("a".repeat(64)).unwrap(),
            name: "app".into(),
            attempt: 0,
            pod: Arc::clone(&pod),
            created_at: Timestamp::UNIX_EPOCH,
            log_path: log_path.clone().into(),
        };
        Removal {
            subject: Subject {
                target: Target::Logs,
                id: log_path.into(),
                name: "0.log".into(),
                pod: Some(pod),
                pod_state: PodKnowledge::Deleted,
                attempt: 0,
                created_at: Timestamp::UNIX_EPOCH,
                age_seconds: 0,
                image: None,
            },
            reason: RemoveReason::ContainerRemoved,
            detail: Box::default(),
            expected: Expected::ContainerLog(Box::new(container)),
            superseded_by: Arc::default(),
        }
    }

    /// A runtime with one pod.
    fn runtime(dir: &Path) -> (Sim, runtime::Client) {
        let node = NodeBuilder::new().pod(PodSpec::new("web").running("app", 0));
        let sim = Sim::start(dir.join("cri.sock"), node.build(), Options::default()).unwrap();
        let client = runtime::Client::new(runtime::Settings {
            endpoint: sim.socket().to_owned(),
            image_endpoint: None,
            timeout: PATIENCE,
            removal_timeout: PATIENCE,
            max_message_bytes: 16 << 20,
            log_roots: runtime::LogRoots::default(),
        });
        (sim, client)
    }

    #[tokio::test]
    async fn a_list_that_may_lack_a_container_is_not_shared() {
        let dir = tempfile::tempdir().unwrap();
        let (sim, client) = runtime(dir.path());
        let web = sim.containers().remove(0).row;
        let without_id = cri::Container {
            id: String::new(),
            ..web.clone()
        };
        for (containers, tells) in [
            (vec![web.clone()], true),
            (vec![], false),
            (vec![web.clone(), without_id], false),
            (vec![web.clone(), cri::Container::default()], false),
        ] {
            let list = cri::ListContainersResponse { containers }.encode_to_vec();
            sim.set_fault(Rpc::ListContainers, Fault::garbage(list));
            let shared = SharedList::default().containers(&client).await;
            assert_eq!(shared.is_some(), tells);
        }
    }

    /// All threads are busy with other logs on a slow disk.
    #[tokio::test]
    async fn a_pod_that_returns_while_its_log_waits_for_a_thread_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let (sim, client) = runtime(dir.path());
        let roots = Roots {
            host_root: "/".into(),
            pods: dir.path().join("pods"),
            containers: dir.path().join("containers"),
        };
        let removal = removal(&roots);
        let log = Path::new(removal.subject.id.as_str());
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        std::fs::write(log, "a line\n").unwrap();

        let pool = BlockingPool::new(1);
        let (end, may_end) = channel::<()>();
        let busy = pool.free_thread(PATIENCE).await.unwrap();
        let busy = tokio::spawn(busy.run(PATIENCE, move || may_end.recv().is_ok()));
        let stops = Stops {
            cancelled: CancellationToken::new(),
            held: CancellationToken::new(),
            shutdown: CancellationToken::new(),
            deadline: None,
        };
        let remover = LogRemover::new(roots.clone(), pool, PATIENCE, stops);
        let returns = async {
            let asks = async {
                while sim.call_count(Rpc::ListContainers) == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let asked = tokio::time::timeout(Duration::from_millis(300), asks).await;
            let pod = PodSpec::new("etcd").static_pod().uid(UID).running("app", 0);
            sim.add_pod(&pod);
            drop(end);
            asked.is_ok()
        };
        let (outcome, was_asked) = tokio::join!(remover.remove(&client, &removal), returns);
        assert!(!was_asked, "an answer grows old while the removal waits");
        let why = "a container may write to it";
        assert_eq!(outcome.unwrap_err(), RemovalOutcome::skipped(why));
        assert!(log.exists());
        assert!(!busy.await.unwrap().unwrap());
    }
}
