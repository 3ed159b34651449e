//! `crisweep check`: one line and an exit code for node-problem-detector and other checkers. Only reads; always ends
//! within its time limit; its line has no text from outside.

mod node;
mod own_service;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::command::args::whole;
use crate::app;
use crate::cli::service::{ServiceFailureKind, ServiceQuery, Site};
use crate::cli::{Global, refused, remote};
use crate::config::Thresholds;
use crate::gc::Policy;
use crate::health::{HealthFacts, HealthFinding, HealthReport, RuntimeHealth};
use crate::model::escape;
use crate::model::setting::parse_duration;
use crate::system::blocking::BlockingPool;
use crate::telemetry;

/// node-problem-detector kills a plugin after 5 s by default.
const TIMEOUT: &str = "4s";
/// How long the line may take to be written.
const WRITING: Duration = Duration::from_millis(500);

/// Arguments of `check`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(after_long_help = AFTER_HELP)]
pub struct CheckArgs {
    /// Ask only the configured service's /-/healthy and /-/ready; exits 0 or 1
    #[arg(long = "self")]
    pub own: bool,
    /// Time limit, from 100ms to 1m
    #[arg(long, value_name = "DURATION", value_parser = time_limit, default_value = TIMEOUT)]
    pub timeout: Duration,
    /// line: one line of at most 80 characters; json: one object with every finding
    #[arg(long, value_name = "FORM", value_enum, default_value_t = CheckFormat::Line, hide_possible_values = true)]
    pub output: CheckFormat,
    /// Thresholds, instead of those of the configuration.
    #[command(flatten)]
    pub marks: CheckThresholds,
}

/// Flags that replace a threshold of the configuration; 0 switches it off.
#[derive(Args, Clone, Copy, Debug, PartialEq)]
pub struct CheckThresholds {
    /// Exited containers that are a problem; 0 is off [default: `thresholds.exited_containers`]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = whole(0_u32..=1_000_000_000), allow_negative_numbers = true)]
    exited_containers: Option<u32>,
    /// Not-ready sandboxes that are a problem; 0 is off [default: `thresholds.not_ready_sandboxes`]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = whole(0_u32..=1_000_000_000), allow_negative_numbers = true)]
    not_ready_sandboxes: Option<u32>,
    /// Share of its limit at which a list is a problem; 0 is off [default: `thresholds.list_limit_ratio`]
    #[arg(long, hide_short_help = true, value_name = "RATIO", allow_negative_numbers = true, value_parser = |text: &str| number(text, 1.0))]
    list_limit_ratio: Option<f64>,
    /// Use of the image file system that is a problem; 0 is off [default: `thresholds.image_fs_used_percent`]
    #[arg(long, hide_short_help = true, value_name = "PERCENT", allow_negative_numbers = true, value_parser = |text: &str| number(text, 100.0))]
    image_fs_used_percent: Option<f64>,
}

impl CheckThresholds {
    /// Returns the thresholds of the configuration with these in their place. Whether `thresholds.enabled` is set does
    /// not matter.
    fn over(self, config: &Thresholds) -> Thresholds {
        let count =
            |flag: Option<u32>, config| flag.map_or(config, |mark| (mark > 0).then_some(mark));
        let share =
            |flag: Option<f64>, config| flag.map_or(config, |mark| (mark > 0.0).then_some(mark));
        Thresholds {
            exited_containers: count(self.exited_containers, config.exited_containers),
            not_ready_sandboxes: count(self.not_ready_sandboxes, config.not_ready_sandboxes),
            list_limit_ratio: share(self.list_limit_ratio, config.list_limit_ratio),
            image_fs_used_percent: share(self.image_fs_used_percent, config.image_fs_used_percent),
            ..config.clone()
        }
    }
}

impl CheckArgs {
    fn text(&self, verdict: &HealthReport) -> String {
        match self.output {
            CheckFormat::Line => verdict.line(),
            CheckFormat::Json => verdict.json(),
        }
    }
}

/// How the result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// One line of plain ASCII.
    Line,
    /// One JSON object.
    Json,
}

const AFTER_HELP: &str = "\
The service is asked where it runs (a unix socket of web.listen first), else the runtime itself, as with \
--runtime-endpoint: [service] or [runtime] says which. The worst finding comes first. A problem outranks what is unknown.

Exit codes:
  0  no problem
  1  a problem: a threshold is reached, a list is over its limit, or the service
     hangs
  2  unknown: no runtime is found or it gives no answer, a list or the image
     file system cannot be read, the pod source fails, the configuration is
     refused, or the time limit is reached

Examples:
  crisweep check                            thresholds of the configuration
  crisweep check --exited-containers 1000   another threshold
  crisweep check --self                     is the service healthy and ready?
  crisweep check --list-limit-ratio 0.5 --exited-containers 0 \\
    --not-ready-sandboxes 0 --image-fs-used-percent 0    the lists alone
";

fn time_limit(text: &str) -> Result<Duration, String> {
    let limit = parse_duration(text).map_err(|be| format!("must be {be}"))?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(60);
    let refused = || "must be a duration from 100ms to 1m".to_owned();
    allowed
        .contains(&limit)
        .then_some(limit)
        .ok_or_else(refused)
}

fn number(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|it| (0.0..=most).contains(it));
    number.ok_or_else(|| format!("must be a number from 0 to {most}"))
}

/// Runs the check and prints its result.
pub async fn run(args: CheckArgs, global: Global) -> ExitCode {
    let deadline = Instant::now() + args.timeout;
    // Each question ends a little earlier, so that there is time to report the answers.
    let answers_by = Instant::now() + args.timeout.mul_f64(0.9);
    let verdict = match timeout_at(deadline, Box::pin(inspect(&args, global, answers_by))).await {
        Ok(verdict) => verdict,
        Err(_elapsed) => {
            let limit = humantime::format_duration(args.timeout);
            HealthReport::unknown(format!("no answer within {limit}"))
        }
    };
    let text = args.text(&verdict);
    // A reader that reads nothing must not hold the check. Its exit code tells the result all the same.
    drop(
        BlockingPool::new(1)
            .run(WRITING, move || print(&text))
            .await,
    );
    ExitCode::from(verdict.exit_code())
}

/// Tells that nothing can be asked, because the program cannot start.
pub fn cannot_start(args: &CheckArgs) -> ExitCode {
    let verdict = HealthReport::unknown("crisweep cannot start");
    drop(print(&args.text(&verdict)));
    ExitCode::from(verdict.exit_code())
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush())
}

async fn inspect(args: &CheckArgs, global: Global, by: Instant) -> HealthReport {
    let file = global.config_file.clone();
    let config = match app::set_up(file, global.overrides.clone()).await {
        Ok((config, _reload)) => config,
        Err(error) => {
            // No log is set up yet. The result must not wait for a reader of this line.
            let error = refused(&error.to_string(), global.config_file.as_deref());
            let line = format!("crisweep: {}", escape::lines(&error));
            telemetry::say(&line, Duration::ZERO);
            return HealthReport::unknown("configuration refused; crisweep config FILE says why");
        }
    };
    let remote = match remote(&global).await {
        Ok(remote) => remote,
        Err(error) => {
            let error = telemetry::chain(error.as_ref());
            tracing::error!(error, "the service cannot be asked");
            return HealthReport::unknown("--service.url cannot be used; crisweep status says why");
        }
    };
    let site = Site {
        config,
        endpoint: global.overrides.runtime_endpoint,
        remote,
    };
    let question = ServiceQuery::new(&site, args.timeout, by).await;
    if args.own {
        return question.probes().await;
    }
    let marks = args.marks.over(&site.config.thresholds);
    match question.facts().await {
        Ok(facts) => facts.judge(&marks, site.policy(), "service"),
        Err(failure) if site.remote.is_some() => {
            let finding = HealthFinding::unknown(failure.line());
            HealthReport::of(Some(finding), "", Some("service"))
        }
        Err(failure) => Box::pin(without_service(site, &marks, by, failure)).await,
    }
}

/// Judges an answer of `GET /api/v1/status`; returns the line that says so, `None` if it is no such answer.
pub(super) fn judged(
    status: &Value,
    marks: &Thresholds,
    policy: Option<&Policy>,
    by: &'static str,
) -> Option<String> {
    let facts = own_service::facts(status)?;
    Some(facts.judge(marks, policy, by).line())
}

/// Asks the runtime, because the service is not asked or does not answer.
async fn without_service(
    site: Site,
    marks: &Thresholds,
    by: Instant,
    failure: ServiceFailureKind,
) -> HealthReport {
    let mut asked = failure.runtime_asked();
    let policy = site.config.policy.clone();
    let mut facts = match Box::pin(node::facts(site.config, site.endpoint, by)).await {
        Ok(facts) => facts,
        Err(error) => {
            // All places that were tried would be a line of a thousand characters.
            let error = error.to_string();
            let error = error.lines().next().unwrap_or_default();
            let error = error.trim_end_matches("; tried:");
            tracing::error!(
                error,
                "the runtime cannot be asked; crisweep status says more"
            );
            asked = asked.trim_start_matches("runtime; ");
            HealthFacts {
                runtime: RuntimeHealth::Missing,
                ..HealthFacts::default()
            }
        }
    };
    facts.service = failure.finding();
    facts.judge(marks, Some(&policy), asked)
}

#[cfg(test)]
mod tests;
