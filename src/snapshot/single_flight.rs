//! The running look, shared by all who wait for it.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Look, LookResult, LookVanished, ObserverInner};
use crate::pods::Freshness;
use crate::runtime;

#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) latest: Option<Arc<Look>>,
    pub(super) under_way: Option<UnderWay>,
    /// When the first look began of those since the last one that ended.
    pub(super) lookless_since: Option<Instant>,
    /// The runtime's answer to `Version` in the running look.
    pub(super) version: Option<LookResult<runtime::Version>>,
}

#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) freshness: Freshness,
    pub(super) arrival: watch::Receiver<Option<Arc<Look>>>,
    /// Whether it has read both lists; statuses come after them.
    pub(super) has_lists: watch::Receiver<bool>,
}

/// Ends the flight even if the look's task dies.
pub(super) struct FlightGuard<'a> {
    pub(super) inner: &'a ObserverInner,
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        self.inner.flight.lock().under_way = None;
    }
}

pub(super) async fn arrival(
    mut receiver: watch::Receiver<Option<Arc<Look>>>,
) -> Result<Arc<Look>, LookVanished> {
    match receiver.wait_for(Option::is_some).await {
        Ok(look) => look.clone().ok_or(LookVanished),
        Err(_closed) => Err(LookVanished),
    }
}
