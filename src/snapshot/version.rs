//! The runtime's version: the first answer of a look, available before the look ends.

use super::{LookResult, Observer, ObserverInner};
use crate::runtime;

impl Observer {
    /// Returns the runtime's answer to `Version` in the running look; `None`: no answer yet.
    pub fn version_so_far(&self) -> Option<LookResult<runtime::Version>> {
        self.inner.flight.lock().version.clone()
    }
}

/// Asks for the version, and publishes it for callers that cannot wait for the look. Asks again if the first call only
/// finds that the old connection is dead: a runtime that was restarted long ago must not look down.
pub(super) async fn version(inner: &ObserverInner) -> LookResult<runtime::Version> {
    let client = inner.client();
    let answer = match client.version().await {
        Err(runtime::Error::Unreachable { .. }) => client.version().await,
        answer => answer,
    };
    inner.flight.lock().version = Some(answer.clone());
    answer
}
