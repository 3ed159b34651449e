//! Runs a command: configuration, logging, run, exit code.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

#[cfg(feature = "demo")]
use super::demo;
use super::{Cli, Command, PrepareStateArgs, check, command, explain, passes, rules};
use crate::config::{Config, Overrides};
use crate::model::escape;
use crate::state::Owner;
use crate::system::blocking::BlockingPool;
use crate::{app, config, http, state, telemetry};

/// How long the program waits for the holder of the state directory.
const HELD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the program waits for its last log lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Exit code for a refused configuration, as clap uses for wrong arguments.
const EXIT_USAGE: u8 = 2;

/// Runs the command to its end. Generic code is compiled here, in the library, once for program and tests.
pub fn run(cli: Cli) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // For libraries that look names up there alone: a hung name server holds a thread for up to half a
        // minute. All other work has threads of its own (`system/blocking`).
        .max_blocking_threads(16)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("crisweep: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run_command(with_usual_file(cli)));
    telemetry::flush(LAST_LINES);
    // A thread that hangs in the kernel must not keep the process alive.
    runtime.shutdown_background();
    code
}

async fn run_command(cli: Cli) -> ExitCode {
    let mut overrides = cli.global.overrides();
    if let Some(code) = run_without_service(&cli, &overrides) {
        return code;
    }
    if let Some(Command::Check(args)) = cli.command {
        overrides
            .log_level
            .get_or_insert_with(|| "error".to_owned());
        let origin = check::Origin {
            file: cli.global.config_file,
            overrides,
            endpoint: cli.global.runtime_endpoint,
        };
        return check::run(args, origin).await;
    }
    let level = log_level(cli.command.as_ref());
    overrides.log_level = overrides.log_level.or(level.map(str::to_owned));
    let (config, reload) = match app::set_up(cli.global.config_file, overrides).await {
        Ok(set_up) => set_up,
        Err(error) => {
            print_error(&error.to_string());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let flag = cli.global.runtime_endpoint;
    let result = match cli.command {
        None | Some(Command::Serve) => serve(config, flag, reload).await.map(|()| true),
        #[cfg(feature = "demo")]
        Some(Command::Demo) => demo::run(config, flag).await.map(|()| true),
        Some(Command::Plan(args)) => command::plan(config, flag, args).await,
        Some(Command::Gc(args)) => command::gc(config, flag, args).await,
        Some(Command::Evidence(args)) => command::evidence::run(config, args).await,
        Some(Command::Snapshot(args)) => command::snapshot::run(config, flag, args).await,
        Some(Command::Explain(args)) => explain::run(config, flag, args).await,
        Some(Command::Passes(args)) => passes::run(&config, &args).await,
        Some(
            Command::Check(_)
            | Command::Config(_)
            | Command::PrepareState(_)
            | Command::Rules(_)
            | Command::Simulate(_),
        ) => Ok(true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print_error(&telemetry::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// The level of the log of a command whose answer is on standard output, and whose pass has its warnings among its errors:
/// a log would only repeat them.
fn log_level(command: Option<&Command>) -> Option<&'static str> {
    match command? {
        Command::Plan(_)
        | Command::Passes(_)
        | Command::Snapshot(_)
        | Command::Explain(_)
        | Command::Evidence(_) => Some("warn"),
        Command::Gc(_) => Some("error"),
        #[cfg(feature = "demo")]
        Command::Demo => None,
        Command::Serve
        | Command::Check(_)
        | Command::Config(_)
        | Command::PrepareState(_)
        | Command::Rules(_)
        | Command::Simulate(_) => None,
    }
}

/// Runs a command that reads no configuration of the service, or only that.
fn run_without_service(cli: &Cli, overrides: &Overrides) -> Option<ExitCode> {
    match cli.command.as_ref()? {
        Command::Config(args) => {
            let file = args.file.clone().or_else(|| cli.global.config_file.clone());
            let loaded = Config::load(file.as_deref(), config::environment(), overrides);
            Some(check_config(loaded))
        }
        Command::PrepareState(args) => Some(prepare_state(args)),
        Command::Rules(args) => {
            command::print(&rules::text(args));
            Some(ExitCode::SUCCESS)
        }
        Command::Simulate(args) => Some(command::simulate::run(args)),
        #[cfg(feature = "demo")]
        Command::Demo => None,
        Command::Serve
        | Command::Plan(_)
        | Command::Gc(_)
        | Command::Snapshot(_)
        | Command::Passes(_)
        | Command::Explain(_)
        | Command::Evidence(_)
        | Command::Check(_) => None,
    }
}

async fn serve(config: Config, flag: Option<String>, reload: http::Reload) -> anyhow::Result<()> {
    let listeners = match app::bind(&config.web) {
        Ok(listeners) => listeners,
        // Usually another crisweep is already running.
        Err(error) => match held(&config).await {
            Some(held) => return Err(error.context(held)),
            None => return Err(error),
        },
    };
    app::serve(config, listeners, flag, reload).await
}

/// Returns the crisweep that holds the state directory, if there is one and the disk answers.
async fn held(config: &Config) -> Option<state::Held> {
    let dir = config.state.dir.clone()?;
    let disk = BlockingPool::new(1);
    let held = disk.run(HELD_TIMEOUT, move || state::held(&dir)).await;
    held.ok().flatten()
}

fn check_config(loaded: Result<Config, config::Error>) -> ExitCode {
    match loaded {
        Ok(config) => {
            print!("{}", config.effective_yaml());
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(&telemetry::chain(&error));
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Where the package and the unit have the service's configuration.
const USUAL_FILE: &str = "/etc/crisweep/crisweep.yaml";

/// Takes the service's usual configuration file for what a person runs beside the service: without it a node that only
/// observes, or protects something, would be cleaned by the defaults. A file that may be there counts.
fn with_usual_file(mut cli: Cli) -> Cli {
    let is_for_the_node = matches!(
        cli.command,
        Some(
            Command::Plan(_)
                | Command::Gc(_)
                | Command::Explain(_)
                | Command::Passes(_)
                | Command::Snapshot(_)
                | Command::Evidence(_)
                | Command::Check(_)
        )
    );
    let file = Path::new(USUAL_FILE);
    if is_for_the_node && cli.global.config_file.is_none() && file.try_exists().unwrap_or(true) {
        cli.global.config_file = Some(file.to_owned());
    }
    cli
}

fn prepare_state(args: &PrepareStateArgs) -> ExitCode {
    let Owner { uid, gid } = args.owner;
    let dir = args.dir.display();
    match state::give(&args.dir, args.owner) {
        Ok(files) => {
            println!("{dir} and {files} files in it belong to {uid}:{gid}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            print_error(&format!("cannot give {dir} to {uid}:{gid}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints an error on standard error, escaped, because it may contain the runtime's text.
fn print_error(error: &str) {
    telemetry::say(&format!("crisweep: {}", escape::lines(error)), LAST_LINES);
}
