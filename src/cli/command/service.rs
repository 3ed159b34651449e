//! Passes and saved plans of the running service.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use anyhow::Context;
use futures_util::stream::{self, Stream, StreamExt};
use jiff::Timestamp;
use reqwest::header::LOCATION;
use reqwest::{Method, Response};
use serde::Deserialize;
use tokio::time::{Instant, MissedTickBehavior};

use super::args::{GcArgs, PassArgs};
use super::progress::Progress;
use crate::app::StopSignals;
use crate::cli::output::note;
use crate::cli::service::{NOT_UNDERSTOOD, ServiceAddress, ServiceQuery, Site};
use crate::gc::Summary;
use crate::http::ADMISSION;
use crate::model::{AlertResult, Pass, Target, escape};
use crate::outgoing::read_body;

/// How long the service may take to answer a question about a pass.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a plan may take.
const PLAN_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the pass is read while a terminal shows it.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How often the ended pass is asked for.
const READS_AT_END: usize = 3;
/// After so long a silence the service is asked whether it still answers: a pass says something each 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// The largest refusal that is read.
const REFUSAL_MAX_BYTES: u64 = 64 << 10;

/// What is read of a saved plan.
#[derive(Deserialize)]
pub(super) struct ShownSavedPlan {
    pub(super) id: String,
    /// When it can no longer be carried out.
    pub(super) expires_at: Timestamp,
    /// Counts of removals and kept objects.
    pub(super) summary: BTreeMap<Target, Summary>,
}

/// Has the service save a plan; returns its answer.
///
/// # Errors
/// If the service does not answer, or refuses.
pub(super) async fn save(site: &Site, args: &PassArgs) -> anyhow::Result<String> {
    let question = ServiceQuery::within(site, PLAN_TIMEOUT).await;
    let found = question.reach().await;
    let found = found.map_err(|failure| {
        anyhow::anyhow!("{}; the service keeps the saved plans", failure.words)
    })?;
    let path = format!("/api/v1/plans?{}", query(args));
    let path = path.trim_end_matches('?');
    let response = answer(found, Method::POST, path, PLAN_TIMEOUT).await?;
    response.text().await.with_context(|| found.at())
}

/// A pass of the service, as this command watches it.
struct WatchedPass<'a> {
    found: &'a ServiceAddress,
    path: String,
    /// It was asked for before, and this command's question joined it.
    is_joined: bool,
    progress: Progress,
    cancelled: bool,
}

/// Asks for a pass, shows its progress and returns it when it is done; `None` if a person left before. Ctrl-C cancels
/// a pass that this command started, and leaves one that it joined.
///
/// # Errors
/// If the service does not answer, or refuses the pass.
pub(super) async fn gc(found: &ServiceAddress, args: &GcArgs) -> anyhow::Result<Option<Pass>> {
    let mut interrupts = StopSignals::new()?;
    let at = || found.at();
    let path = format!("/gc?{}", pass_query(args));
    let asked = found.request(Method::POST, &path).send();
    let response = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
    let response = response.with_context(at)?.with_context(at)?;
    let response = accepted(found, response).await?;
    note(&format!("{} runs the pass", at()));
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    // Some reverse proxies rewrite the rest of it.
    let id = header(LOCATION.as_str()).and_then(|path| path.rsplit('/').next());
    let id = id.with_context(|| format!("{} does not say which pass it runs", at()))?;
    let path = format!("/api/v1/passes/{id}");
    let mut watched = WatchedPass {
        found,
        path,
        is_joined: header(ADMISSION) == Some(AlertResult::Merged.label()),
        progress: Progress::new(args.max_removals),
        cancelled: false,
    };
    if watched.is_joined {
        watched.progress.interrupts(&format!(
            "joined pass {}, which waits with the same parameters",
            watched.id()
        ));
    }
    if watched.was_left(response, &mut interrupts).await? {
        return Ok(None);
    }
    watched.progress.clear();
    tokio::select! {
        pass = watched.ended() => pass.map(Some),
        _ = interrupts.next() => {
            let left = format!("left at once; {}", watched.is_over());
            watched.progress.interrupts(&left);
            Ok(None)
        }
    }
}

/// Returns the pass as it stands, once a second.
fn states<'a>(
    found: &'a ServiceAddress,
    path: &'a str,
) -> impl Stream<Item = anyhow::Result<Pass>> + 'a {
    let mut ticks = tokio::time::interval(READ_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    stream::unfold(ticks, async move |mut ticks| {
        ticks.tick().await;
        Some((read(found, path).await, ticks))
    })
}

/// Reads a pass as it stands.
async fn read(found: &ServiceAddress, path: &str) -> anyhow::Result<Pass> {
    let answer = answer(found, Method::GET, path, ANSWER_TIMEOUT).await?;
    serde_json::from_str(&answer.text().await?).context(NOT_UNDERSTOOD)
}

impl WatchedPass<'_> {
    fn id(&self) -> String {
        let id = self.path.rsplit('/').next().unwrap_or_default();
        escape::line(id).into_owned()
    }

    /// Shows the progress until the pass is over; says whether a person left before.
    async fn was_left(
        &mut self,
        mut response: Response,
        interrupts: &mut StopSignals,
    ) -> anyhow::Result<bool> {
        let (found, path) = (self.found, self.path.clone());
        let mut states = std::pin::pin!(states(found, &path));
        let mut text = Vec::new();
        let mut heard_at = Instant::now();
        loop {
            tokio::select! {
                chunk = response.chunk() => match chunk.with_context(|| self.is_unknown())? {
                    Some(chunk) => {
                        heard_at = Instant::now();
                        self.said(&mut text, &chunk);
                    }
                    None => return Ok(false),
                },
                () = tokio::time::sleep_until(heard_at + SILENCE_MAX) => {
                    // Whatever it answers, it lives: a proxy may hold the lines back.
                    let asked = found.request(Method::GET, &path).timeout(ANSWER_TIMEOUT).send();
                    asked.await.with_context(|| self.is_unknown())?;
                    heard_at = Instant::now();
                }
                // The pass goes on if the state cannot be read for the line on the terminal.
                Some(read) = states.next(), if self.progress.is_a_line() => if let Ok(pass) = read {
                    self.progress.shows(&pass, Instant::now());
                },
                _ = interrupts.next() => {
                    if self.interrupted().await? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    fn is_unknown(&self) -> String {
        format!(
            "it is not known whether the pass goes on (crisweep passes {})",
            self.id()
        )
    }

    fn is_over(&self) -> String {
        format!("the pass is over: crisweep passes {}", self.id())
    }

    /// Reads the pass after its end; asks again where an answer is lost.
    async fn ended(&self) -> anyhow::Result<Pass> {
        for _ in 1..READS_AT_END {
            match read(self.found, &self.path).await {
                Ok(pass) => return Ok(pass),
                Err(_lost) => tokio::time::sleep(READ_EVERY).await,
            }
        }
        let pass = read(self.found, &self.path).await;
        pass.with_context(|| self.is_over())
    }

    /// Takes a piece of the pass's lines; `text` holds an unfinished one.
    fn said(&mut self, text: &mut Vec<u8>, chunk: &[u8]) {
        text.extend_from_slice(chunk);
        let end = text.iter().rposition(|byte| *byte == b'\n');
        let whole = end.map_or(0, |end| end + 1);
        let lines: Vec<u8> = text.drain(..whole).collect();
        let lines = String::from_utf8_lossy(&lines);
        self.progress.said(lines.lines());
    }

    /// Handles Ctrl-C; says whether the command ends now.
    async fn interrupted(&mut self) -> anyhow::Result<bool> {
        let leaves = if self.is_joined {
            Some("stopped watching; the pass goes on, because this command only joined it")
        } else if self.cancelled {
            Some("left at once; the service still ends the removals in flight")
        } else {
            let pass = read(self.found, &self.path).await;
            let pass = pass.with_context(|| self.is_unknown())?;
            let others = "stopped watching; the pass goes on, because others asked for it too";
            (pass.merged_triggers > 0).then_some(others)
        };
        if let Some(why) = leaves {
            let id = self.id();
            let words = format!("{why}: crisweep passes {id}");
            self.progress.interrupts(&words);
            return Ok(true);
        }
        self.cancelled = true;
        let request = self.found.request(Method::DELETE, &self.path);
        let response = request.timeout(ANSWER_TIMEOUT).send().await;
        let response = response.with_context(|| self.found.at())?;
        // 409: it ended meanwhile.
        if response.status() != reqwest::StatusCode::CONFLICT {
            accepted(self.found, response).await?;
        }
        self.progress.interrupts(
            "stopping the pass that this command started: no new removal starts, removals in flight may finish; \
             Ctrl-C again leaves at once",
        );
        Ok(false)
    }
}

/// Returns the query of a plan.
pub(super) fn query(args: &PassArgs) -> String {
    joined(&pairs(args))
}

/// Where no target is named the service chooses: all, or those of the saved plan.
fn pairs(args: &PassArgs) -> Vec<(&'static str, String)> {
    let mut pairs = Vec::new();
    if args.names_targets() {
        let targets = args.targets().into_iter();
        pairs.extend(targets.map(|target| ("target", target.label().to_owned())));
    }
    if let Some(age) = args.options().assume_finished_after {
        let age = humantime::format_duration(age).to_string();
        pairs.push(("assume_finished_after", age));
    }
    if let Some(max_dead) = args.max_dead {
        pairs.push(("max_dead", max_dead.to_string()));
    }
    pairs
}

fn pass_query(args: &GcArgs) -> String {
    let mut pairs = vec![("follow", "true".to_owned())];
    let values = [
        ("max_removals", args.max_removals.map(|it| it.to_string())),
        ("dry_run", args.dry_run.then(|| "true".to_owned())),
        ("force", args.force.then(|| "true".to_owned())),
        ("plan", args.plan.clone()),
    ];
    let given = values.into_iter();
    pairs.extend(given.filter_map(|(key, value)| Some((key, value?))));
    pairs.extend(self::pairs(&args.pass));
    joined(&pairs)
}

/// Writes pairs as a query.
pub(super) fn joined(pairs: &[(impl Display, String)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(key, value)| format!("{key}={}", escape::url(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// Asks the service, and returns its answer, or its own words if it refuses.
async fn answer(
    found: &ServiceAddress,
    method: Method,
    path: &str,
    timeout: Duration,
) -> anyhow::Result<Response> {
    let response = found.request(method, path).timeout(timeout).send().await;
    accepted(found, response.with_context(|| found.at())?).await
}

/// Returns the answer, or the service's own words if it refuses.
async fn accepted(found: &ServiceAddress, mut response: Response) -> anyhow::Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let mut body = Vec::new();
    let reading = read_body(&mut response, &mut body, REFUSAL_MAX_BYTES);
    // If the body does not come, the status says enough.
    drop(tokio::time::timeout(ANSWER_TIMEOUT, reading).await);
    anyhow::bail!("{}", found.refusal(status, &body));
}
