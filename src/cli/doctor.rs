//! `crisweep doctor`: why litter comes up on this node, and what would stop it. Asks the running service; without one it
//! looks for itself.

mod text;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::command::looked;
use super::output::{print, print_json};
use super::service::{ServiceQuery, Site};
use super::{Output, exit_code};
use crate::doctor::{Doctor, NODE_UNREAD, diagnose};

/// How long the service may take: a look at the node takes up to 8 s, what else is read 3 s more.
const PATIENCE: Duration = Duration::from_secs(25);

/// Arguments of `doctor`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = AFTER_HELP)]
pub struct DoctorArgs {
    /// table for people, json for machines (as GET /api/v1/doctor)
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    pub output: Output,
}

const AFTER_HELP: &str = "\
The running service answers; without one this command takes one look at the node itself.

Exit codes:
  0  reported, whatever was found (see crisweep check)
  1  the node, or a part of it, could not be read
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep doctor      who leaves the litter, and what would stop it
  crisweep doctor --output json | jq '.findings[] | {id, change}'
";

/// Runs `crisweep doctor`.
///
/// # Errors
/// If the node cannot be looked at.
pub async fn run(site: Site, args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let question = ServiceQuery::within(&site, PATIENCE).await;
    let report = match question.ask("/api/v1/doctor").await? {
        Some(report) => report,
        None => own(site).await?,
    };
    let findings = report.get("findings").and_then(Value::as_array);
    let mut ids = findings.into_iter().flatten().map(|it| it.get("id"));
    let is_read = ids.all(|id| id.is_none_or(|id| id != NODE_UNREAD));
    match args.output {
        Output::Json => print_json(&report)?,
        Output::Table => print(&text::of(&report)?)?,
    }
    Ok(exit_code(is_read))
}

/// Takes a look and reports from it.
async fn own(site: Site) -> anyhow::Result<Value> {
    let (runner, look) = looked(&site).await?;
    let client = runner.observer.client();
    let doctor = Doctor::default();
    let mut facts = doctor.facts(&look, Arc::new(site.config), &client).await;
    for sandbox in &facts.sandboxes {
        if let Some(failed) = runner.quarantined(sandbox.id.as_str()) {
            *facts.quarantined.entry(failed.class).or_default() += 1;
        }
    }
    Ok(serde_json::to_value(diagnose(&facts))?)
}
