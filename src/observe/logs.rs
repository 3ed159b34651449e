//! The log roots: what lies there, since when it is an orphan's, and what the runtime says of the
//! containers that dead links name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Part, timed};
use crate::cri;
use crate::logs::{Aside, Roots, scan};
use crate::model::{
    Container, ContainerId, ContainerState, LinkTarget, LinkedContainer, Logs, PodSandbox, PodUid,
    Pods, Rows, container_id_of, pod_uid_of,
};

/// How long a look waits for the roots; nobody waits longer for a dead disk.
const SCAN_TIMEOUT: Duration = Duration::from_secs(5);
/// Status calls in flight: enough to hide the round trip, too few to burden a sick runtime.
const IN_FLIGHT: usize = 4;
/// Calls without an answer in time, after which a look asks no more.
const TIMEOUTS_MAX: u32 = 4;

/// Reads the roots, if there are any to read.
#[derive(Debug)]
pub(super) struct Scanner {
    roots: Mutex<Option<Roots>>,
    aside: Aside,
}

impl Scanner {
    /// Returns one that has nothing to read yet.
    pub(super) fn new() -> Self {
        Self {
            roots: Mutex::default(),
            aside: Aside::new(1),
        }
    }

    /// Says what to read from now on; `None`: nothing.
    pub(super) fn set_roots(&self, roots: Option<Roots>) {
        *self.roots.lock().unwrap_or_else(PoisonError::into_inner) = roots;
    }

    fn roots(&self) -> Option<Roots> {
        let roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        roots.clone()
    }

    /// Reads the roots, if any, and says how long that took.
    pub(super) async fn scan(&self, took: &mut Duration) -> Logs {
        match self.roots() {
            Some(roots) => timed(took, self.read(roots)).await,
            None => Logs::default(),
        }
    }

    async fn read(&self, roots: Roots) -> Logs {
        let unread = |why: String| Logs {
            unread: vec![why],
            ..Logs::default()
        };
        if self.aside.is_busy() {
            return unread("the file system of the logs still hangs since an earlier look".into());
        }
        let scanned = self.aside.run(SCAN_TIMEOUT, move || scan(&roots)).await;
        scanned.unwrap_or_else(|error| unread(error.to_string()))
    }
}

/// What one look must know of earlier ones.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Since when each directory is an orphan's, by its path.
    orphans: BTreeMap<String, Timestamp>,
    /// Containers that the runtime did not find; an id never comes back.
    not_found: BTreeSet<ContainerId>,
}

/// The runtime's and the pod source's part of the same look.
pub(super) struct Seen<'a> {
    pub(super) containers: &'a Part<cri::Listed<Container>>,
    pub(super) sandboxes: &'a Part<cri::Listed<PodSandbox>>,
    pub(super) pods: &'a Pods,
    pub(super) taken_at: Timestamp,
}

impl Known {
    /// Fills in what the roots alone do not tell; asks the runtime for at most `budget`.
    pub(super) async fn fill(
        &mut self,
        client: &cri::Client,
        logs: &mut Logs,
        seen: &Seen<'_>,
        budget: Duration,
    ) {
        let (Ok(containers), Ok(sandboxes)) = (seen.containers, seen.sandboxes) else {
            // Half a node tells nobody's end. What was known of orphans stays known.
            return;
        };
        self.date_orphans(logs, &containers.rows, &sandboxes.rows, seen);
        self.ask(client, logs, &containers.rows, budget).await;
    }

    fn date_orphans(
        &mut self,
        logs: &mut Logs,
        containers: &[Container],
        sandboxes: &[PodSandbox],
        seen: &Seen<'_>,
    ) {
        let of_containers = containers.iter().filter_map(|it| it.pod.as_ref());
        let of_sandboxes = sandboxes.iter().filter_map(|it| it.pod.as_ref());
        let shown: BTreeSet<&PodUid> = of_containers
            .chain(of_sandboxes)
            .map(|pod| &pod.uid)
            .collect();
        let listed = match seen.pods {
            Pods::Known(list) => Some(list),
            Pods::Unknown(_) => None,
        };
        if logs.unread.is_empty() {
            let present: BTreeSet<&str> = logs.dirs.iter().map(|dir| dir.path.as_str()).collect();
            self.orphans
                .retain(|path, _| present.contains(path.as_str()));
        }
        for dir in logs.dirs.iter_mut() {
            let Some(uid) = pod_uid_of(&dir.name) else {
                continue;
            };
            let exists = listed.is_some_and(|list| list.pods.contains_key(&uid));
            if shown.contains(&uid) || exists {
                self.orphans.remove(&dir.path);
            } else if listed.is_some() && !self.orphans.contains_key(&dir.path) {
                self.orphans.insert(dir.path.clone(), seen.taken_at);
            }
            dir.orphan_since = self.orphans.get(&dir.path).copied();
        }
    }

    /// Asks about the containers of dead links that the list does not have, each one once.
    async fn ask(
        &mut self,
        client: &cri::Client,
        logs: &mut Logs,
        containers: &Rows<Container>,
        budget: Duration,
    ) {
        let listed: BTreeSet<&ContainerId> = containers.iter().map(|it| &it.id).collect();
        let dead: BTreeMap<usize, ContainerId> = logs
            .links
            .iter()
            .enumerate()
            .filter(|(_, link)| link.is_link && link.target == LinkTarget::Missing)
            .filter_map(|(at, link)| Some((at, container_id_of(&link.name)?)))
            .filter(|(_, id)| !listed.contains(id))
            .collect();
        if logs.unread.is_empty() {
            let named: BTreeSet<&ContainerId> = dead.values().collect();
            self.not_found.retain(|id| named.contains(id));
        }
        if dead.is_empty() {
            return;
        }
        let unasked = dead.values().filter(|id| !self.not_found.contains(*id));
        let answers = answers(client, unasked.cloned().collect(), budget).await;
        let gone = answers
            .iter()
            .filter(|(_, answer)| **answer == LinkedContainer::NotFound);
        self.not_found.extend(gone.map(|(id, _)| id.clone()));
        for (at, id) in dead {
            if let Some(link) = logs.links.get_mut(at) {
                link.container = if self.not_found.contains(&id) {
                    LinkedContainer::NotFound
                } else {
                    let answer = answers.get(&id);
                    answer.copied().unwrap_or(LinkedContainer::NotAsked)
                };
            }
        }
    }
}

async fn answers(
    client: &cri::Client,
    ids: Vec<ContainerId>,
    budget: Duration,
) -> BTreeMap<ContainerId, LinkedContainer> {
    let until = Instant::now() + budget;
    let mut queue = ids.into_iter();
    let mut calls = FuturesUnordered::new();
    let mut answers = BTreeMap::new();
    let mut timeouts = 0;
    loop {
        while calls.len() < IN_FLIGHT {
            let Some(id) = queue.next() else { break };
            calls.push(async move {
                let status = client.container_status(&id).await;
                (id, status)
            });
        }
        let Ok(Some((id, status))) = tokio::time::timeout_at(until, calls.next()).await else {
            return answers;
        };
        match status {
            Ok(None) => drop(answers.insert(id, LinkedContainer::NotFound)),
            Ok(Some(status)) => {
                let answer = match status.state {
                    ContainerState::Exited => LinkedContainer::Exited,
                    ContainerState::Created | ContainerState::Running | ContainerState::Unknown => {
                        LinkedContainer::Lives
                    }
                };
                answers.insert(id, answer);
            }
            // The runtime is gone, or has better things to do: ask again at the next look.
            Err(error) if error.is_lost() => return answers,
            Err(error) if error.is_timeout() => {
                timeouts += 1;
                if timeouts >= TIMEOUTS_MAX {
                    return answers;
                }
            }
            // Any other error is no answer: the kubelet would take it for one.
            Err(_refused) => {}
        }
    }
}
