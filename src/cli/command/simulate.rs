//! `crisweep simulate`: plans on a snapshot file. Asks no runtime and no service, and changes nothing.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;

use super::args::{PassArgs, RowArgs};
use super::difference::Compared;
use super::shown::ShownPlan;
use super::text::{plan_ink, plan_text};
use crate::cli::output::{note, print_json, print_on};
use crate::cli::screen::Screen;
use crate::cli::{Output, Refused, exit_code};
use crate::config::{self, Config, Overrides};
use crate::gc::{self, Plan, Policy};
use crate::model::escape;
use crate::model::setting::parse_duration;
use crate::snapshot_file::{self, SnapshotFile};

/// The most policies of one command.
const POLICIES_MAX: usize = 2;
/// Names the policy that the file holds.
const OF_THE_FILE: &str = "snapshot";

/// Arguments of `simulate`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = AFTER_HELP)]
pub struct SimulateArgs {
    /// The snapshot file; - is standard input
    pub file: PathBuf,
    /// Configuration file with the policy to plan by; twice: compare two policies
    ///
    /// The word "snapshot" is the policy in force when the file was written [default: snapshot]
    #[arg(long = "config", value_name = "FILE")]
    pub configs: Vec<PathBuf>,
    /// Plan for a later time, such as +1h
    ///
    /// Or 2026-01-02T15:00:00Z. Every age grows; what is known stays as it was
    #[arg(long, value_name = "TIME", value_parser = moment, allow_hyphen_values = true)]
    pub at: Option<PlanTime>,
    /// What and how to show.
    #[command(flatten)]
    pub pass: PassArgs,
    /// Which rows.
    #[command(flatten)]
    pub rows: RowArgs,
}

const AFTER_HELP: &str = "\
Only the keys below policy:, and pods.settle, pods.quiet and pods.assume_finished_after, matter of a \
configuration file; --config.file names one as --config does. The environment is not read. docs/simulate.md describes the file.

Exit codes:
  0  planned
  1  the file cannot be read, or a plan breaks a safety rule (a bug in crisweep)
  2  a configuration file is refused, or the arguments are wrong

Examples:
  crisweep snapshot node.json.zst            on the node, as root
  crisweep simulate node.json.zst            anywhere: what a pass would remove
  crisweep simulate node.json.zst --at +1h   the same node, an hour older
  crisweep simulate node.json.zst --config new.yaml --all
                                             the same with another policy
  crisweep simulate node.json.zst --config snapshot --config new.yaml
                                             what the new policy changes
";

/// A moment, as `--at` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanTime {
    /// This time.
    At(Timestamp),
    /// This long after the snapshot.
    After(Duration),
}

fn moment(text: &str) -> Result<PlanTime, String> {
    match text.strip_prefix('+') {
        Some(after) => parse_duration(after).map(PlanTime::After).ok(),
        None => text.parse().map(PlanTime::At).ok(),
    }
    .ok_or_else(|| "must be a time such as 2026-01-02T15:00:00Z, or +1h".to_owned())
}

/// Runs `crisweep simulate`. `--config.file` names the policy as `--config` does.
///
/// # Errors
/// If a policy cannot be read, or the file cannot.
pub fn run(mut args: SimulateArgs, config_file: Option<PathBuf>) -> anyhow::Result<ExitCode> {
    let policies = policies(&mut args, config_file).map_err(Refused::of)?;
    simulate(&args, policies).map(exit_code)
}

/// Reads the named policies; `None` is the file's own.
fn policies(
    args: &mut SimulateArgs,
    config_file: Option<PathBuf>,
) -> anyhow::Result<Vec<Option<Policy>>> {
    // It would not be clear which policy is the first.
    anyhow::ensure!(
        config_file.is_none() || args.configs.is_empty(),
        "--config.file and --config both name a policy: to compare two, give --config twice"
    );
    args.configs.extend(config_file);
    let most = args.configs.len() <= POLICIES_MAX;
    anyhow::ensure!(most, "--config: at most two policies can be compared");
    if args.configs.is_empty() {
        return Ok(vec![None]);
    }
    let read = |path: &PathBuf| {
        let of_the_file = path.as_os_str() == OF_THE_FILE;
        (!of_the_file).then(|| policy(path)).transpose()
    };
    args.configs.iter().map(read).collect()
}

/// Only the policy counts: a pod's configuration is as good here as on its node.
fn policy(path: &Path) -> anyhow::Result<Policy> {
    let of_a_pod = [
        ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ];
    let of_a_pod = of_a_pod.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let config = Config::load(Some(path), of_a_pod.into_iter(), &Overrides::default());
    let named = |error: config::Error| {
        // The others name the file.
        let names_keys = matches!(error, config::Error::Invalid(_));
        let error = anyhow::Error::new(error);
        if names_keys {
            error.context(path.display().to_string())
        } else {
            error
        }
    };
    Ok(config.map_err(named)?.policy)
}

/// Plans and prints; returns whether each plan keeps the safety rules.
fn simulate(args: &SimulateArgs, policies: Vec<Option<Policy>>) -> anyhow::Result<bool> {
    let mut file = read(&args.file)?;
    move_to(&mut file, args.at)?;
    let targets = args.pass.targets();
    let mut plans = Vec::new();
    let mut keeps_rules = true;
    for policy in policies {
        let mut policy = policy.unwrap_or_else(|| file.policy.clone());
        args.pass.options().apply_to(&mut policy);
        let mut plan = gc::plan(&file.snapshot, &policy, &targets);
        for violation in gc::check::check(&plan.removals, &file.snapshot, &policy) {
            keeps_rules = false;
            let violation = violation.to_string();
            note(&format!(
                "the plan breaks a rule; this is a bug in crisweep: {}",
                escape::line(&violation)
            ));
        }
        plan.add_doubts(&file.snapshot, &policy, Vec::new());
        plan.add_details(&file.snapshot, &policy);
        plans.push(plan);
    }
    show(args, &file, &plans)?;
    Ok(keeps_rules)
}

fn show(args: &SimulateArgs, file: &SnapshotFile, plans: &[Plan]) -> anyhow::Result<()> {
    let names: Vec<String> = args
        .configs
        .iter()
        .map(|it| it.display().to_string())
        .collect();
    let screen = Screen::of_stdout(args.rows.wide);
    match (plans, &*names, args.pass.output) {
        ([a, b], [name_a, name_b], Output::Json) => {
            print_json(&Compared::new(a, b).json([name_a, name_b]))
        }
        ([a, b], [name_a, name_b], Output::Table) => {
            let compared = Compared::new(a, b).text(args.rows.rows(), &screen);
            let names = format!("A: {}\nB: {}", escape::line(name_a), escape::line(name_b));
            let text = format!("{}\n{names}\n\n{compared}", head(file));
            print_on(&screen, &text, plan_ink)
        }
        (plans, _, output) => {
            for plan in plans {
                match output {
                    Output::Json => print_json(plan)?,
                    Output::Table => {
                        let shown = ShownPlan::of(plan)?;
                        let text = plan_text(&shown, args.rows.rows(), &screen);
                        print_on(&screen, &format!("{}\n\n{text}", head(file)), plan_ink)?;
                    }
                }
            }
            Ok(())
        }
    }
}

/// Says which node was looked at, and when.
fn head(file: &SnapshotFile) -> String {
    let about = &file.about;
    let text = format!(
        "{} at {:.0} ({}, crisweep {})",
        about.node, file.snapshot.taken_at, about.runtime, about.program
    );
    escape::line(&text).into_owned()
}

fn read(path: &Path) -> anyhow::Result<SnapshotFile> {
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| path.display().to_string())?)
    };
    snapshot_file::decode(source).with_context(|| path.display().to_string())
}

/// Makes the node older. What was known then stays known: a pod that was finished or absent has been so for longer, a
/// list that was over its limit still is.
fn move_to(file: &mut SnapshotFile, to: Option<PlanTime>) -> anyhow::Result<()> {
    let snapshot = &mut file.snapshot;
    let then = snapshot.taken_at;
    let to = match to {
        None => return Ok(()),
        Some(PlanTime::At(to)) => to,
        Some(PlanTime::After(after)) => then.checked_add(after).context("--at")?,
    };
    let later = Duration::try_from(to.duration_since(then));
    let Ok(later) = later else {
        anyhow::bail!("--at: {to} is before the snapshot, {then}: the node was not seen then");
    };
    if let Some(outage) = snapshot.outage.filter(|it| it.lasts(snapshot)) {
        snapshot.outage = Some(crate::model::Outage {
            last_seen: to,
            ..outage
        });
    }
    snapshot.uptime = snapshot.uptime.saturating_add(later);
    snapshot.taken_at = to;
    Ok(())
}
