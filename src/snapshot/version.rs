//! The runtime's version: the first answer of a look, available before the look ends.

use super::{LookResult, Observer, ObserverInner};
use crate::runtime;

impl Observer {
    /// Returns the runtime's answer to `Version` in the running look; `None`: no answer yet.
    pub fn version_so_far(&self) -> Option<LookResult<runtime::Version>> {
        self.inner.flight.lock().version.clone()
    }
}

/// Asks for the version, and publishes it for callers that cannot wait for the look.
pub(super) async fn version(inner: &ObserverInner) -> LookResult<runtime::Version> {
    let answer = version_with_retry(&inner.client()).await;
    inner.flight.lock().version = Some(answer.clone());
    answer
}

/// Asks again if the first call only finds that the old connection is dead: a runtime that was restarted long
/// ago must not look down.
async fn version_with_retry(client: &runtime::Client) -> LookResult<runtime::Version> {
    match client.version().await {
        Err(runtime::Error::Unreachable { .. }) => client.version().await,
        answer => answer,
    }
}
