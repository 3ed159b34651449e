//! Which parts of the look could be read, and how long each took. Alerts on missing parts use this, because
//! the figures themselves are absent.

use crate::model::every;
use std::time::Duration;

use super::filesystems;
use super::page::{MetricsPage, plain, sample, seconds};
use crate::gc::knowledge::SourceState;
use crate::runtime;
use crate::snapshot::{Look, LookResult};

/// A part of a look, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
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
    const ALL: [Self; 7] = every();

    fn label(self) -> &'static str {
        self.into()
    }

    /// Returns whether the part could be read; `None` if there is nothing to read.
    fn success(self, look: &Look, pods: SourceState) -> Option<bool> {
        match self {
            Self::Runtime => Some(look.runtime.is_ok()),
            Self::Containers => Some(look.containers.is_ok()),
            Self::Sandboxes => Some(look.sandboxes.is_ok()),
            Self::Images => Some(look.images.is_ok()),
            Self::Filesystems => Some(look.filesystems.as_ref().is_ok_and(filesystems::all_read)),
            Self::Pods => match pods {
                SourceState::Known => Some(true),
                SourceState::None => None,
                SourceState::Settling | SourceState::Failed | SourceState::Incomplete => {
                    Some(false)
                }
            },
            Self::Logs => self.duration(look).map(|_| look.logs.unread.is_empty()),
        }
    }

    /// Returns how long the part took; `None` if it was not tried.
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

/// Adds the parts of a look. Without a look every part failed, except the runtime if it has answered.
pub(super) fn encode(
    look: Option<(&Look, SourceState)>,
    runtime: Option<&LookResult<runtime::Version>>,
    page: &mut MetricsPage,
) {
    let has_answered = runtime.is_some_and(Result::is_ok);
    let label = |collector: Collector| [("collector", collector.label())];
    let success = Collector::ALL.into_iter().filter_map(|collector| {
        let success = match look {
            Some((look, pods)) => collector.success(look, pods)?,
            None => collector == Collector::Runtime && has_answered,
        };
        Some(sample(label(collector), success))
    });
    let help =
        "Whether this part of the look at the node could be read; if not, its metrics are absent";
    page.gauge(plain("crisweep_collector_success"), help, success);
    let Some((look, state)) = look else { return };
    let took = |it: Collector| Some(sample(label(it), it.duration(look)?));
    let took = Collector::ALL.into_iter().filter_map(took);
    let help = "How long this part of the look at the node took";
    page.gauge(seconds("crisweep_collector_duration"), help, took);
    let source = look.pod_origin.source.label();
    let labels = [("source", source), ("state", state.label())];
    let help = "The source that was asked for the pods, and how far its answer is believed";
    page.info("crisweep_pod_source", help, labels);
}
