//! One metrics page: the result of a look, the plan on it, and the service's own counters. Never asks the
//! runtime and stores nothing: what the look could not read is absent, so that no stale figure looks healthy.

mod collectors;
mod containers;
mod filesystems;
mod format;
mod images;
mod lists;
mod page;
mod plan;
mod process;
mod runtime;
mod sandboxes;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::text::encode_eof;

use crate::config::Thresholds;
use crate::gc::Summary;
use crate::metrics::Metrics;
use crate::model::{Coverage, FailureClass, Target};
use crate::snapshot::{Look, Part};
use crate::telemetry;
pub use format::{Format, timeout_from_header};
use page::{Page, plain, sample, seconds};

/// The input of a page.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The shared look; `None` if there was none within the scrape's deadline.
    pub look: Option<&'a Look>,
    /// The runtime's version, if there is no look but the runtime has answered.
    pub version: Option<&'a Part<crate::runtime::Version>>,
    /// What a pass over all targets would do on that look; `None` if the look lacks a list.
    pub plan: Option<&'a BTreeMap<Target, Summary>>,
    /// Quarantined sandboxes by failure class.
    pub quarantined: &'a BTreeMap<FailureClass, usize>,
    /// The thresholds.
    pub thresholds: &'a Thresholds,
    /// The service's own counters.
    pub metrics: &'a Metrics,
}

/// Renders the page.
pub fn render(input: &Input<'_>, format: Format) -> String {
    let mut text = String::with_capacity(32 * 1024);
    if encode(input, &mut text).is_err() {
        // Writing to a string cannot fail. If it ever does, half a page must not pass for a whole one: this
        // text fails the scrape.
        return "the page could not be written\n".to_owned();
    }
    match format {
        Format::OpenMetrics => text,
        Format::Text => text::from_openmetrics(&text),
    }
}

fn encode(input: &Input<'_>, text: &mut String) -> fmt::Result {
    let mut page = Page::default();
    let runtime = input.look.map(|look| &look.runtime).or(input.version);
    runtime::encode(runtime, &mut page);
    if let Some(look) = input.look {
        encode_look(look, &mut page);
        plan::encode_thresholds(&input.thresholds.crossed(look), &mut page);
    }
    collectors::encode(input.look, runtime, &mut page);
    if let Some(plan) = input.plan {
        plan::encode(plan, &mut page);
    }
    plan::encode_quarantine(input.quarantined, &mut page);
    process::encode(&mut page);
    let dropped = vec![sample([], telemetry::lines_dropped())];
    let help = "Lines of the log that were dropped because standard error was not read in time";
    page.counter(plain("crisweep_log_lines_dropped"), help, dropped);
    page.encode(text)?;
    input.metrics.encode(text)?;
    encode_eof(text)
}

fn encode_look(look: &Look, page: &mut Page) {
    let containers = look
        .containers
        .as_ref()
        .ok()
        .map(|listed| listed.rows.as_slice());
    if let Some(containers) = containers {
        containers::encode(containers, page);
        let unknown = vec![sample([], look.exits_unknown)];
        let help = "Exited containers whose exit time is not known yet";
        page.gauge(plain("crisweep_exit_times_unknown"), help, unknown);
    }
    if let Ok(sandboxes) = &look.sandboxes {
        sandboxes::encode(&sandboxes.rows, page);
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
    let taken_at = vec![sample([], look.taken_at)];
    let help = "When the runtime was looked at for this page";
    page.gauge(seconds("crisweep_look_timestamp"), help, taken_at);
}
