//! Who the runtime is: the first answer of a look, and known before the look ends.

use super::{Inner, Observer, Part};
use crate::runtime;

impl Observer {
    /// Returns what the runtime answered to the question who it is, in the look under way; `None`: nothing
    /// yet.
    pub fn version_so_far(&self) -> Option<Part<runtime::Version>> {
        self.flight().version.clone()
    }
}

/// Asks the runtime who it is, and lets those know who cannot wait for the look.
pub(super) async fn version(inner: &Inner) -> Part<runtime::Version> {
    let answer = version_with_retry(&inner.client).await;
    inner.flight().version = Some(answer.clone());
    answer
}

/// Asks twice where the first call only finds out that the old connection is dead: a runtime that
/// was restarted long ago must not look down to the first who asks.
async fn version_with_retry(client: &runtime::Client) -> Part<runtime::Version> {
    match client.version().await {
        Err(runtime::Error::Unreachable { .. }) => client.version().await,
        answer => answer,
    }
}
