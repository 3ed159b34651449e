//! The last fallbacks: objects of states over the limit are asked for by name.
//!
//! containerd's own container service has every id, so with it the list is complete, and rows read by earlier
//! looks need not be read again. For other runtimes names come from the list's other rows, from the other list,
//! and from the node's disk. An object without such a name is not found, so the list is never complete.

use std::collections::{BTreeMap, BTreeSet};

use super::containerd::{self, Ids};
use super::disk;
use super::fallback_list::{ListFilter, ListedRecord};
use super::found::FoundRows;
use super::questions::Questions;
use super::{Client, Clock, Error, FallbackList, ListMode, by_state};
use crate::model::{ContainerId, PodSandboxId, PodUid};

/// Roughly how many records containerd walks for a filtered list in the time of one call by id.
const RECORDS_PER_QUESTION: usize = 150;
/// Rows missing from containerd's service that are asked about once more.
const STRANGERS_MAX: usize = 64;

/// Which fallback was used, and whether it was enough.
pub(super) struct NameLookup {
    pub(super) mode: ListMode,
    pub(super) is_whole: bool,
    /// Pods of which every record was found, although the list may lack others.
    pub(super) whole_pods: BTreeSet<PodUid>,
    /// Time ran out before every name was asked for.
    pub(super) cut_short: bool,
}

/// Adds to `found` the objects that can be found by name.
pub(super) async fn read<K: FallbackList>(
    client: &Client,
    found: &mut FoundRows<K::Model>,
    clock: Clock,
) -> Result<NameLookup, Error> {
    let ids = service::<K>(client, clock).await?.unwrap_or_default();
    let mut asking = Questions::<K>::keeping(client, clock);
    let mut whole_pods = BTreeSet::new();
    let (mode, is_whole) = if proves::<K>(client, &ids, found, clock).await? {
        let is_whole = by_ids(client, &ids, found, &mut asking).await?;
        (ListMode::Containerd, is_whole)
    } else {
        whole_pods = by_names(client, &ids, found, &mut asking).await?;
        (ListMode::PerPod, false)
    };
    let mode = match found.asked().next() {
        Some(_) => ListMode::Status,
        None => mode,
    };
    Ok(NameLookup {
        mode,
        is_whole,
        whole_pods,
        cut_short: asking.cut_short,
    })
}

/// Adds the rows with these ids, and says whether none is missing. Uses cached rows that cannot have changed.
async fn by_ids<K: FallbackList>(
    client: &Client,
    ids: &Ids,
    found: &mut FoundRows<K::Model>,
    asking: &mut Questions<'_, K>,
) -> Result<bool, Error> {
    let state = K::list_state(&client.shared.list_states);
    state.row_cache(client).fill(ids, found);
    let pods = pods_worth_a_list(ids, found);
    let pods = pods.into_iter().map(ListFilter::Pod);
    let pods = pods.filter(|pod| !state.row_cache(client).refused.contains(pod));
    asking.parts(pods.collect(), found).await?;
    asking.one_by_one(missing(ids, found), found).await
}

/// Returns the pods for which a list is cheaper than asking for each missing container.
fn pods_worth_a_list<M>(ids: &Ids, found: &FoundRows<M>) -> BTreeSet<PodUid> {
    let mut counts: BTreeMap<&PodUid, usize> = BTreeMap::new();
    for (id, uid) in ids {
        if let Some(uid) = uid
            && !found.contains(id)
        {
            *counts.entry(uid).or_default() += 1;
        }
    }
    let list_costs = 1 + ids.len() / RECORDS_PER_QUESTION;
    let worth = counts.into_iter().filter(|(_, count)| *count > list_costs);
    worth.map(|(uid, _)| uid.clone()).collect()
}

fn missing<M>(ids: &Ids, found: &FoundRows<M>) -> BTreeSet<Box<str>> {
    let missing = ids.keys().filter(|id| !found.contains(id));
    missing.cloned().collect()
}

/// Adds objects named elsewhere, and objects with one of these ids: first those that no look has read, then,
/// for a short time, the others. Returns the pods of which every record was found.
async fn by_names<K: FallbackList>(
    client: &Client,
    ids: &Ids,
    found: &mut FoundRows<K::Model>,
    asking: &mut Questions<'_, K>,
) -> Result<BTreeSet<PodUid>, Error> {
    let names = disk::names(&client.shared.disk, &client.shared.settings.log_roots).await;
    let state = K::list_state(&client.shared.list_states);
    let filled = state.row_cache(client).fill_unconfirmed(found);
    let mut other = neighbours::<K::Other>(client, asking.clock).await?;
    let of_other = K::Other::list_state(&client.shared.list_states);
    other.extend(of_other.row_cache(client).names());
    let of_rows = found.rows().filter_map(ListedRecord::pod).cloned();
    let of_other = other.iter().filter_map(|(uid, _)| uid.clone());
    let pods = names.pods.iter().cloned().chain(of_rows).chain(of_other);
    let pods: BTreeSet<ListFilter> = pods.map(ListFilter::Pod).collect();
    let sandboxes: BTreeSet<&PodSandboxId> = other.iter().map(|(_, id)| id).collect();
    state.row_cache(client).retain_parts(|part| match part {
        ListFilter::Sandbox(id) => sandboxes.contains(id),
        ListFilter::Pod(_) | ListFilter::State(_) => pods.contains(part),
    });
    let known_ids = known_ids::<K>(client, ids, &names, &other);
    let list_costs = 1 + known_ids.len().max(pods.len()) / RECORDS_PER_QUESTION;
    let ids_first = known_ids.len() < pods.len() * list_costs;
    let left = |found: &FoundRows<K::Model>| -> BTreeSet<Box<str>> {
        let left = known_ids.iter().filter(|id| !found.contains(id));
        left.cloned().collect()
    };
    // Pods of which every named record was read.
    let mut shown = BTreeSet::new();
    if ids_first {
        asking.one_by_one(left(found), found).await?;
        let pods = found.asked().filter_map(ListedRecord::pod).cloned();
        shown.extend(pods.map(ListFilter::Pod));
    }
    let is_new = |part: &ListFilter| {
        let row_cache = state.row_cache(client);
        !row_cache.read.contains(part) && !row_cache.refused.contains(part)
    };
    let unread: BTreeSet<ListFilter> = &pods - &shown;
    let unread: BTreeSet<ListFilter> = unread.into_iter().filter(is_new).collect();
    let due = without_later_names::<K>(client, unread.clone());
    let names_follow = due.len() < unread.len();
    if asking.parts(due, found).await? && !names_follow {
        let has_read = |uid: PodUid| {
            let pod = ListFilter::Pod(uid);
            shown.contains(&pod) || state.row_cache(client).read.contains(&pod)
        };
        let bare = other
            .into_iter()
            .filter(|(uid, _)| !uid.clone().is_some_and(has_read));
        let bare = bare.map(|(_, sandbox)| ListFilter::Sandbox(sandbox));
        asking.parts(bare.filter(is_new).collect(), found).await?;
    }
    if !ids_first {
        asking.one_by_one(left(found), found).await?;
    }
    if !asking.cut_short {
        let mut read = pods;
        read.retain(|pod| !unread.contains(pod) && !state.row_cache(client).refused.contains(pod));
        asking.again(filled.clone(), read, found).await?;
        asking.cut_short = names_follow;
    }
    if !asking.answered {
        // Cached rows alone do not make a list.
        for id in &filled {
            found.by_id.remove(id);
        }
    }
    let mut row_cache = state.row_cache(client);
    // An object that is known by its id alone may belong to any pod.
    let is_unread = |id: &str| !found.contains(id) && !row_cache.is_gone(id);
    if known_ids.iter().any(|id| is_unread(id)) {
        return Ok(BTreeSet::new());
    }
    Ok(row_cache.whole_pods(found))
}

/// Returns the pods whose sandboxes no later look names, with their containers. To ask for named ones by id costs less
/// than a list of each pod, and no sandbox goes before its pod's containers are known.
fn without_later_names<K: FallbackList>(
    client: &Client,
    mut pods: BTreeSet<ListFilter>,
) -> BTreeSet<ListFilter> {
    let of_other = K::Other::list_state(&client.shared.list_states);
    let other = of_other.row_cache(client);
    if K::LABEL == "sandbox" && other.reading.part.is_some() {
        pods.retain(|pod| other.read.contains(pod) || other.refused.contains(pod));
    }
    pods
}

/// Returns every known id: from names on disk and in other rows, from the service, and from earlier looks.
fn known_ids<K: FallbackList>(
    client: &Client,
    ids: &Ids,
    names: &disk::DiskIds,
    other: &BTreeSet<(Option<PodUid>, PodSandboxId)>,
) -> BTreeSet<Box<str>> {
    let mut row_cache = K::list_state(&client.shared.list_states).row_cache(client);
    let mut known_ids: BTreeSet<Box<str>> = ids.keys().cloned().collect();
    if K::LABEL == "container" {
        let on_disk = names.containers.iter().map(ContainerId::as_str);
        known_ids.extend(on_disk.map(Box::from));
    } else {
        let sandboxes = other.iter().map(|(_, id)| id.as_str());
        known_ids.extend(sandboxes.map(Box::from));
    }
    let mut known_ids = row_cache.without_gone(&known_ids);
    known_ids.extend(row_cache.rows.keys().cloned());
    known_ids
}

/// Reads the part of the other list that fits, for its names only. Failures are ignored.
async fn neighbours<K: FallbackList>(
    client: &Client,
    clock: Clock,
) -> Result<BTreeSet<(Option<PodUid>, PodSandboxId)>, Error> {
    let name = |row: &K::Model| (row.pod().cloned(), row.sandbox().clone());
    let link = client.runtime();
    let state = K::list_state(&client.shared.list_states);
    let refusal = state.memory(link.connection()).in_parts.clone();
    if refusal.is_none()
        && let Ok(list) = link.list::<K>(&K::LIST, clock.next()).await
    {
        return Ok(list.rows.iter().map(name).collect());
    }
    let tight = refusal.map(|it| it.tight).unwrap_or_default();
    match by_state::<K>(client, &tight, clock).await {
        Ok((found, _)) => Ok(found.rows().map(name).collect()),
        Err(error) if error.is_lost() => Err(error),
        Err(_) => Ok(BTreeSet::new()),
    }
}

/// Asks containerd's own service for every id. A failure proves nothing.
pub(super) async fn service<K: FallbackList>(
    client: &Client,
    clock: Clock,
) -> Result<Option<Ids>, Error> {
    if clock.is_up() {
        return Ok(None);
    }
    let missing = &client.shared.list_states.service_missing;
    match containerd::ids(client.runtime(), missing, K::LABEL, clock.next()).await {
        Ok(ids) => Ok(ids),
        Err(error) if error.is_lost() => Err(error),
        Err(error) => {
            tracing::debug!(%error, "containerd's own service does not answer");
            Ok(None)
        }
    }
}

/// Says whether `ids` has every row found before; otherwise it is not a complete list of ids. A row that is
/// gone by now does not contradict it. An empty list of ids does not prove that a list which was too large to
/// send is empty.
pub(super) async fn proves<K: FallbackList>(
    client: &Client,
    ids: &Ids,
    found: &mut FoundRows<K::Model>,
    clock: Clock,
) -> Result<bool, Error> {
    let strangers = found
        .ids()
        .filter(|id| !ids.contains_key(*id))
        .map(Box::from);
    let strangers: Vec<Box<str>> = strangers.collect();
    if ids.is_empty() || strangers.len() > STRANGERS_MAX {
        return Ok(false);
    }
    let asked = Questions::<K>::new(client, clock)
        .ids(strangers, found)
        .await?;
    Ok(asked.all && !asked.any)
}
