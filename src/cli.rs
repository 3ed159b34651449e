//! The command line: arguments as values, and what runs each command.

pub mod check;
pub mod command;
mod database;
#[cfg(feature = "demo")]
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod help;
mod output;
pub mod passes;
pub mod rules;
mod run;
pub mod screen;
pub mod service;
pub mod status;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Overrides;
use crate::model::setting::TextKind;
use crate::system::file::FileOwner;
use crate::telemetry;
use check::CheckArgs;
use command::args::{GcArgs, PlanArgs};
use command::evidence::EvidenceArgs;
use command::simulate::SimulateArgs;
use command::snapshot::SnapshotArgs;
use doctor::DoctorArgs;
use explain::ExplainArgs;
pub use help::parse;
use help::{CompletionsArgs, ManArgs, texts};
use passes::PassesArgs;
use rules::RulesArgs;
pub use run::run;
use service::{RemoteArgs, ServiceAddress};
use status::StatusArgs;

/// Removes what containers leave behind on this node (dead containers, pod sandboxes, logs, unused images),
/// safely, and says why it removes or keeps each object.
#[derive(Clone, Debug, Parser)]
#[command(name = "crisweep", version, after_help = MORE_HELP, after_long_help = AFTER_HELP)]
pub struct Cli {
    /// Flags that every command takes.
    #[command(flatten)]
    pub global: Global,
    /// The command; the default is the service.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const MORE_HELP: &str =
    "--help says more: environment, examples, exit codes; crisweep COMMAND --help too";

const AFTER_HELP: &str = "\
Environment:
  CRISWEEP__SECTION__KEY       a key of the configuration, such as
                               CRISWEEP__GC__BATCH_SIZE=20
  NODE_NAME                    this node's name, unless node.name is set
  CONTAINER_RUNTIME_ENDPOINT   the CRI socket, unless it is configured
  CRISWEEP_URL, CRISWEEP_TOKEN_FILE, CRISWEEP_TOKEN, CRISWEEP_CA_FILE,
  CRISWEEP_CERT_FILE, CRISWEEP_KEY_FILE,
  CRISWEEP_SERVER_NAME         the service to ask, as --service.url
  NO_COLOR                     no colours

Exit codes:
  0    done, and all is well
  1    failed, or not all was reached
  2    wrong arguments, or the configuration is refused; check: unknown
  130  a person left (Ctrl-C) before the result was known

Examples:
  crisweep status                            the node on one screen
  crisweep doctor                            who leaves the litter
  crisweep plan --all                        what would go or stay, and why
  crisweep explain shop/web                  why a pod's objects stay or go
  crisweep gc --target containers --dry-run  one pass that only reports
  crisweep gc --target containers            one pass
  crisweep passes                            what the last passes did
  crisweep COMMAND --help                    more examples
";

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Configuration file (.yaml, .yml or .toml)
    ///
    /// Commands that are about a node read /etc/crisweep/crisweep.yaml where it exists
    #[arg(long = "config.file", global = true, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Settings of the configuration.
    #[command(flatten)]
    pub overrides: Overrides,
    /// The service.
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// The command.
#[derive(Clone, Debug, PartialEq, Subcommand, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Command {
    /// Show the node and its crisweep on one screen
    Status(StatusArgs),
    /// Tell in one line and an exit code if the node has a problem
    Check(CheckArgs),
    /// Say why litter piles up, and which change stops each cause
    Doctor(DoctorArgs),
    /// Show what a pass would remove, and why; removes nothing
    Plan(PlanArgs),
    /// Say why an object stays or goes, and what would change that
    Explain(ExplainArgs),
    /// Show what earlier passes did: who asked, what went, and why
    Passes(PassesArgs),
    /// List what was kept of removed containers, or show one of them
    Evidence(EvidenceArgs),
    /// Write what a plan depends on to a file, without secrets
    Snapshot(SnapshotArgs),
    /// Plan on a snapshot file, with any policy; needs no runtime
    Simulate(SimulateArgs),
    /// Run one pass here and now, with progress
    Gc(GcArgs),
    /// Run the service (the default)
    #[command(after_long_help = texts::SERVE)]
    Serve,
    /// Run the service on a simulated node, without any runtime
    #[cfg(feature = "demo")]
    #[command(after_long_help = texts::DEMO)]
    Demo,
    /// Check the configuration and print the effective one
    Config(ConfigArgs),
    /// Print the alert rules, as a file or a `PrometheusRule` object
    Rules(RulesArgs),
    /// Give the state directory to the user that the service runs as
    PrepareState(PrepareStateArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print a manual page, or write all of them
    Man(ManArgs),
}

/// Arguments of `config`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = texts::CONFIG)]
pub struct ConfigArgs {
    /// The file to check, instead of --config.file
    pub file: Option<PathBuf>,
}

/// Arguments of `prepare-state`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = texts::PREPARE_STATE)]
pub struct PrepareStateArgs {
    /// The new owner, as numbers, such as 65532:0
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    pub owner: FileOwner,
    /// The directory, which must exist; one with anything in it must have a database of crisweep
    pub dir: PathBuf,
}

/// Exit code of a command that a person left before its result was known: 128 and SIGINT, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;

/// Returns the exit code of a pass, check or question that failed or did not reach all, or of a good one.
fn exit_code(is_good: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_good))
}

/// Why a command does not begin: its configuration, or how the service is named, cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(String);

impl Refused {
    fn of(error: impl Into<anyhow::Error>) -> Self {
        Self(telemetry::chain(error.into().as_ref()))
    }
}

/// Where the package and the unit have the service's configuration: commands about a node read it where no flag names
/// another.
const USUAL_FILE: &str = "/etc/crisweep/crisweep.yaml";

/// Says why the configuration is refused. No flag named the usual file, so the keys alone would not say where to look.
fn refused(error: &str, file: Option<&Path>) -> String {
    if file != Some(Path::new(USUAL_FILE)) || error.contains(USUAL_FILE) {
        return error.to_owned();
    }
    format!("the configuration ({USUAL_FILE} and the environment) is refused:\n{error}")
}

/// Returns the service that flags or environment name.
///
/// # Errors
/// If it is named in a way that cannot be used.
async fn remote(global: &Global) -> anyhow::Result<Option<ServiceAddress>> {
    let remote = global.remote.remote().await?;
    anyhow::ensure!(
        remote.is_none() || global.overrides.runtime_endpoint.is_none(),
        "--service.url names a service and --runtime-endpoint a runtime: only one can be asked"
    );
    Ok(remote)
}

/// The format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For machines.
    Json,
}

fn owner(text: &str) -> Result<FileOwner, String> {
    // The largest number means "leave it as it is" to the kernel.
    let owner = FileOwner::read(text).filter(|it| ![it.uid, it.gid].contains(&u32::MAX));
    owner.ok_or_else(|| "must be a user and a group as numbers, such as 65532:0".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::*;
    use crate::gc::Limit;
    use crate::model::{Target, Targets};

    fn parse(line: &str) -> Result<Cli, String> {
        let words = std::iter::once("crisweep").chain(line.split_whitespace());
        Cli::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_command_is_the_service() {
        assert_eq!(parse("").unwrap().command, None);
        assert_eq!(parse("serve").unwrap().command, Some(Command::Serve));
    }

    #[test]
    fn global_flags_stand_before_or_after_the_command() {
        for line in [
            "--web.listen-address :1 demo",
            "demo --web.listen-address :1",
        ] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.global.overrides.listen, [":1"], "{line}");
        }
        let cli =
            parse("--web.listen-address :1 --web.listen-address :2 --log.level debug").unwrap();
        assert_eq!(cli.global.overrides.listen, [":1", ":2"]);
        assert_eq!(cli.global.overrides.log_level.as_deref(), Some("debug"));
    }

    #[test]
    fn global_flags_stand_before_or_after_what_evidence_does() {
        for line in [
            "evidence --service.url http://a:1 show 1",
            "evidence show 1 --service.url http://a:1",
            "evidence --service.url http://a:1 list --since 2h",
            "--service.url http://a:1 evidence --since 2h",
        ] {
            let cli = parse(line).unwrap();
            assert_eq!(
                cli.global.remote.service_url.as_deref(),
                Some("http://a:1"),
                "{line}"
            );
            let Some(Command::Evidence(args)) = cli.command else {
                panic!("{line}")
            };
            assert_eq!(args.check(), Ok(()), "{line}");
        }
        for (line, words) in [
            ("evidence --pod web show 1", "go after \"list\""),
            ("evidence --pod web list", "go after \"list\""),
            (
                "evidence --since bogus",
                "--since: \"bogus\" is neither a time",
            ),
            ("evidence list --until bogus", "--until: \"bogus\""),
            ("evidence --since -1h", "--since: \"-1h\" is neither a time"),
            ("evidence show a/b", "neither a number nor a container's id"),
        ] {
            let Some(Command::Evidence(args)) = parse(line).unwrap().command else {
                panic!("{line}")
            };
            let error = args.check().unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn targets_add_up_and_default_to_all() {
        let targets = |line: &str| match parse(line).unwrap().command {
            Some(Command::Plan(args)) => args.pass.targets(),
            other => panic!("{other:?}"),
        };
        assert_eq!(targets("plan"), Targets::all().0);
        assert_eq!(
            targets("plan --target sandboxes"),
            [Target::Sandboxes].into()
        );
        assert_eq!(
            targets("plan --target images --target containers"),
            [Target::Containers, Target::Images].into()
        );
    }

    #[test]
    fn gc_takes_its_bounds() {
        let line =
            "gc --dry-run --max-removals 7 --assume-finished-after 1h --max-dead -1 --output json";
        let Some(Command::Gc(args)) = parse(line).unwrap().command else {
            panic!("{line}")
        };
        assert!(args.dry_run);
        assert_eq!(args.max_removals, Some(7));
        assert_eq!(
            args.pass.assume_finished_after,
            Some(Duration::from_secs(3600))
        );
        assert_eq!(args.pass.options().max_dead, Some(Limit::None));
        assert_eq!(args.pass.output, Output::Json);
    }

    #[test]
    fn wrong_arguments_are_answered_with_the_right_ones() {
        for (line, words) in [
            (
                "gc --target pods",
                "targets are containers, sandboxes, logs, images, all",
            ),
            ("gc --assume-finished-after soon", "must be a duration"),
            (
                "gc --max-removals many",
                "'--max-removals <N>': must be a whole number from 1 to 1000000000",
            ),
            ("gc --max-removals 0", "must be a whole number from 1"),
            ("gc --max-removals -1", "must be a whole number from 1"),
            (
                "plan --max-dead x",
                "must be a whole number from -1000000000",
            ),
            (
                "check --exited-containers -1",
                "must be a whole number from 0",
            ),
            (
                "check --list-limit-ratio -1",
                "must be a number from 0 to 1",
            ),
            (
                "evidence --limit 0",
                "must be a whole number from 1 to 1000",
            ),
            ("passes --limit x", "must be a whole number from 1 to 1000"),
            ("simulate f --at -1h", "must be a time such as"),
            ("plan --output xml", "table, json"),
            ("explain", "<ID>"),
            ("explain abc --output xml", "table, json"),
            ("prepare-state --owner crisweep /x", "such as 65532:0"),
            ("prepare-state --owner 4294967295:0 /x", "such as 65532:0"),
            ("prepare-state /x", "--owner"),
            ("plan --dry-run", "--dry-run"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn help_names_every_command_and_its_environment() {
        let help = Cli::command().render_long_help().to_string();
        for word in [
            "serve",
            "demo",
            "plan",
            "gc",
            "explain",
            "config",
            "NODE_NAME",
            "CRISWEEP__",
        ] {
            assert!(help.contains(word), "{word} in {help}");
        }
    }
}
