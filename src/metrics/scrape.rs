//! One metrics page: the result of a look, the plan on it, and the service's own counters. Never asks the
//! runtime: what the look could not read is absent, so that no stale figure looks healthy.

mod collectors;
mod containers;
mod filesystems;
mod format;
mod images;
mod lists;
mod page;
mod plan;
mod process;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use prometheus_client::encoding::text::encode_eof;

use crate::config::Thresholds;
use crate::gc::Summary;
use crate::gc::knowledge::SourceState;
use crate::metrics::Metrics;
use crate::model::{Coverage, FailureClass, PodSandboxState, Target, by_state};
use crate::runtime::Version;
use crate::snapshot::{Look, LookResult};
use crate::telemetry;
pub use format::{Format, timeout_from_header};
use page::{MetricsPage, plain, sample, seconds};

/// What the node's part of a page is made from.
#[derive(Clone, Copy, Debug)]
pub struct PageInput<'a> {
    /// The shared look, and how far its pods are believed; `None` if there was none within the scrape's deadline.
    pub look: Option<(&'a Look, SourceState)>,
    /// The runtime's version, if there is no look but the runtime has answered.
    pub version: Option<&'a LookResult<Version>>,
    /// What a pass over all targets would do on that look; `None` if the look lacks a list.
    pub plan: Option<&'a BTreeMap<Target, Summary>>,
    /// Quarantined sandboxes by failure class.
    pub quarantined: &'a BTreeMap<FailureClass, usize>,
    /// The thresholds.
    pub thresholds: &'a Thresholds,
}

/// The node's part of a page. All scrapes of one look share it.
#[derive(Debug)]
pub struct NodePart {
    openmetrics: String,
    /// Made at the first scrape that wants it.
    text: OnceLock<String>,
}

impl NodePart {
    /// Writes the node's part.
    ///
    /// # Errors
    /// Writing to a string cannot fail. If it ever does, half a page must not pass for a whole one.
    pub fn of(input: &PageInput<'_>) -> Result<Self, fmt::Error> {
        let mut page = MetricsPage::default();
        let runtime = input.look.map(|(look, _)| &look.runtime);
        let runtime = runtime.or(input.version);
        encode_runtime(runtime, &mut page);
        if let Some((look, _)) = input.look {
            encode_look(look, &mut page);
            plan::encode_thresholds(&input.thresholds.crossed(look), &mut page);
        }
        collectors::encode(input.look, runtime, &mut page);
        if let Some(plan) = input.plan {
            plan::encode(plan, &mut page);
        }
        plan::encode_quarantine(input.quarantined, &mut page);
        let mut openmetrics = String::with_capacity(16 << 10);
        page.encode(&mut openmetrics)?;
        Ok(Self {
            openmetrics,
            text: OnceLock::new(),
        })
    }

    fn written(&self, format: Format) -> &str {
        match format {
            Format::OpenMetrics => &self.openmetrics,
            Format::Text => self
                .text
                .get_or_init(|| text::from_openmetrics(&self.openmetrics)),
        }
    }
}

/// Renders a page: the node's part, then the figures of this process as they are now.
///
/// # Errors
/// As [`NodePart::of`].
pub fn render(node: &NodePart, metrics: &Metrics, format: Format) -> Result<String, fmt::Error> {
    let mut own = String::with_capacity(16 << 10);
    let mut page = MetricsPage::default();
    process::encode(&mut page);
    let name = plain("crisweep_log_lines_dropped");
    let help = "Lines of the log that were dropped because standard error was not read in time";
    page.counter(name, help, telemetry::lines_dropped());
    page.encode(&mut own)?;
    metrics.encode(&mut own)?;
    encode_eof(&mut own)?;
    let own = match format {
        Format::OpenMetrics => own,
        Format::Text => text::from_openmetrics(&own),
    };
    Ok([node.written(format), &own].concat())
}

/// Adds the runtime that answers on the socket; `None`: it has not answered in time, and nothing is shown.
fn encode_runtime(answer: Option<&LookResult<Version>>, page: &mut MetricsPage) {
    let up = answer.map(|answer| sample([], answer.is_ok()));
    page.gauge(plain("cri_up"), "Whether the runtime answered", up);
    if let Some(Ok(Version { runtime, version })) = answer {
        let labels = [("runtime", &**runtime), ("version", version)];
        page.info("cri", "The runtime and its version", labels);
    }
}

fn encode_look(look: &Look, page: &mut MetricsPage) {
    let containers = look.containers.as_ref().ok();
    let containers = containers.map(|listed| listed.rows.as_slice());
    if let Some(containers) = containers {
        containers::encode(containers, page);
        let name = plain("crisweep_exit_times_unknown");
        let help = "Exited containers whose exit time is not known yet";
        page.figure(name, help, look.exits_unknown);
    }
    if let Ok(sandboxes) = &look.sandboxes {
        let states = by_state(PodSandboxState::ALL, &sandboxes.rows, |it| it.state);
        let states = states.map(|(state, count)| sample([("state", state)], count));
        page.gauge(plain("cri_pod_sandboxes"), "Pod sandboxes by state", states);
    }
    if let Ok(images) = &look.images {
        // An unseen container may use any image.
        let users = containers.filter(|_| look.seen().containers == Coverage::Whole);
        images::encode(&images.rows, users, &look.store, page);
    }
    lists::encode(look, page);
    if let Ok(filesystems) = &look.filesystems {
        filesystems::encode(filesystems, page);
    }
    let help = "When the runtime was looked at for this page";
    page.figure(seconds("crisweep_look_timestamp"), help, look.taken_at);
}
