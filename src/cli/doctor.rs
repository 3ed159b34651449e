//! `crisweep doctor`: why litter piles up on this node, and what would stop it. Asks the running service; without one it
//! looks for itself.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::command::looked;
use super::command::text::{clipped, table, titled};
use super::output::{print, print_json};
use super::screen::terminal_columns;
use super::service::{NOT_UNDERSTOOD, ServiceQuery, Site};
use super::{Output, exit_code};
use crate::doctor::{Doctor, NODE_UNREAD, diagnose};
use crate::model::escape;

/// How long the service may take: a look at the node takes up to 8 s, what else is read 3 s more.
const PATIENCE: Duration = Duration::from_secs(25);

/// Columns of a line, where the terminal has no fewer.
const COLUMNS: usize = 100;
/// Where the text of each finding begins.
const INDENT: usize = 9;
/// The longest text; names from outside can be long.
const TEXT_MAX: usize = 450;
/// Findings and owners shown, and findings of one id, such as crash loops; the JSON has more.
const FINDINGS: usize = 7;
const FINDINGS_OF_ID: usize = 3;
const OWNERS: usize = 4;
/// The longest name of an owner.
const NAME_MAX: usize = 40;

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
        Output::Table => print(&text(&report)?)?,
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

/// Formats an answer of `GET /api/v1/doctor`.
fn text(report: &Value) -> anyhow::Result<String> {
    let columns = terminal_columns(std::io::stdout()).map_or(COLUMNS, |it| it.min(COLUMNS));
    written(report, columns).context(NOT_UNDERSTOOD)
}

/// `None`: it is no such answer.
fn written(report: &Value, columns: usize) -> Option<String> {
    let part = |title: &str, text: &str, indent| {
        let text = clipped(&escape::line(text), TEXT_MAX);
        titled(columns, title, &text, indent)
    };
    let findings = report.get("findings")?.as_array()?;
    let mut text = part("", report.get("summary")?.as_str()?, 0);
    let mut of_id: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shown = 0;
    for finding in findings {
        let field = |key| finding.get(key).and_then(Value::as_str);
        let same = of_id.entry(field("id")?).or_default();
        *same += 1;
        if shown == FINDINGS || *same > FINDINGS_OF_ID {
            continue;
        }
        shown += 1;
        text.push_str(&part(field("severity")?, field("summary")?, INDENT));
        let change = field("change")?;
        if change != "none needed" {
            let mark = format!("{:INDENT$}>", "");
            text.push_str(&part(&mark, change, INDENT + 2));
        }
    }
    let left_out = findings.len() - shown;
    if left_out > 0 {
        text.push_str(&format!(
            "{:INDENT$}{left_out} more: --output json has them all\n",
            ""
        ));
    }
    Some(text + &owners(report.pointer("/top/owners")?.as_array()?))
}

fn owners(owners: &[Value]) -> String {
    let mut rows = table(&["WHO LEAVES IT", "DEAD", "SANDBOXES", "LAST 1H", "LAST 24H"]);
    let counts = [
        "dead_containers",
        "not_ready_sandboxes",
        "came_1h",
        "came_24h",
    ];
    let leaves = |it: &&Value| counts.iter().any(|key| it[*key].as_u64() > Some(0));
    for owner in owners.iter().filter(leaves).take(OWNERS) {
        let name = ["namespace", "kind", "name"].map(|key| owner[key].as_str().unwrap_or_default());
        let name = name.join("/");
        let name = clipped(&escape::line(name.trim_end_matches('/')), NAME_MAX);
        let count = |key| {
            owner[key]
                .as_u64()
                .map_or("?".to_owned(), |it| it.to_string())
        };
        rows.add_row([name].into_iter().chain(counts.map(count)));
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}\n", rows.trim_fmt())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn finding(severity: &str, summary: &str, change: &str) -> Value {
        json!({ "id": "x", "severity": severity, "summary": summary, "change": change, "details": {} })
    }

    fn report(findings: &[Value]) -> Value {
        json!({
            "summary": "1 problem: 12 dead containers and 3 not-ready sandboxes, 40 came in the last 24 h.",
            "findings": findings,
            "top": { "owners": [{
                "namespace": "shop", "kind": "Deployment", "name": "web", "derived": true, "share": 0.8,
                "dead_containers": 12, "not_ready_sandboxes": 3, "list_bytes": 9000, "came_1h": 2, "came_24h": 40,
            }] },
        })
    }

    #[test]
    fn a_report_begins_with_its_result_and_ends_with_who_leaves_it() {
        let long = "Container app of Deployment shop/web was restarted at least 12 times in the last 24 h.";
        let found = [
            finding("problem", long, "raise its memory"),
            finding("info", "All well.", "none needed"),
        ];
        let text = written(&report(&found), 80).unwrap();
        assert_eq!(
            text,
            "1 problem: 12 dead containers and 3 not-ready sandboxes, 40 came in the last 24\n\
             h.\n\
             problem  Container app of Deployment shop/web was restarted at least 12 times in\n         \
             the last 24 h.\n         \
             > raise its memory\n\
             info     All well.\n\
             \n \
             WHO LEAVES IT        DEAD  SANDBOXES  LAST 1H  LAST 24H\n \
             shop/Deployment/web  12    3          2        40\n"
        );
    }

    #[test]
    fn it_is_bounded_whatever_names_are_like() {
        let hostile = format!(
            "\u{1b}[2J{}\u{202e} {}",
            "x".repeat(500),
            "word ".repeat(200)
        );
        let found: Vec<Value> = (0..50)
            .map(|_| finding("problem", &hostile, &hostile))
            .collect();
        let text = written(&report(&found), 60).unwrap();
        assert!(text.contains("47 more: --output json"), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
        assert!(text.len() < 10_000, "{}", text.len());
    }

    #[test]
    fn many_findings_of_one_kind_do_not_hide_the_others() {
        let crash = finding("problem", "A crash loop.", "fix it");
        let mut found = vec![crash; 10];
        found.push(finding("advice", "The CNI plugin fails.", "repair it"));
        found[10]["id"] = json!("sandbox-teardown");
        let text = written(&report(&found), 100).unwrap();
        assert_eq!(text.matches("A crash loop.").count(), FINDINGS_OF_ID);
        assert!(text.contains("The CNI plugin fails."), "{text}");
        assert!(text.contains("7 more: --output json"), "{text}");
    }

    #[test]
    fn no_finding_is_one_sentence() {
        let mut report = report(&[]);
        report["top"]["owners"] = json!([]);
        assert_eq!(written(&report, 100).unwrap().lines().count(), 1);
        assert_eq!(written(&json!({}), 100), None);
    }
}
