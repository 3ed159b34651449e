//! The runtime that answers on the socket.

use super::page::{MetricsPage, plain, sample};
use crate::runtime;
use crate::snapshot::LookResult;

/// Adds the runtime; `None`: it has not answered in time, and nothing is shown.
pub(super) fn encode(answer: Option<&LookResult<runtime::Version>>, page: &mut MetricsPage) {
    let up = answer.map(|answer| sample([], answer.is_ok()));
    let up = up.into_iter().collect();
    page.gauge(plain("cri_up"), "Whether the runtime answered", up);
    if let Some(Ok(runtime::Version { runtime, version })) = answer {
        let labels = vec![("runtime", runtime.clone()), ("version", version.clone())];
        page.info("cri", "The runtime and its version", labels);
    }
}
