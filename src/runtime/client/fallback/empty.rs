//! A list of nothing. It fits any message and looks whole, but a runtime that has lost its records, or
//! is not done loading them, says the same; and on a node without containers every image is unused and
//! every dead sandbox empty. So another witness is asked. It costs one or two questions, where there is
//! nothing else to ask about.

use super::by_name::service;
use super::{Client, Clock, Error, Kind, Question, ask};
use crate::model::Coverage;

/// Says how much of what there is a list without rows has.
///
/// containerd's own service knows: if it has no id either, the node is empty. Elsewhere the other list
/// tells: a ready sandbox is there for containers, and a running container has a sandbox. Where that shows
/// nothing that lives, there is nothing to protect, and a node that was drained is cleaned at once.
pub(super) async fn coverage<K: Kind>(client: &Client, clock: Clock) -> Result<Coverage, Error> {
    let ids = service::<K>(client, clock).await?;
    let is_empty = match ids.map(|ids| ids.is_empty()) {
        Some(is_empty) => is_empty,
        None => nothing_lives::<K::Other>(client, clock).await?,
    };
    if is_empty {
        return Ok(Coverage::Whole);
    }
    tracing::debug!(list = K::NAME, "a list is empty, and should not be");
    Ok(Coverage::Partial)
}

async fn nothing_lives<K: Kind>(client: &Client, clock: Clock) -> Result<bool, Error> {
    match ask::<K>(client, Question::State(K::LIVING), clock).await {
        Ok(page) => Ok(page.rows.is_empty() && page.malformed == 0),
        Err(error) if error.is_lost() => Err(error),
        Err(_unknown) => Ok(false),
    }
}
