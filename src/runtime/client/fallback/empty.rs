//! Confirms an empty list. An empty list fits every limit and looks complete, but a runtime that has lost its
//! records, or is still loading them, also returns one. On a node without containers every image would be
//! unused and every dead sandbox empty. So a second witness is asked, which costs one or two calls.

use super::by_name::service;
use super::{Client, Clock, Error, FallbackList, ListFilter, ask};
use crate::model::Coverage;

/// Returns the coverage of a list without rows.
///
/// containerd's own service knows: if it has no id either, the node is empty. For other runtimes the other list
/// is the witness: a ready sandbox exists for containers, and a running container has a sandbox. If the other
/// list shows nothing alive, nothing needs protection, and a drained node is cleaned at once.
pub(super) async fn coverage<K: FallbackList>(
    client: &Client,
    clock: Clock,
) -> Result<Coverage, Error> {
    let ids = service::<K>(client, clock).await?;
    let is_empty = match ids.map(|ids| ids.is_empty()) {
        Some(is_empty) => is_empty,
        None => nothing_lives::<K::Other>(client, clock).await?,
    };
    if is_empty {
        return Ok(Coverage::Whole);
    }
    tracing::debug!(list = K::NAME, "a list is empty although the node is not");
    Ok(Coverage::Partial)
}

async fn nothing_lives<K: FallbackList>(client: &Client, clock: Clock) -> Result<bool, Error> {
    match ask::<K>(client, ListFilter::State(K::LIVING), clock).await {
        Ok(page) => Ok(page.rows.is_empty() && page.malformed == 0),
        Err(error) if error.is_lost() => Err(error),
        Err(_unknown) => Ok(false),
    }
}
