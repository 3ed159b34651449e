//! Which parts of the look could be read, and how long each took. An alert on a part that is
//! missing hangs on this: the figures themselves are then absent.

use std::time::Duration;

use super::filesystems;
use super::page::{Page, plain, sample, seconds};
use crate::model::{Pods, PodsUnknown};
use crate::observe::Look;

/// A part of a look, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collector {
    Runtime,
    Containers,
    Sandboxes,
    Images,
    Filesystems,
    Pods,
    Logs,
}

impl Collector {
    const ALL: [Self; 7] = [
        Self::Runtime,
        Self::Containers,
        Self::Sandboxes,
        Self::Images,
        Self::Filesystems,
        Self::Pods,
        Self::Logs,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Containers => "containers",
            Self::Sandboxes => "sandboxes",
            Self::Images => "images",
            Self::Filesystems => "filesystems",
            Self::Pods => "pods",
            Self::Logs => "logs",
        }
    }

    /// Returns whether the part could be read; `None` where there is nothing to read.
    fn success(self, look: &Look) -> Option<bool> {
        match self {
            Self::Runtime => Some(look.runtime.is_ok()),
            Self::Containers => Some(look.containers.is_ok()),
            Self::Sandboxes => Some(look.sandboxes.is_ok()),
            Self::Images => Some(look.images.is_ok()),
            Self::Filesystems => Some(look.filesystems.as_ref().is_ok_and(filesystems::all_read)),
            Self::Pods => match look.pods {
                Pods::Known(_) => Some(true),
                Pods::Unknown(PodsUnknown::NoSource) => None,
                Pods::Unknown(PodsUnknown::Settling | PodsUnknown::Failed(_)) => Some(false),
            },
            Self::Logs => self.duration(look).map(|_| look.logs.unread.is_empty()),
        }
    }

    /// Returns how long the part took; `None` where it was not tried.
    fn duration(self, look: &Look) -> Option<Duration> {
        let duration = match self {
            Self::Runtime => look.timings.runtime,
            Self::Containers => look.timings.containers,
            Self::Sandboxes => look.timings.sandboxes,
            Self::Images => look.timings.images,
            Self::Filesystems => look.timings.filesystems,
            Self::Pods => look.timings.pods,
            Self::Logs => look.timings.logs,
        };
        (!duration.is_zero()).then_some(duration)
    }
}

/// Adds the parts of a look; without one every part failed.
pub(super) fn encode(look: Option<&Look>, page: &mut Page) {
    let label = |collector: Collector| [("collector", collector.label())];
    let success = Collector::ALL.into_iter().filter_map(|collector| {
        let success = look.map_or(Some(false), |look| collector.success(look))?;
        Some(sample(label(collector), success))
    });
    page.gauge(
        plain("crisweep_collector_success"),
        "Whether this part of the look at the node could be read; what could not is absent here",
        success.collect(),
    );
    let duration = Collector::ALL
        .into_iter()
        .filter_map(|collector| Some(sample(label(collector), collector.duration(look?)?)));
    let help = "How long this part of the look at the node took";
    page.gauge(
        seconds("crisweep_collector_duration"),
        help,
        duration.collect(),
    );
    if let Some(look) = look {
        pod_source(look, page);
    }
}

/// Adds which source spoke for the pods, and how far it is believed.
fn pod_source(look: &Look, page: &mut Page) {
    let state = match &look.pods {
        Pods::Known(_) => "known",
        Pods::Unknown(PodsUnknown::NoSource) => "none",
        Pods::Unknown(PodsUnknown::Settling) => "settling",
        Pods::Unknown(PodsUnknown::Failed(_)) => "failed",
    };
    let source = look.pod_origin.source.label();
    let labels = vec![("source", source.to_owned()), ("state", state.to_owned())];
    let help = "The source that was asked for the pods, and what came of it";
    page.info("crisweep_pod_source", help, labels);
}
