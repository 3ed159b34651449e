//! The lower rungs: what is over the limit even by its state is asked for by name. Names come from the
//! list's other rows, from the other list, from the node's disk, and from containerd's own service.
//!
//! A name that nobody knows is not found, so the list counts as whole only if containerd's service, which
//! knows every id, proves it.

use std::collections::BTreeSet;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::containerd::{self, Ids};
use super::disk;
use super::found::Found;
use super::kind::{Held, Question};
use super::{Client, Clock, Error, Kind, ListMode, ask, by_state};
use crate::cri::codec::Page;
use crate::model::{ContainerId, PodSandboxId, PodUid};

/// Questions in flight: enough to hide the round trip, too few to burden a sick runtime, which walks
/// through all its records for each filtered list.
const IN_FLIGHT: usize = 4;
/// Questions without an answer in time, after which no more are asked.
const TIMEOUTS_MAX: usize = 4;
/// Answers over the limit without a single one below it, after which it is clear that the runtime does
/// not apply the filter.
const OVER_LIMIT_MAX: usize = 3;
/// Pods from which on ids are asked about one by one, where containerd's service has them: for each
/// filtered list the runtime walks through all its records, for each id through one.
const PODS_MAX: usize = 256;
/// Rows that containerd's service does not have and that are asked about once more.
const STRANGERS_MAX: usize = 64;

/// How far down it went, and whether that was enough.
pub(super) struct Named {
    pub(super) mode: ListMode,
    pub(super) is_whole: bool,
}

/// Adds to `found` what can be found by name.
pub(super) async fn read<K: Kind>(
    client: &Client,
    found: &mut Found<K::Model>,
    clock: Clock,
) -> Result<Named, Error> {
    let mut asking = Asking::<K>::new(client, clock);
    let names = disk::names(&client.shared.settings.log_roots).await;
    let other = neighbours::<K::Other>(client, clock).await?;
    let of_rows = found.rows().filter_map(Held::pod).cloned();
    let of_other = other.iter().filter_map(|(uid, _)| uid.clone());
    let pods: BTreeSet<PodUid> = names
        .pods
        .into_iter()
        .chain(of_rows)
        .chain(of_other)
        .collect();
    let mut mode = ListMode::PerPod;
    let is_many = pods.len() > PODS_MAX;
    let mut ids = None;
    if is_many {
        ids = service::<K>(client, clock).await?;
    }
    if ids.is_none() {
        asking.pods(pods, found).await?;
        let bare = other
            .into_iter()
            .filter(|(uid, _)| !asking.has(uid.as_ref()));
        let bare: BTreeSet<PodSandboxId> = bare.map(|(_, sandbox)| sandbox).collect();
        let bare = bare.into_iter().map(Question::Sandbox).collect();
        asking.lists(bare, found).await?;
    }
    if !is_many {
        ids = service::<K>(client, clock).await?;
    }
    let mut is_whole = match &ids {
        Some(ids) => proves::<K>(client, ids, found, clock).await?,
        None => false,
    };
    let missing = |found: &Found<K::Model>| -> Vec<(Box<str>, Option<PodUid>)> {
        let ids = ids.iter().flatten().filter(|(id, _)| !found.contains(id));
        ids.map(|(id, uid)| (id.clone(), uid.clone())).collect()
    };
    let unasked: BTreeSet<PodUid> = missing(found)
        .into_iter()
        .filter_map(|(_, uid)| uid)
        .filter(|uid| !asking.has(Some(uid)))
        .collect();
    if !unasked.is_empty() && unasked.len() <= PODS_MAX && !is_many {
        mode = ListMode::Containerd;
        asking.pods(unasked, found).await?;
    }
    let mut left: BTreeSet<Box<str>> = missing(found).into_iter().map(|(id, _)| id).collect();
    // Links outlive their containers: they tell nothing to whom all ids are known.
    if ids.is_none() && K::LABEL == "container" {
        let on_disk = names.containers.iter().map(ContainerId::as_str);
        left.extend(on_disk.filter(|id| !found.contains(id)).map(Box::from));
    }
    if !left.is_empty() {
        let (all, any) = asking.one_by_one(left, found).await?;
        is_whole &= all;
        if any {
            mode = ListMode::Status;
        }
    }
    Ok(Named { mode, is_whole })
}

/// Reads of the other list what fits, for its names alone. What is not there is not missed.
async fn neighbours<K: Kind>(
    client: &Client,
    clock: Clock,
) -> Result<BTreeSet<(Option<PodUid>, PodSandboxId)>, Error> {
    let memory = K::stand(&client.shared.stands).memory().clone();
    let whole = if memory.below {
        None
    } else {
        let link = client.runtime();
        link.list::<K>(&K::LIST, clock.next()).await.ok()
    };
    let found = match whole {
        Some((_, page)) => {
            let mut found = Found::default();
            found.add(page, K::id);
            found
        }
        None => match by_state::<K>(client, &memory, clock).await {
            Ok((found, _)) => found,
            Err(error) if error.is_lost() => return Err(error),
            Err(_) => Found::default(),
        },
    };
    let name = |row: &K::Model| (row.pod().cloned(), row.sandbox().clone());
    Ok(found.rows().map(name).collect())
}

/// Asks containerd's own service for every id. A service that fails proves nothing.
pub(super) async fn service<K: Kind>(client: &Client, clock: Clock) -> Result<Option<Ids>, Error> {
    if clock.is_up() {
        return Ok(None);
    }
    let missing = &client.shared.stands.service_missing;
    match containerd::ids(client.runtime(), missing, K::LABEL, clock.next()).await {
        Ok(ids) => Ok(ids),
        Err(error) if error.is_lost() => Err(error),
        Err(error) => {
            tracing::debug!(%error, "containerd's own service does not answer");
            Ok(None)
        }
    }
}

/// Asks for parts of a list, a few at a time.
struct Asking<'a, K> {
    client: &'a Client,
    clock: Clock,
    /// The pods that were asked about as a whole, with an answer.
    asked: BTreeSet<PodUid>,
    answers: usize,
    over_limit: usize,
    timeouts: usize,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<'a, K: Kind> Asking<'a, K> {
    fn new(client: &'a Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            asked: BTreeSet::new(),
            answers: 0,
            over_limit: 0,
            timeouts: 0,
            kind: std::marker::PhantomData,
        }
    }

    fn has(&self, uid: Option<&PodUid>) -> bool {
        uid.is_some_and(|uid| self.asked.contains(uid))
    }

    /// There is no point in asking for more.
    fn is_over(&self) -> bool {
        self.clock.is_up() || self.timeouts >= TIMEOUTS_MAX
    }

    async fn pods(
        &mut self,
        pods: BTreeSet<PodUid>,
        found: &mut Found<K::Model>,
    ) -> Result<(), Error> {
        self.lists(pods.into_iter().map(Question::Pod).collect(), found)
            .await
    }

    async fn lists(
        &mut self,
        questions: Vec<Question>,
        found: &mut Found<K::Model>,
    ) -> Result<(), Error> {
        let (client, clock) = (self.client, self.clock);
        let mut queue = questions.into_iter();
        let mut calls = FuturesUnordered::new();
        loop {
            let filters = self.answers > 0 || self.over_limit < OVER_LIMIT_MAX;
            while filters && !self.is_over() && calls.len() < IN_FLIGHT {
                let Some(question) = queue.next() else { break };
                calls.push(async move {
                    let answer = ask::<K>(client, question.clone(), clock).await;
                    (question, answer)
                });
            }
            let Some((question, answer)) = calls.next().await else {
                return Ok(());
            };
            self.take(question, answer, found)?;
        }
    }

    /// Takes an answer in. Whatever fails but for the runtime being away leaves a gap, no more.
    fn take(
        &mut self,
        question: Question,
        answer: Result<Page<K::Model>, Error>,
        found: &mut Found<K::Model>,
    ) -> Result<(), Error> {
        match answer {
            Ok(page) => {
                self.answers += 1;
                found.add(page, K::id);
                if let Question::Pod(uid) = question {
                    self.asked.insert(uid);
                }
            }
            Err(error) if error.is_lost() => return Err(error),
            Err(Error::TooLarge { .. }) => self.over_limit += 1,
            Err(error) => {
                self.timeouts += usize::from(error.is_timeout());
                tracing::debug!(%error, ?question, "a part of a list cannot be read");
            }
        }
        Ok(())
    }

    /// Asks id by id. Returns whether each one was found or is gone, and whether any was found.
    async fn one_by_one(
        &mut self,
        ids: BTreeSet<Box<str>>,
        found: &mut Found<K::Model>,
    ) -> Result<(bool, bool), Error> {
        let (client, clock) = (self.client, self.clock);
        let (mut all, mut any) = (true, false);
        let mut queue = ids.into_iter();
        let mut calls = FuturesUnordered::new();
        loop {
            while !self.is_over() && calls.len() < IN_FLIGHT {
                let Some(id) = queue.next() else { break };
                calls.push(async move {
                    let record = tokio::time::timeout(clock.next(), K::record(client, &id)).await;
                    (id, record)
                });
            }
            let Some((id, record)) = calls.next().await else {
                break;
            };
            match record {
                Ok(Ok(Some(row))) => {
                    any = true;
                    found.add_one(&id, row);
                }
                Ok(Ok(None)) => found.remove(&id),
                Ok(Err(error)) if error.is_lost() => return Err(error),
                Ok(Err(error)) => {
                    all = false;
                    self.timeouts += usize::from(error.is_timeout());
                    tracing::debug!(%error, %id, "a record cannot be read");
                }
                Err(_elapsed) => {
                    all = false;
                    self.timeouts += 1;
                }
            }
        }
        Ok((all && queue.next().is_none(), any))
    }
}

/// Says whether `ids` has every row that was found before: else it is not the list of all ids that it is
/// taken for. A row that is gone meanwhile proves nothing against it; nor does a list of nothing prove
/// that there is nothing of what was too much to send.
pub(super) async fn proves<K: Kind>(
    client: &Client,
    ids: &Ids,
    found: &mut Found<K::Model>,
    clock: Clock,
) -> Result<bool, Error> {
    let strangers = found
        .ids()
        .filter(|id| !ids.contains_key(*id))
        .map(Box::from);
    let strangers: BTreeSet<Box<str>> = strangers.collect();
    if ids.is_empty() || strangers.len() > STRANGERS_MAX {
        return Ok(false);
    }
    let (all, any) = Asking::<K>::new(client, clock)
        .one_by_one(strangers, found)
        .await?;
    Ok(all && !any)
}
