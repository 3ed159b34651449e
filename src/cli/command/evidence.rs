//! `crisweep evidence`: what was kept of removed containers, from the running service or, without one, from its
//! database. Changes nothing.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use reqwest::{StatusCode, Url};
use serde::{Deserialize, Serialize};

use super::figures::short_size;
use super::text::table;
use crate::cli::Output;
use crate::cli::local_service::{Way, ways};
use crate::config::Config;
use crate::evidence::{cri_log, unpack};
use crate::model::{Evidence, escape, short_duration};
use crate::state::{EvidenceFilter, EvidenceFound, read_evidence, read_evidence_of};

/// How long the service may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long reading the web configuration file may take.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);
/// The largest answer: a page of rows with long messages.
const ANSWER_MAX: usize = 32 << 20;
/// How the command names itself.
const USER_AGENT: &str = concat!("crisweep-evidence/", env!("CARGO_PKG_VERSION"));

/// Arguments of `evidence`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(args_conflicts_with_subcommands = true)]
pub struct EvidenceArgs {
    /// What to do; the default is to list.
    #[command(subcommand)]
    what: Option<What>,
    /// Which to list.
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
enum What {
    /// List it, newest first
    List(ListArgs),
    /// Show one, with the end of the container's log
    Show(ShowArgs),
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
struct ListArgs {
    /// Of the pod with this name or UID
    #[arg(long)]
    pod: Option<String>,
    /// Of pods of this namespace
    #[arg(long)]
    namespace: Option<String>,
    /// Of pods of this owner, such as web-7f or ReplicaSet/web-7f
    #[arg(long)]
    owner: Option<String>,
    /// Of the container with this name
    #[arg(long)]
    container: Option<String>,
    /// With this exit code
    #[arg(long, allow_negative_numbers = true)]
    exit_code: Option<i32>,
    /// Kept since then: a time, or a duration before now such as 2h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Kept before then
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// At most this many, up to 1000 [default: 100]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// How to show it: table for people, json for machines
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    output: Output,
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
struct ShowArgs {
    /// Its number, or the container's id or at least 6 characters of it
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
        let given = pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        given.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// A page of evidence, as the service answers it.
#[derive(Debug, Deserialize, Serialize)]
struct Listed {
    evidence: Vec<Evidence>,
    next: Option<i64>,
}

/// Runs `crisweep evidence`.
///
/// # Errors
/// If it cannot be read, or there is none with this id.
pub async fn run(config: Config, args: EvidenceArgs) -> anyhow::Result<bool> {
    match args.what.unwrap_or(What::List(args.list)) {
        What::List(args) => list(&config, &args).await,
        What::Show(args) => show(&config, &args).await,
    }
    .map(|()| true)
}

async fn list(config: &Config, args: &ListArgs) -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "ages are shown as of now")]
    let now = Timestamp::now();
    let filter = EvidenceFilter::read(args.pairs(), now).map_err(anyhow::Error::msg)?;
    let answer = ask(config, "/api/v1/evidence", &args.pairs()).await?;
    let listed: Listed = if let Some(answer) = answer {
        serde_json::from_slice(&answer).context("the service's answer")?
    } else {
        let page = read_evidence(own(config)?, &filter)?;
        Listed {
            evidence: page.rows,
            next: page.next,
        }
    };
    match args.output {
        Output::Json => super::print(&json(&listed)?),
        Output::Table => super::print(&rows(&listed, now)),
    }
    Ok(())
}

async fn show(config: &Config, args: &ShowArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.id.bytes().all(|b| b.is_ascii_alphanumeric()),
        "\"{}\" is neither a number nor a container's id",
        escape::line(&args.id)
    );
    let path = format!("/api/v1/evidence/{}", args.id);
    let (evidence, log) = match ask(config, &path, &[]).await? {
        Some(answer) => {
            let evidence: Evidence = serde_json::from_slice(&answer).context("the answer")?;
            let path = format!("/api/v1/evidence/{}/log", evidence.number);
            let raw = [("raw".to_owned(), "true".to_owned())];
            let log = ask(config, &path, &raw).await?;
            (evidence, log.context("the service went away")?)
        }
        None => match read_evidence_of(own(config)?, &args.id)? {
            EvidenceFound::One(evidence, packed) => (
                *evidence,
                unpack(&packed).context("the kept log is damaged")?,
            ),
            EvidenceFound::Several => anyhow::bail!("the ids of several containers begin so"),
            EvidenceFound::None => anyhow::bail!("there is no such evidence"),
        },
    };
    match args.output {
        _ if args.raw => io::stdout().write_all(&log)?,
        Output::Json => super::print(&json(&evidence)?),
        Output::Table => super::print(&page(&evidence, &log)),
    }
    Ok(())
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string_pretty(value)?;
    Ok(format!("{}\n", escape::json(&text)))
}

/// The state directory, read without the service; says so.
fn own(config: &Config) -> anyhow::Result<&std::path::Path> {
    let dir = config.state.dir.as_deref();
    let dir = dir.context("no service answers, and state.dir is null: nothing is kept")?;
    eprintln!(
        "no service answers; this is from the database in {}",
        dir.display()
    );
    Ok(dir)
}

/// Asks the running service; `None` if none runs or lets this user read.
async fn ask(
    config: &Config,
    path: &str,
    pairs: &[(String, String)],
) -> anyhow::Result<Option<Vec<u8>>> {
    for way in ways(config, DISK_TIMEOUT).await {
        let why = match answer(&way, path, pairs).await {
            Ok((StatusCode::OK, bytes)) => return Ok(Some(bytes)),
            Ok((status, _)) if matches!(status.as_u16(), 401 | 403) => format!("answers {status}"),
            Ok((status, bytes)) => {
                let text = String::from_utf8_lossy(&bytes);
                anyhow::bail!("the service at {way} answers {status}: {}", text.trim());
            }
            Err(error) if error.downcast_ref().is_some_and(reqwest::Error::is_connect) => continue,
            Err(error) => format!(
                "gives no answer ({})",
                crate::telemetry::chain(error.as_ref())
            ),
        };
        eprintln!("{}", escape::line(&format!("the service at {way} {why}")));
    }
    Ok(None)
}

async fn answer(
    way: &Way,
    path: &str,
    pairs: &[(String, String)],
) -> anyhow::Result<(StatusCode, Vec<u8>)> {
    let mut url = Url::parse(&way.url(path))?;
    if !pairs.is_empty() {
        url.query_pairs_mut().extend_pairs(pairs);
    }
    let request = way.client(USER_AGENT)?.get(url).timeout(TIMEOUT);
    let mut response = request.send().await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        anyhow::ensure!(
            bytes.len() <= ANSWER_MAX,
            "the answer is longer than {ANSWER_MAX} bytes"
        );
    }
    Ok((response.status(), bytes))
}

/// One row for each, for a terminal.
fn rows(listed: &Listed, now: Timestamp) -> String {
    if listed.evidence.is_empty() {
        return "nothing was kept that matches\n".to_owned();
    }
    let mut table = table(&["no.", "kept", "pod", "container", "how it ended", "log"]);
    for it in &listed.evidence {
        let pod = it
            .pod
            .as_ref()
            .map_or_else(String::new, |pod| format!("{}/{}", pod.namespace, pod.name));
        let row = [
            it.number.to_string(),
            format!("{} ago", short_duration(now.duration_since(it.kept_at))),
            pod,
            format!("{}#{}", it.container, it.attempt),
            it.ending.clone(),
            short_size(it.log.bytes),
        ];
        table.add_row(row.map(|text| escape::line(&text).into_owned()));
    }
    let more = match listed.next {
        Some(_) => "\nthere is more; --limit or a filter shows it\n",
        None => "",
    };
    format!("{table}\n{more}")
}

/// One piece of evidence as a page: what is known, then what the container wrote last.
fn page(it: &Evidence, log: &[u8]) -> String {
    let time = |at: Option<Timestamp>| at.map_or_else(|| "unknown".to_owned(), |at| at.to_string());
    let pod = it.pod.as_ref();
    let labels = it
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let lines = [
        (
            "container",
            format!("{}#{} {}", it.container, it.attempt, it.container_id),
        ),
        (
            "pod",
            pod.map_or_else(String::new, |pod| {
                format!("{}/{} {}", pod.namespace, pod.name, pod.uid)
            }),
        ),
        (
            "owner",
            it.owner
                .as_ref()
                .map_or_else(String::new, |it| format!("{}/{}", it.kind, it.name)),
        ),
        ("labels", labels.collect::<Vec<_>>().join(" ")),
        ("image", format!("{} {}", it.image, it.image_ref)),
        ("ended", it.ending.clone()),
        ("reason", it.reason.clone()),
        ("message", it.message.clone()),
        ("created", it.created_at.to_string()),
        ("started", time(it.started_at)),
        ("finished", time(it.finished_at)),
        (
            "removed",
            format!(
                "{} {} (pass {})",
                it.kept_at,
                it.removed_for.label(),
                it.pass
            ),
        ),
        ("log", log_line(it)),
    ];
    let mut text = String::new();
    for (name, value) in lines.iter().filter(|(_, value)| !value.trim().is_empty()) {
        text.push_str(&format!("{name:<10} {}\n", escape::line(value.trim())));
    }
    for entry in cri_log::entries(log, it.log.is_whole) {
        let stream = entry.stream.label();
        let said = String::from_utf8_lossy(&entry.text);
        let said = said.strip_suffix('\n').unwrap_or(&said);
        let time = String::from_utf8_lossy(entry.time);
        text.push_str(&format!(
            "{}\n",
            escape::line(format!("{time} {stream} {said}").trim_start())
        ));
    }
    text
}

fn log_line(it: &Evidence) -> String {
    let log = &it.log;
    let part = if log.is_whole { "all of it" } else { "its end" };
    let masked = match log.masked_bytes {
        0 => String::new(),
        bytes => format!(", {bytes} bytes masked"),
    };
    let problem = match log.problem.as_str() {
        "" => String::new(),
        why => format!("; {why}"),
    };
    format!(
        "{} ({}, {part}{masked}){problem}",
        log.path,
        short_size(log.bytes)
    )
}
