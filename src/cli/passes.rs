//! `crisweep passes`: what was done before, and why. Asks the running service; without one it reads the database.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::Output;
use super::command::args::whole;
use super::command::text::{outcome_ink, pass_ink, pass_text, table};
use super::database;
use super::output::{print_json, print_on};
use super::screen::{Ink, Screen, Wide};
use super::service::{ServiceQuery, Site};
use crate::config::Config;
use crate::model::{Pass, TargetReport, escape, short_duration};
use crate::state::{self, PASSES_MAX, PassFilter, REMOVALS_MAX, RemovalFilter, RemovalRecord};

/// How long the service may take to answer.
const SERVICE_PATIENCE: Duration = Duration::from_secs(10);
/// The largest answer: 1,000 removals with long errors.
const ANSWER_MAX_BYTES: usize = 32 << 20;
/// Passes that are shown, unless `--limit` says otherwise.
const PASSES: u32 = 20;
/// Passes that the service remembers beside its database.
const HISTORY: u32 = 100;
/// Columns left for the name of an object, of 80.
const NAME_COLUMNS: usize = 32;
/// Columns left for who asked for a pass, of 80.
const ASKER_COLUMNS: usize = 16;

/// Arguments of `passes`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = AFTER_HELP)]
pub struct PassesArgs {
    /// A pass: its report, and each removal with its reason and result
    #[arg(value_name = "PASS", value_parser = NonEmptyStringValueParser::new())]
    pub id: Option<String>,
    /// Most rows, up to 1000 [default: 20 passes, 1000 removals]
    #[arg(long, value_name = "N", value_parser = whole(1_u32..=1000), allow_negative_numbers = true)]
    pub limit: Option<u32>,
    /// Names and ids.
    #[command(flatten)]
    pub wide: Wide,
    /// table for people, json for machines (as GET /api/v1/passes)
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    pub output: Output,
}

const AFTER_HELP: &str = "\
The running service answers; without one this command reads the database in state.dir.

Exit codes:
  0  shown
  1  no such pass, or neither the service nor the database can be read
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep passes                       the last 20 passes, newest first
  crisweep passes 20260131T090000Z-7    one pass, and what it removed
  crisweep passes --output json | jq '.passes[] | select(.outcome == \"partial\")'
";

#[derive(Debug)]
struct ShownPasses {
    passes: Vec<Pass>,
    /// Of the one pass that was asked for.
    removals: Vec<RemovalRecord>,
}

/// Runs `crisweep passes`.
///
/// # Errors
/// If there is no such pass, or nothing can be read.
pub async fn run(site: &Site, args: &PassesArgs) -> anyhow::Result<()> {
    let answer = match asked(site, args).await? {
        Some(answer) => answer,
        None => own(&site.config, args).await?,
    };
    let screen = Screen::of_stdout(args.wide);
    match (args.output, &args.id) {
        (Output::Json, None) => print_json(&json!({ "passes": answer.passes })),
        (Output::Json, Some(_)) => print_json(&json!({
            "pass": answer.passes.first(),
            "removals": answer.removals,
        })),
        (Output::Table, None) => print_on(&screen, &passes_text(&answer.passes, &screen), row_ink),
        (Output::Table, Some(_)) => {
            let mut text = passes_text(&answer.passes, &screen);
            for pass in &answer.passes {
                text.push_str(&format!("\n{}", pass_text(pass, &screen)));
            }
            let limit = args.limit.unwrap_or(REMOVALS_MAX);
            text.push_str(&removals_text(&answer.removals, limit, &screen));
            print_on(&screen, &text, pass_ink)
        }
    }
}

/// The colour of a row of the list of passes: that of its outcome.
fn row_ink(line: &str) -> Option<Ink> {
    if line.trim_start().starts_with("PASS ") {
        return Some(Ink::Head);
    }
    line.split_whitespace()
        .find_map(outcome_ink)
        .filter(|ink| *ink != Ink::Good)
}

/// Asks the service; `None`: it told nothing.
async fn asked(site: &Site, args: &PassesArgs) -> anyhow::Result<Option<ShownPasses>> {
    #[derive(Deserialize)]
    struct Removals {
        removals: Vec<RemovalRecord>,
    }
    let question = ServiceQuery::within(site, SERVICE_PATIENCE).await;
    let question = question.up_to(ANSWER_MAX_BYTES);
    let question = question.or_else("this command reads the database in state.dir");
    let Some(id) = &args.id else {
        let passes = recent(&question, args.limit.unwrap_or(PASSES)).await?;
        return Ok(passes.map(|passes| ShownPasses {
            passes,
            removals: Vec::new(),
        }));
    };
    let (id, limit) = (escape::url(id), args.limit.unwrap_or(REMOVALS_MAX));
    let Some(pass) = question.ask(&format!("/api/v1/passes/{id}")).await? else {
        return Ok(None);
    };
    let path = format!("/api/v1/removals?pass={id}&limit={limit}");
    let removals = question.ask(&path).await?;
    Ok(removals.map(|Removals { removals }| ShownPasses {
        passes: vec![pass],
        removals,
    }))
}

/// Asks for the last passes, page by page.
async fn recent(question: &ServiceQuery, limit: u32) -> anyhow::Result<Option<Vec<Pass>>> {
    #[derive(Deserialize)]
    struct PassesPage {
        passes: Vec<Pass>,
        /// Where older ones begin.
        next: Option<i64>,
    }
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    // Waiting and running ones included, as far as the history goes back.
    let mut path = if limit <= HISTORY {
        "/api/v1/passes".to_owned()
    } else {
        format!("/api/v1/passes?limit={}", limit.min(PASSES_MAX))
    };
    let mut shown = Vec::new();
    loop {
        let Some(PassesPage { passes, next }) = question.ask(&path).await? else {
            return Ok(None);
        };
        shown.extend(passes);
        let Some(next) = next.filter(|_| shown.len() < most) else {
            shown.truncate(most);
            return Ok(Some(shown));
        };
        path = format!("/api/v1/passes?limit={PASSES_MAX}&before={next}");
    }
}

async fn own(config: &Config, args: &PassesArgs) -> anyhow::Result<ShownPasses> {
    let dir = database::dir(config)?;
    let args = args.clone();
    let read = move || -> anyhow::Result<ShownPasses> {
        let passes = PassFilter {
            id: args.id.clone(),
            limit: args.limit.unwrap_or(PASSES),
            ..PassFilter::default()
        };
        let at = |error| database::at(&dir, error);
        let passes = state::read_passes(&dir, &passes).map_err(at)?.rows;
        let mut removals = Vec::new();
        if let Some(id) = args.id {
            let found = !passes.is_empty();
            anyhow::ensure!(
                found,
                "no pass \"{}\" is in the database",
                escape::line(&id)
            );
            let of_it = RemovalFilter {
                pass: Some(id),
                limit: args.limit.unwrap_or(REMOVALS_MAX),
                ..RemovalFilter::default()
            };
            removals = state::ask(&dir, &of_it).map_err(at)?.rows;
        }
        Ok(ShownPasses { passes, removals })
    };
    database::read(read).await
}

fn passes_text(passes: &[Pass], screen: &Screen) -> String {
    if passes.is_empty() {
        return "no pass yet\n".to_owned();
    }
    let header = [
        "PASS", "ASKED BY", "OUTCOME", "REMOVED", "FAILED", "LEFT", "TOOK",
    ];
    let mut rows = table(&header);
    let columns = screen.name_columns(ASKER_COLUMNS, usize::MAX);
    for pass in passes {
        let sum = |figure: fn(&TargetReport) -> u64| -> String {
            pass.targets.values().map(figure).sum::<u64>().to_string()
        };
        let outcome = match (pass.outcome, pass.started_at) {
            (Some(outcome), _) => outcome.label(),
            (None, Some(_)) => "running",
            (None, None) => "waiting",
        };
        rows.add_row([
            escape::line(&pass.id).into_owned(),
            screen.name(&escape::line(&asked_by(pass)), columns),
            outcome.to_owned(),
            sum(|it| it.removed),
            sum(|it| it.failed),
            sum(|it| it.remaining),
            took(pass.started_at, pass.finished_at),
        ]);
    }
    format!("{}\n", rows.trim_fmt())
}

fn asked_by(pass: &Pass) -> String {
    let trigger = &pass.trigger;
    let alert = trigger.alert.as_ref().map(|alert| alert.name.clone());
    let caller = trigger.by.as_ref().map(ToString::to_string);
    let cause = trigger.cause.label();
    match alert.or(caller) {
        Some(who) => format!("{cause}: {who}"),
        None => cause.to_owned(),
    }
}

fn took(began: Option<Timestamp>, ended: Option<Timestamp>) -> String {
    let Some((began, ended)) = began.zip(ended) else {
        return String::new();
    };
    let took = ended.duration_since(began);
    if took < SignedDuration::from_secs(10) {
        format!("{:.1}s", took.as_secs_f64())
    } else {
        short_duration(took)
    }
}

fn removals_text(removals: &[RemovalRecord], limit: u32, screen: &Screen) -> String {
    if removals.is_empty() {
        return String::new();
    }
    let mut results: BTreeMap<&str, usize> = BTreeMap::new();
    for removal in removals {
        *results.entry(result(removal)).or_default() += 1;
    }
    let results = results.iter().map(|(it, count)| format!("{count} {it}"));
    let results = results.collect::<Vec<_>>().join(", ");
    let mut rows = table(&["RESULT", "REASON", "WHAT", "MS", "ID"]);
    let columns = screen.name_columns(NAME_COLUMNS, usize::MAX);
    for removal in removals {
        let ms = removal.duration_ms.map(|ms| ms.to_string());
        rows.add_row([
            result(removal).to_owned(),
            removal.reason.clone(),
            screen.name(&escape::line(&name(removal)), columns),
            ms.unwrap_or_default(),
            escape::line(screen.id(&removal.id)).into_owned(),
        ]);
    }
    let title = if removals.len() >= usize::try_from(limit).unwrap_or(usize::MAX) {
        format!("The last {} removals", removals.len())
    } else {
        "Removals".to_owned()
    };
    let mut text = format!(
        "\n{title}, newest first ({results}):\n\n{}\n",
        rows.trim_fmt()
    );
    let failed = removals.iter().find(|it| it.why.is_some());
    if let Some((id, why)) = failed.and_then(|it| Some((&it.id, it.why.as_deref()?))) {
        let line = format!("\nThe last error, of {id}: {why}");
        text.push_str(&format!("\n{}\n", escape::line(line.trim())));
    }
    text
}

fn result(removal: &RemovalRecord) -> &str {
    removal.result.as_deref().unwrap_or("unknown")
}

fn name(removal: &RemovalRecord) -> String {
    let pod = removal
        .pod_namespace
        .as_ref()
        .zip(removal.pod_name.as_ref());
    let pod = pod.map(|(namespace, pod)| format!("{namespace}/{pod}"));
    match (pod, removal.target.as_str()) {
        (Some(pod), "containers") => format!("{pod}/{}#{}", removal.name, removal.attempt),
        (Some(pod), _) => format!("{pod}#{}", removal.attempt),
        (None, _) => removal.name.clone(),
    }
}
