//! When containers exited. The lists carry creation times only, so each exited container is asked
//! for its status once; an exited one never changes, so the answer is kept as long as it is listed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::cri;
use crate::model::{Container, ContainerId, ContainerState, PodSandbox, PodUid};

/// Status calls in flight: enough to hide the round trip, too few to burden a sick runtime.
const IN_FLIGHT: usize = 4;
/// Calls without an answer in time, after which a look asks no more.
const TIMEOUTS_MAX: u32 = 4;

/// Known exit times.
#[derive(Debug, Default)]
pub(super) struct Exits {
    known: BTreeMap<ContainerId, Timestamp>,
    last: BTreeMap<PodUid, Timestamp>,
}

impl Exits {
    /// Fills in `finished_at` of the exited rows, asking for what is not known yet, oldest creation
    /// first, for at most `budget`. Returns how many stay without.
    pub(super) async fn fill(
        &mut self,
        client: &cri::Client,
        rows: &mut [Container],
        now: Timestamp,
        budget: Duration,
    ) -> usize {
        let listed: BTreeSet<&ContainerId> = rows.iter().map(|row| &row.id).collect();
        self.known.retain(|id, _| listed.contains(id));
        // What was read by its status tells it by itself.
        let told = rows
            .iter()
            .filter(|row| row.state == ContainerState::Exited);
        let told = told.filter_map(|row| Some((row.id.clone(), row.finished_at?)));
        self.known.extend(told);
        let mut missing: Vec<(Timestamp, ContainerId)> = rows
            .iter()
            .filter(|row| row.state == ContainerState::Exited && !self.known.contains_key(&row.id))
            .map(|row| (row.created_at, row.id.clone()))
            .collect();
        missing.sort();
        self.ask(client, missing, budget).await;
        let mut unknown = 0;
        for row in rows
            .iter_mut()
            .filter(|row| row.state == ContainerState::Exited)
        {
            // Before its creation is after a clock step: the later of the two errs towards young.
            row.finished_at = self.known.get(&row.id).map(|at| (*at).max(row.created_at));
            match (row.finished_at, &row.pod) {
                (Some(at), Some(pod)) if at <= now => {
                    let last = self.last.entry(pod.uid.clone()).or_insert(at);
                    *last = at.max(*last);
                }
                (Some(_), _) => {}
                (None, _) => unknown += 1,
            }
        }
        unknown
    }

    async fn ask(
        &mut self,
        client: &cri::Client,
        missing: Vec<(Timestamp, ContainerId)>,
        budget: Duration,
    ) {
        let until = Instant::now() + budget;
        let mut queue = missing.into_iter();
        let mut calls = FuturesUnordered::new();
        let mut timeouts = 0;
        loop {
            while calls.len() < IN_FLIGHT {
                let Some((_, id)) = queue.next() else { break };
                calls.push(async move {
                    let status = client.container_status(&id).await;
                    (id, status)
                });
            }
            let Ok(Some((id, status))) = tokio::time::timeout_at(until, calls.next()).await else {
                return;
            };
            match status {
                Ok(Some(status)) if status.state == ContainerState::Exited => {
                    self.known.extend(status.finished_at.map(|at| (id, at)));
                }
                // The runtime is gone, or has better things to do: ask again at the next look. One
                // container that never answers must not keep the exits of all others unknown.
                Err(error) if error.is_lost() => return,
                Err(error) if error.is_timeout() => {
                    timeouts += 1;
                    if timeouts >= TIMEOUTS_MAX {
                        return;
                    }
                }
                // Gone, not exited after all, or refused: nothing to remember.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Drops the pods that the runtime has nothing of any more.
    pub(super) fn forget_pods_without(&mut self, rows: &[Container], sandboxes: &[PodSandbox]) {
        let of_rows = rows.iter().filter_map(|row| row.pod.as_ref());
        let of_sandboxes = sandboxes.iter().filter_map(|sandbox| sandbox.pod.as_ref());
        let present: BTreeSet<&PodUid> = of_rows.chain(of_sandboxes).map(|pod| &pod.uid).collect();
        self.last.retain(|uid, _| present.contains(uid));
    }

    /// Returns when each pod's last container was seen to exit.
    pub(super) fn last_exits(&self) -> &BTreeMap<PodUid, Timestamp> {
        &self.last
    }
}
