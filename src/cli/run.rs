//! Runs a command: configuration, logging, run, exit code.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;

#[cfg(feature = "demo")]
use super::demo;
use super::service::Site;
use super::{
    Cli, Command, ConfigArgs, Global, PrepareStateArgs, Refused, USUAL_FILE, check, command,
    doctor, explain, help, output, passes, refused, remote, rules, status,
};
use crate::config::Config;
use crate::model::escape;
use crate::system::blocking::{self, BlockingPool};
use crate::{access, app, config, http, state, telemetry};

/// How long the program waits for the holder of the state directory.
const HELD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the program waits for its last log lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Exit code for a refused configuration, as clap uses for wrong arguments.
const EXIT_USAGE: u8 = 2;

/// Files that a start opens beside the three of the process; without one of them tokio panics.
const FILES_AT_START: usize = 6;

/// Runs the command to its end. Generic code is compiled here, in the library, once for program and tests.
pub fn run(cli: Cli) -> ExitCode {
    let build = |()| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(blocking::THREADS_MAX)
            .thread_keep_alive(blocking::THREAD_KEEP_ALIVE)
            .enable_all()
            .build()
    };
    let tried = blocking::try_threads().and_then(|()| try_files());
    let runtime = match tried.and_then(build) {
        Ok(runtime) => runtime,
        Err(error) => return cannot_start(&cli, &error),
    };
    let code = runtime.block_on(run_command(with_usual_file(cli)));
    telemetry::flush(LAST_LINES);
    // A thread that hangs in the kernel must not keep the process alive.
    runtime.shutdown_background();
    code
}

/// Opens as many files as a start needs, and closes them.
fn try_files() -> io::Result<()> {
    let stderr = io::stderr();
    let files = (0..FILES_AT_START).map(|_| stderr.as_fd().try_clone_to_owned());
    let opened: io::Result<Vec<_>> = files.collect();
    opened.map(drop).map_err(|error| {
        let limits = "ulimit -n, LimitNOFILE";
        io::Error::other(format!("too few files may be open ({limits}): {error}"))
    })
}

/// Says why nothing begins. For `check` that is no problem of the node, but something unknown.
fn cannot_start(cli: &Cli, error: &io::Error) -> ExitCode {
    output::note(&format!("crisweep: cannot start: {error}"));
    match &cli.command {
        Some(Command::Check(args)) => check::cannot_start(args),
        _ => ExitCode::FAILURE,
    }
}

async fn run_command(mut cli: Cli) -> ExitCode {
    app::outlive_file_size_limit();
    if let Err(error) = check_arguments(&cli) {
        print_error(&error);
        return ExitCode::from(EXIT_USAGE);
    }
    if let Some(level) = cli.command.as_ref().and_then(log_level) {
        let level = || level.to_owned();
        cli.global.overrides.log_level.get_or_insert_with(level);
    }
    match Box::pin(dispatch(cli)).await {
        Ok(code) => code,
        Err(error) => {
            print_error(&telemetry::chain(error.as_ref()));
            ExitCode::from(if is_refused(&error) { EXIT_USAGE } else { 1 })
        }
    }
}

async fn dispatch(Cli { global, command }: Cli) -> anyhow::Result<ExitCode> {
    match command.unwrap_or(Command::Serve) {
        Command::Serve => {
            let (config, reload) = set_up(&global).await?;
            serve(config, global.overrides.runtime_endpoint, reload).await?;
        }
        #[cfg(feature = "demo")]
        Command::Demo => demo::run(set_up(&global).await?.0).await?,
        Command::Status(args) => return status::run(site(&global).await?, args).await,
        Command::Gc(args) => return command::gc::run(site(&global).await?, args).await,
        Command::Doctor(args) => {
            return Box::pin(doctor::run(site(&global).await?, args)).await;
        }
        Command::Plan(args) => command::plan::run(site(&global).await?, args).await?,
        Command::Evidence(args) => command::evidence::run(&site(&global).await?, args).await?,
        Command::Snapshot(args) => command::snapshot::run(&site(&global).await?, args).await?,
        Command::Explain(args) => explain::run(site(&global).await?, args).await?,
        Command::Passes(args) => passes::run(&site(&global).await?, &args).await?,
        Command::Check(args) => return Ok(check::run(args, global).await),
        Command::Simulate(args) => {
            return command::simulate::run(args, global.config_file);
        }
        Command::Config(args) => check_config(args, &global)?,
        Command::PrepareState(args) => prepare_state(&args)?,
        Command::Rules(args) => output::print(&rules::text(&args))?,
        Command::Completions(args) => help::completions(&args)?,
        Command::Man(args) => help::man(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn set_up(global: &Global) -> anyhow::Result<(Config, http::Reload)> {
    let file = global.config_file.clone();
    let set_up = app::set_up(file.clone(), global.overrides.clone()).await;
    set_up.map_err(|error| Refused(refused(&error.to_string(), file.as_deref())).into())
}

/// Returns what a command that asks a service is about.
async fn site(global: &Global) -> anyhow::Result<Site> {
    let (config, _) = set_up(global).await?;
    let remote = remote(global).await;
    Ok(Site {
        config,
        endpoint: global.overrides.runtime_endpoint.clone(),
        remote: remote.map_err(Refused::of)?,
    })
}

/// Says whether the configuration is refused, or a file that it names: that is read when the service begins.
fn is_refused(error: &anyhow::Error) -> bool {
    error.is::<Refused>() || error.is::<access::Error>()
}

/// Checks what only several arguments together show.
///
/// # Errors
/// Names the wrong ones.
fn check_arguments(cli: &Cli) -> Result<(), String> {
    let asks = cli.command.as_ref().is_some_and(asks_a_service);
    if cli.global.remote.is_given() && !asks {
        return Err(
            "--service.url and its token, CA and certificate are for commands that ask a service, and this one asks none".to_owned(),
        );
    }
    let names_runtime = cli.global.overrides.runtime_endpoint.is_some();
    match &cli.command {
        Some(Command::Evidence(args)) => args.check(),
        Some(Command::Check(args)) if args.own && names_runtime => {
            Err("--self asks the service: leave out --runtime-endpoint".to_owned())
        }
        Some(Command::Plan(args)) if args.save && names_runtime => Err(
            "--save: the service keeps the saved plans: leave out --runtime-endpoint".to_owned(),
        ),
        Some(Command::Gc(args)) if args.plan.is_some() && names_runtime => Err(
            "--plan: the service keeps the saved plans: leave out --runtime-endpoint".to_owned(),
        ),
        #[cfg(feature = "demo")]
        Some(Command::Demo) if names_runtime => Err(
            "the demo simulates its runtime; leave demo out to use --runtime-endpoint".to_owned(),
        ),
        _ => Ok(()),
    }
}

/// Returns the log level of a command that writes its answer on standard output. The answers of `gc` and `check` contain
/// what a log would warn of.
fn log_level(command: &Command) -> Option<&'static str> {
    if matches!(command, Command::Gc(_) | Command::Check(_)) {
        return Some("error");
    }
    asks_a_service(command).then_some("warn")
}

async fn serve(config: Config, flag: Option<String>, reload: http::Reload) -> anyhow::Result<()> {
    let bound = match app::bind(&config.web) {
        Ok(bound) => bound,
        // Usually another crisweep is already running.
        Err(error) => match held(&config).await {
            Some(held) => return Err(error.context(held)),
            None => return Err(error),
        },
    };
    app::serve(config, bound, flag, reload).await
}

/// Returns the crisweep that holds the state directory, if there is one and the disk answers.
async fn held(config: &Config) -> Option<state::LockHeld> {
    let dir = config.state.dir.clone()?;
    let disk = BlockingPool::new(1);
    let held = disk.run(HELD_TIMEOUT, move || state::held(&dir)).await;
    held.ok().flatten()
}

fn check_config(args: ConfigArgs, global: &Global) -> anyhow::Result<()> {
    let file = args.file.or_else(|| global.config_file.clone());
    let loaded = Config::load(file.as_deref(), config::environment(), &global.overrides);
    let config = loaded.map_err(Refused::of)?;
    access::check_without_files(&config.web).map_err(Refused::of)?;
    output::print(&config.effective_yaml())
}

/// Says whether a command is about a node, and asks its service where one runs.
fn asks_a_service(command: &Command) -> bool {
    let name: &str = command.into();
    !help::ASKS_NO_SERVICE.contains(&name)
}

/// Takes the service's usual configuration file for what a person runs beside the service: without it a node that only
/// observes, or protects something, would be cleaned by the defaults. A file that may be there counts.
fn with_usual_file(mut cli: Cli) -> Cli {
    let file = Path::new(USUAL_FILE);
    // A service elsewhere has nothing to do with this node's configuration.
    let is_for_the_node =
        cli.command.as_ref().is_some_and(asks_a_service) && !cli.global.remote.names_one();
    if is_for_the_node && cli.global.config_file.is_none() && file.try_exists().unwrap_or(true) {
        cli.global.config_file = Some(file.to_owned());
    }
    cli
}

fn prepare_state(args: &PrepareStateArgs) -> anyhow::Result<()> {
    let (dir, owner) = (args.dir.display(), String::from(args.owner));
    let given = state::give(&args.dir, args.owner);
    let files = given.map_err(|error| anyhow!("cannot give {dir} to {owner}: {error}"))?;
    let s = if files == 1 { "" } else { "s" };
    output::print(&format!(
        "{dir} and {files} file{s} in it belong to {owner}"
    ))
}

/// Prints an error on standard error, escaped, because it may contain the runtime's text.
fn print_error(error: &str) {
    telemetry::say(&format!("crisweep: {}", escape::lines(error)), LAST_LINES);
}
