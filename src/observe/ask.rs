//! Asks the runtime about many objects, a few at a time, for so long.

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::Part;
use crate::cri;

/// Status calls in flight: enough to hide the round trip, too few to burden a sick runtime.
const IN_FLIGHT: usize = 4;
/// Calls without an answer in time, after which a look asks no more.
const TIMEOUTS_MAX: u32 = 4;

/// Asks about each of `ids` in order until `until`, and hands on what is answered. Errors are not:
/// whoever has no answer yet is asked again at the next look.
pub(super) async fn each<Id, T, F>(
    ids: Vec<Id>,
    until: Instant,
    call: impl Fn(Id) -> F,
    mut answered: impl FnMut(Id, T),
) where
    Id: Clone,
    F: Future<Output = Result<T, cri::Error>>,
{
    let mut queue = ids.into_iter();
    let mut calls = FuturesUnordered::new();
    let mut timeouts = 0;
    loop {
        while calls.len() < IN_FLIGHT {
            let Some(id) = queue.next() else { break };
            let call = call(id.clone());
            calls.push(async move { (id, call.await) });
        }
        let Ok(Some((id, answer))) = tokio::time::timeout_at(until, calls.next()).await else {
            return;
        };
        match answer {
            Ok(answer) => answered(id, answer),
            // The runtime is gone, or has better things to do: ask again at the next look. One
            // object that never answers must not keep all others unknown.
            Err(error) if error.is_lost() => return,
            Err(error) if error.is_timeout() => {
                timeouts += 1;
                if timeouts >= TIMEOUTS_MAX {
                    return;
                }
            }
            Err(_refused) => {}
        }
    }
}

/// Asks twice where the first call only finds out that the old connection is dead: a runtime that
/// was restarted long ago must not look down to the first who asks.
pub(super) async fn version(client: &cri::Client) -> Part<cri::Version> {
    match client.version().await {
        Err(cri::Error::Unreachable { .. }) => client.version().await,
        answer => answer,
    }
}
