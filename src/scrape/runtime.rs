//! Who answers on the socket, if anyone.

use super::page::{Page, plain, sample};
use crate::cri;

/// Adds the runtime; `None` if it did not answer.
pub(super) fn encode(version: Option<&cri::Version>, page: &mut Page) {
    let up = vec![sample([], version.is_some())];
    page.gauge(plain("cri_up"), "Whether the runtime answered", up);
    if let Some(cri::Version { runtime, version }) = version {
        let labels = vec![("runtime", runtime.clone()), ("version", version.clone())];
        page.info("cri", "The runtime and its version", labels);
    }
}
