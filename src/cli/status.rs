//! `crisweep status`: one screen about the node and its crisweep. The service tells; without one this command looks, and
//! then knows nothing of passes.

mod text;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::{Value, json};

use super::check;
use super::command::looked;
use super::output::{print_json, print_on};
use super::screen::Screen;
use super::service::{NOT_UNDERSTOOD, ServiceQuery, Site};
use super::{Output, exit_code};
use crate::http;

/// How long the service may take: a look at the node takes it up to 3 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `status`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = AFTER_HELP)]
pub struct StatusArgs {
    /// table for people, json for machines (as GET /api/v1/status)
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    pub output: Output,
}

const AFTER_HELP: &str = "\
The first line judges the node as crisweep check does, by the thresholds of this command's configuration. \
Without a service this command looks for itself, and knows nothing of passes.

Exit codes:
  0  shown, whatever the service says
  1  the named service does not answer, or without one the runtime does not
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep status
  crisweep status --output json | jq .removable
  crisweep status --url http://node-1:20950      another node's service
";

/// Runs `crisweep status`.
///
/// # Errors
/// If the node cannot be looked at, or the named service does not answer.
pub async fn run(site: Site, args: StatusArgs) -> anyhow::Result<ExitCode> {
    let instead = "this command looks for itself, and knows nothing of passes";
    let question = ServiceQuery::within(&site, PATIENCE).await;
    let question = question.or_else(instead);
    let (status, by) = match question.ask("/api/v1/status").await? {
        Some(status) => (status, "service"),
        None => (own(&site).await?, "runtime"),
    };
    // A service may say whatever it knows. Without one, nothing is known of a node whose runtime does not answer.
    let is_looked_at = by == "service" || status.pointer("/runtime/up") == Some(&Value::Bool(true));
    if args.output == Output::Json {
        return print_json(&status).map(|()| exit_code(is_looked_at));
    }
    let marks = &site.config.thresholds;
    let judged = check::judged(&status, marks, site.policy(), by).context(NOT_UNDERSTOOD)?;
    let screen = Screen::of_stdout(super::screen::Wide::default());
    let text = text::of(&status, &judged, &screen);
    print_on(&screen, &text, text::ink).map(|()| exit_code(is_looked_at))
}

/// Looks at the node; returns what the service would tell of it.
async fn own(site: &Site) -> anyhow::Result<Value> {
    let config = &site.config;
    let (runner, look) = looked(site).await?;
    let endpoint = runner.observer.client().endpoint();
    let snapshot = runner.snapshot(&look);
    let judged = snapshot.ok();
    let judged = judged.map(|snapshot| http::PlanStatus::of(&look, &snapshot, &config.policy));
    let mut status = json!({
        "node": config.node.name,
        "version": env!("CARGO_PKG_VERSION"),
        "mode": config.mode.label(),
    });
    let node = serde_json::to_value(http::of_look(&look, judged, endpoint, config))?;
    if let (Some(status), Value::Object(node)) = (status.as_object_mut(), node) {
        status.extend(node);
    }
    Ok(status)
}
