//! `crisweep evidence`: what was kept of removed containers, from the running service or, without one, from its
//! database. Changes nothing.

use std::time::Duration;

use anyhow::Context;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::args::whole;
use super::service::joined;
use super::text::table;
use crate::cli::Output;
use crate::cli::database;
use crate::cli::help::texts;
use crate::cli::output::{print, print_bytes, print_json, print_on};
use crate::cli::screen::{Ink, Screen, Wide};
use crate::cli::service::{ServiceQuery, Site};
use crate::evidence::{cri_log, unpack};
use crate::model::{Evidence, escape, short_duration, short_size};
use crate::state::{EvidenceFilter, EvidenceFound, EvidenceOf, ID_PREFIX_MIN};
use crate::system;

/// How long the service may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer: a page of rows with long messages.
const ANSWER_MAX: usize = 32 << 20;
/// Columns left for a pod, a container and how it ended, of 80.
const POD_COLUMNS: usize = 19;
const CONTAINER_COLUMNS: usize = 11;
const ENDING_COLUMNS: usize = 20;

/// Arguments of `evidence`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = texts::EVIDENCE)]
pub struct EvidenceArgs {
    /// What to do; the default is to list.
    #[command(subcommand)]
    command: Option<EvidenceCommand>,
    /// Which to list.
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
enum EvidenceCommand {
    /// List what was kept, newest first
    List(ListArgs),
    /// Show one, with the end of the container's log
    Show(ShowArgs),
}

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
struct ListArgs {
    /// Of the pod with this name or UID
    #[arg(long)]
    pod: Option<String>,
    /// Of pods of this namespace
    #[arg(long, hide_short_help = true)]
    namespace: Option<String>,
    /// Of pods of this owner, such as web-7f or ReplicaSet/web-7f
    #[arg(long, hide_short_help = true)]
    owner: Option<String>,
    /// Of the container with this name
    #[arg(long, hide_short_help = true)]
    container: Option<String>,
    /// With this exit code
    #[arg(long, value_name = "N", value_parser = whole(i32::MIN..=i32::MAX), allow_negative_numbers = true, hide_short_help = true)]
    exit_code: Option<i32>,
    /// Kept since a time, or a duration before now such as 2h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Kept before then
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    #[arg(hide_short_help = true)]
    until: Option<String>,
    /// At most this many, up to 1000 [default: 100]
    #[arg(long, value_name = "N", value_parser = whole(1_u32..=1000), allow_negative_numbers = true)]
    limit: Option<u32>,
    /// Names.
    #[command(flatten)]
    wide: Wide,
    /// table for people, json for machines
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    output: Output,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
struct ShowArgs {
    /// Its number, or the container's id or at least 6 characters of it
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// Only the log's bytes, as its file had them
    #[arg(long, conflicts_with = "output")]
    raw: bool,
    /// How to show it: table for people, json for machines (without the log)
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    output: Output,
}

impl ListArgs {
    fn pairs(&self) -> Vec<(String, String)> {
        let pairs = [
            ("pod", self.pod.clone()),
            ("namespace", self.namespace.clone()),
            ("owner", self.owner.clone()),
            ("container", self.container.clone()),
            ("exit_code", self.exit_code.map(|it| it.to_string())),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
            ("limit", self.limit.map(|it| it.to_string())),
        ];
        let given = |(key, value): (&str, Option<String>)| Some((key.to_owned(), value?));
        pairs.into_iter().filter_map(given).collect()
    }
}

/// A page of evidence, as the service answers it.
#[derive(Debug, Deserialize, Serialize)]
struct EvidencePage {
    evidence: Vec<Evidence>,
    next: Option<i64>,
}

impl EvidenceArgs {
    /// Checks what only the values show.
    ///
    /// # Errors
    /// Names the wrong argument.
    pub(in crate::cli) fn check(&self) -> Result<(), String> {
        // Not by clap's `args_conflicts_with_subcommands`: that refuses the options of every command too.
        if self.command.is_some() && self.list != ListArgs::default() {
            let error =
                "evidence: options of the list go after \"list\"; \"show\" takes none of them";
            return Err(error.to_owned());
        }
        match &self.command {
            None => self.list.check(),
            Some(EvidenceCommand::List(args)) => args.check(),
            Some(EvidenceCommand::Show(args)) => args.check(),
        }
    }
}

impl ListArgs {
    fn check(&self) -> Result<(), String> {
        let read = EvidenceFilter::read(self.pairs(), Timestamp::UNIX_EPOCH);
        // The error begins with the parameter's name.
        read.map(|_| ()).map_err(|error| format!("--{error}"))
    }
}

impl ShowArgs {
    fn check(&self) -> Result<(), String> {
        if self.id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Ok(());
        }
        Err(format!(
            "\"{}\" is neither a number nor a container's id",
            self.id
        ))
    }
}

/// Runs `crisweep evidence`.
///
/// # Errors
/// If it cannot be read, or there is none with this id.
pub async fn run(site: &Site, args: EvidenceArgs) -> anyhow::Result<()> {
    match args.command.unwrap_or(EvidenceCommand::List(args.list)) {
        EvidenceCommand::List(args) => list(site, &args).await,
        EvidenceCommand::Show(args) => show(site, &args).await,
    }
}

async fn list(site: &Site, args: &ListArgs) -> anyhow::Result<()> {
    let now = system::clock();
    let filter = EvidenceFilter::read(args.pairs(), now).map_err(anyhow::Error::msg)?;
    let question = question(site).await;
    let path = format!("/api/v1/evidence?{}", joined(&args.pairs()));
    let listed: Option<EvidencePage> = question.ask(path.trim_end_matches('?')).await?;
    let listed = if let Some(listed) = listed {
        listed
    } else {
        let page = database::ask(&site.config, filter).await?;
        let (evidence, next) = (page.rows, page.next);
        EvidencePage { evidence, next }
    };
    match args.output {
        Output::Json => print_json(&listed),
        Output::Table => {
            let screen = Screen::of_stdout(args.wide);
            print_on(&screen, &rows(&listed, now, &screen), |line| {
                line.trim_start().starts_with("NO. ").then_some(Ink::Head)
            })
        }
    }
}

async fn show(site: &Site, args: &ShowArgs) -> anyhow::Result<()> {
    let path = format!("/api/v1/evidence/{}", args.id);
    let question = question(site).await;
    let (evidence, log) = if let Some(evidence) = question.ask::<Evidence>(&path).await? {
        let path = format!("/api/v1/evidence/{}/log?raw=true", evidence.number);
        let log = question.bytes(&path).await?;
        (evidence, log.context("the service did not send the log")?)
    } else {
        match database::ask(&site.config, EvidenceOf(args.id.clone())).await? {
            EvidenceFound::One(evidence, packed) => {
                let log = unpack(&packed).context("the kept log is damaged")?;
                (*evidence, log)
            }
            // `check` has refused ids with other characters than letters and digits.
            EvidenceFound::Several => {
                anyhow::bail!("the ids of several containers begin with \"{}\"", args.id)
            }
            EvidenceFound::None => {
                anyhow::bail!(
                    "no evidence in the database has the number or container id \"{}\" (give at least {ID_PREFIX_MIN} characters of an id)",
                    args.id
                )
            }
        }
    };
    match args.output {
        _ if args.raw => print_bytes(&log),
        Output::Json => print_json(&evidence),
        Output::Table => print(&page(&evidence, &log)),
    }
}

async fn question(site: &Site) -> ServiceQuery {
    let question = ServiceQuery::within(site, TIMEOUT).await;
    let question = question.up_to(ANSWER_MAX);
    question.or_else("this command reads the database in state.dir")
}

/// One row for each, for a terminal.
fn rows(listed: &EvidencePage, now: Timestamp, screen: &Screen) -> String {
    if listed.evidence.is_empty() {
        return "no evidence found\n".to_owned();
    }
    let mut table = table(&["NO.", "KEPT", "POD", "CONTAINER", "HOW IT ENDED", "LOG"]);
    // A wider or narrower terminal changes the pod's name most.
    let (wider, narrower) = (
        screen.columns.saturating_sub(80),
        80_usize.saturating_sub(screen.columns),
    );
    let room = |at_80: usize, share: usize| at_80 + wider / share - narrower / share;
    for it in &listed.evidence {
        let pod = it.pod.as_ref();
        let pod = pod.map(|pod| format!("{}/{}", pod.namespace, pod.name));
        let container = format!("{}#{}", it.container, it.attempt);
        let name = |name: &str, columns| screen.name(&escape::line(name), columns);
        let row = [
            it.number.to_string(),
            format!("{} ago", short_duration(now.duration_since(it.kept_at))),
            name(&pod.unwrap_or_default(), room(POD_COLUMNS, 2)),
            name(&container, room(CONTAINER_COLUMNS, 4)),
            name(&it.ending, room(ENDING_COLUMNS, 4)),
            short_size(it.log.bytes),
        ];
        table.add_row(row.map(|text| escape::line(&text).into_owned()));
    }
    let more = match listed.next {
        Some(_) => "\nmore rows exist: use --limit or a filter\n",
        None => "",
    };
    format!("{}\n{more}", table.trim_fmt())
}

/// One piece of evidence as a page: what is known, then what the container wrote last.
fn page(it: &Evidence, log: &[u8]) -> String {
    let time = |at: Option<Timestamp>| at.map_or("unknown".to_owned(), |at| format!("{at:.0}"));
    let name = format!("{}#{} {}", it.container, it.attempt, it.container_id);
    let pod = it.pod.as_ref();
    let pod = pod.map(|pod| format!("{}/{} {}", pod.namespace, pod.name, pod.uid));
    let owner = it.owner.as_ref();
    let owner = owner.map(|it| format!("{}/{}", it.kind, it.name));
    let labels = it.labels.iter();
    let labels: Vec<String> = labels.map(|(key, it)| format!("{key}={it}")).collect();
    let removed_for = it.removed_for.label();
    let lines = [
        ("container", name),
        ("pod", pod.unwrap_or_default()),
        ("owner", owner.unwrap_or_default()),
        ("labels", labels.join(" ")),
        ("image", format!("{} {}", it.image, it.image_ref)),
        ("ended", it.ending.clone()),
        ("reason", it.reason.clone()),
        ("message", it.message.clone()),
        ("created", time(Some(it.created_at))),
        ("started", time(it.started_at)),
        ("finished", time(it.finished_at)),
        (
            "removed",
            format!("{:.0} {removed_for} (pass {})", it.kept_at, it.pass),
        ),
        ("log", log_line(it)),
    ];
    let mut text = String::new();
    for (name, value) in lines.iter().filter(|(_, value)| !value.trim().is_empty()) {
        text.push_str(&format!("{name:<10} {}\n", escape::line(value.trim())));
    }
    for entry in cri_log::entries(log, it.log.is_whole) {
        let said = String::from_utf8_lossy(&entry.text);
        let said = said.strip_suffix('\n').unwrap_or(&said);
        let time = String::from_utf8_lossy(entry.time);
        let line = format!("{time} {} {said}", entry.stream.label());
        text.push_str(&format!("{}\n", escape::line(line.trim_start())));
    }
    text
}

fn log_line(it: &Evidence) -> String {
    let log = &it.log;
    if log.bytes == 0 {
        let why = log.missing().unwrap_or("the container wrote none");
        let colon = if log.path.is_empty() { "" } else { ": " };
        return format!("{}{colon}{why}", log.path);
    }
    let mut line = format!("{} ({}, ", log.path, short_size(log.bytes));
    line.push_str(if log.is_whole { "all of it" } else { "its end" });
    if log.masked_bytes > 0 {
        line.push_str(&format!(", {} bytes masked", log.masked_bytes));
    }
    line.push(')');
    if !log.problem.is_empty() {
        line.push_str(&format!("; {}", log.problem));
    }
    line
}
