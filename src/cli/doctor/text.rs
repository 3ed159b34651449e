//! A report of causes as text that fits one screen.

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::command::text::{clipped, table, titled};
use crate::cli::service::NOT_UNDERSTOOD;
use crate::model::escape;

/// Where the text of each finding begins.
const INDENT: usize = 9;
/// Characters of one text: five lines of a usual window, more and shorter ones of a narrow one.
const TEXT_MAX: usize = 450;
/// Owners shown; the JSON has more.
const OWNERS: usize = 4;
/// Columns for an owner's name.
const NAME_COLUMNS: usize = 40;
/// Columns below which the table of owners has short titles.
const NARROW: usize = 60;

#[derive(Clone, Copy, Debug)]
pub(super) struct TerminalSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl TerminalSize {
    /// Returns the size of the terminal on standard output; where there is none, that of a usual window.
    pub(super) fn of_terminal() -> Self {
        const USUAL: TerminalSize = TerminalSize {
            columns: 100,
            rows: 40,
        };
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
        let size = size.filter(|it| it.ws_col > 0 && it.ws_row > 0);
        size.map_or(USUAL, |it| Self {
            columns: usize::from(it.ws_col).clamp(40, 140),
            rows: usize::from(it.ws_row).clamp(24, 100),
        })
    }
}

#[derive(Deserialize)]
struct ShownReport {
    summary: String,
    findings: Vec<ShownFinding>,
    top: ShownTop,
}

#[derive(Deserialize)]
struct ShownFinding {
    severity: String,
    summary: String,
    change: String,
}

#[derive(Deserialize)]
struct ShownTop {
    owners: Vec<ShownOwner>,
}

#[derive(Deserialize)]
struct ShownOwner {
    namespace: String,
    kind: String,
    name: String,
    dead_containers: Option<u64>,
    not_ready_sandboxes: Option<u64>,
    came_1h: u64,
    came_24h: u64,
}

/// Formats an answer of `GET /api/v1/doctor`.
pub(super) fn of(report: Value, window: TerminalSize) -> anyhow::Result<String> {
    let shown: ShownReport = serde_json::from_value(report).context(NOT_UNDERSTOOD)?;
    let mut text = part(window.columns, "", &shown.summary, 0);
    let owners = owners(&shown.top.owners, window);
    // A line for what is left out, and the prompt's.
    let room = window.rows.saturating_sub(owners.lines().count() + 2);
    let mut left_out = 0;
    for finding in &shown.findings {
        let more = of_finding(finding, window.columns);
        if left_out > 0 || text.lines().count() + more.lines().count() > room {
            left_out += 1;
        } else {
            text.push_str(&more);
        }
    }
    if left_out > 0 {
        let more = format!("{:INDENT$}{left_out} more: --output json has them all", "");
        text.push_str(&format!("{}\n", clipped(&more, window.columns)));
    }
    Ok(text + &owners)
}

fn of_finding(finding: &ShownFinding, columns: usize) -> String {
    let severity = clipped(&escape::line(&finding.severity), INDENT - 1);
    let mut text = part(columns, &severity, &finding.summary, INDENT);
    if finding.change != "none needed" {
        let mark = format!("{:INDENT$}>", "");
        text.push_str(&part(columns, &mark, &finding.change, INDENT + 2));
    }
    text
}

/// Writes a text of bounded length beside its title; a word that is longer than a line is broken.
fn part(columns: usize, title: &str, text: &str, indent: usize) -> String {
    let mut words = Vec::new();
    for word in clipped(&escape::line(text), TEXT_MAX).split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        let pieces = letters.chunks(columns - indent);
        words.extend(pieces.map(String::from_iter));
    }
    titled(columns, title, &words.join(" "), indent)
}

fn owners(owners: &[ShownOwner], window: TerminalSize) -> String {
    let has_any =
        |it: &ShownOwner| it.dead_containers > Some(0) || it.not_ready_sandboxes > Some(0);
    let leaves = |it: &&ShownOwner| has_any(it) || it.came_24h > 0;
    let count = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |it| it.to_string());
    let (titles, figures) = if window.columns < NARROW {
        (["WHO", "DEAD", "SANDBOX", "1H", "24H"], 29)
    } else {
        (
            ["WHO LEAVES IT", "DEAD", "SANDBOXES", "LAST 1H", "LAST 24H"],
            40,
        )
    };
    let mut rows = table(&titles);
    let name_columns = NAME_COLUMNS.min(window.columns.saturating_sub(figures));
    for owner in owners.iter().filter(leaves).take(OWNERS) {
        let mut name = format!("{}/{}", owner.namespace, owner.kind);
        if !owner.name.is_empty() {
            name.push_str(&format!("/{}", owner.name));
        }
        rows.add_row([
            clipped(&escape::line(&name), name_columns),
            count(owner.dead_containers),
            count(owner.not_ready_sandboxes),
            owner.came_1h.to_string(),
            owner.came_24h.to_string(),
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = "\n".to_owned();
    for line in rows.trim_fmt().lines() {
        let line = clipped(line.strip_prefix(' ').unwrap_or(line), window.columns);
        text.push_str(&format!("{line}\n"));
    }
    text
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

    fn shown(report: Value, columns: usize, rows: usize) -> String {
        let text = of(report, TerminalSize { columns, rows }).unwrap();
        for line in text.lines() {
            assert!(
                line.chars().count() <= columns && line == line.trim_end(),
                "{line:?}"
            );
        }
        assert!(text.lines().count() <= rows, "{text}");
        text
    }

    #[test]
    fn a_report_begins_with_its_result_and_ends_with_who_leaves_it() {
        let long = "Container app of Deployment shop/web was restarted at least 12 times in the last 24 h.";
        let found = [
            finding("problem", long, "raise its memory"),
            finding("info", "All well.", "none needed"),
        ];
        let text = shown(report(&found), 80, 40);
        assert_eq!(
            text,
            "1 problem: 12 dead containers and 3 not-ready sandboxes, 40 came in the last 24\n\
             h.\n\
             problem  Container app of Deployment shop/web was restarted at least 12 times in\n         \
             the last 24 h.\n         \
             > raise its memory\n\
             info     All well.\n\
             \n\
             WHO LEAVES IT        DEAD  SANDBOXES  LAST 1H  LAST 24H\n\
             shop/Deployment/web  12    3          2        40\n"
        );
    }

    #[test]
    fn it_fits_any_terminal_whatever_names_are_like() {
        let hostile = format!(
            "\u{1b}[2J{}\u{202e} {}",
            "x".repeat(500),
            "word ".repeat(200)
        );
        let found: Vec<Value> = (0..50)
            .map(|_| finding("problem", &hostile, &hostile))
            .collect();
        for (columns, rows) in [(40, 24), (80, 24), (140, 100)] {
            let text = shown(report(&found), columns, rows);
            assert!(text.contains(" more: --output json"), "{text}");
            assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
        }
    }

    #[test]
    fn a_narrow_terminal_loses_no_fact() {
        let summary = "Container inventory of pod shop/inventory-crash-nhtjh was restarted at least 77 times in the \
                       last 24 h, last 10m31s ago: it failed (exit code 1).";
        let change = "mend what it fails on: kubectl -n shop logs inventory-crash-nhtjh -c inventory --previous has \
                      its last lines";
        for columns in [40, 50, 60] {
            let text = shown(report(&[finding("problem", summary, change)]), columns, 40);
            let words = text.replace('>', " ");
            let words: Vec<&str> = words.split_whitespace().collect();
            let words = words.join(" ");
            assert!(words.contains(summary) && words.contains(change), "{text}");
            assert!(text.trim_end().ends_with(" 40"), "{text}");
        }
    }

    #[test]
    fn a_wide_terminal_shows_a_text_whole() {
        let change = "delete the finished pods of node-17.example ".repeat(10);
        let findings = [finding("problem", "Pods stay.", change.trim_end())];
        let text = shown(report(&findings), 140, 40);
        assert_eq!(text.matches("node-17.example").count(), 10, "{text}");
    }

    #[test]
    fn no_finding_is_one_sentence() {
        let mut report = report(&[]);
        report["top"]["owners"] = json!([]);
        assert_eq!(shown(report, 100, 24).lines().count(), 1);
    }
}
