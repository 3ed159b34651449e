//! Which parts of the look could be read, and how long each took. Alerts on missing parts use this, because
//! the figures themselves are absent.

use std::time::Duration;

use super::filesystems;
use super::page::{MetricsPage, plain, sample, seconds};
use crate::gc::knowledge::SourceState;
use crate::runtime;
use crate::snapshot::{Look, LookResult};

/// The parts of a look, as the page names them. What follows has their order.
const PARTS: [&str; 7] = [
    "runtime",
    "containers",
    "sandboxes",
    "images",
    "filesystems",
    "pods",
    "logs",
];

/// Returns for each part whether it could be read, `None` if there is nothing to read, and how long that took.
fn parts(look: &Look, pods: SourceState) -> [(Option<bool>, Duration); PARTS.len()] {
    let (filesystems, took) = (look.filesystems.as_ref(), &look.timings);
    let pods = match pods {
        SourceState::Known => Some(true),
        SourceState::None => None,
        SourceState::Settling | SourceState::Failed | SourceState::Incomplete => Some(false),
    };
    let logs = (!took.logs.is_zero()).then_some(look.logs.unread.is_empty());
    [
        (Some(look.runtime.is_ok()), took.runtime),
        (Some(look.containers.is_ok()), took.containers),
        (Some(look.sandboxes.is_ok()), took.sandboxes),
        (Some(look.images.is_ok()), took.images),
        (
            Some(filesystems.is_ok_and(filesystems::all_read)),
            took.filesystems,
        ),
        (pods, took.pods),
        (logs, took.logs),
    ]
}

/// Adds the parts of a look. Without a look every part failed, except the runtime if it has answered.
pub(super) fn encode(
    look: Option<(&Look, SourceState)>,
    runtime: Option<&LookResult<runtime::Version>>,
    page: &mut MetricsPage,
) {
    let has_answered = runtime.is_some_and(Result::is_ok);
    let parts = match look {
        Some((look, pods)) => parts(look, pods),
        None => PARTS.map(|part| (Some(part == "runtime" && has_answered), Duration::ZERO)),
    };
    let parts = PARTS.into_iter().zip(parts);
    let success = parts.clone();
    let success = success.filter_map(|(part, (is, _))| Some(sample([("collector", part)], is?)));
    let help =
        "Whether this part of the look at the node could be read; if not, its metrics are absent";
    page.gauge(plain("crisweep_collector_success"), help, success);
    let Some((look, state)) = look else { return };
    // A part without a time was not tried.
    let took = parts.filter(|(_, (_, took))| !took.is_zero());
    let took = took.map(|(part, (_, took))| sample([("collector", part)], took));
    let help = "How long this part of the look at the node took";
    page.gauge(seconds("crisweep_collector_duration"), help, took);
    let source = look.pod_origin.source.label();
    let labels = [("source", source), ("state", state.label())];
    let help = "The source that was asked for the pods, and how far its answer is believed";
    page.info("crisweep_pod_source", help, labels);
}
