//! The command: arguments, configuration, logging, run, exit code.

use std::process::ExitCode;

use clap::Parser;
use crisweep::cli::{Cli, Command};
use crisweep::config::Config;
use crisweep::{app, command, config, demo, escape, memory, state, telemetry};

/// A refused configuration, like clap's wrong arguments.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    memory::settle();
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("crisweep: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(cli));
    // A thread that hangs in the kernel must not keep the process.
    runtime.shutdown_background();
    code
}

async fn run(cli: Cli) -> ExitCode {
    let mut overrides = cli.global.overrides();
    if let Some(Command::Config(args)) = &cli.command {
        let file = args.file.clone().or_else(|| cli.global.config_file.clone());
        return check_config(Config::load(
            file.as_deref(),
            config::environment(),
            &overrides,
        ));
    }
    // Their answer is on standard output; a log of the same would only stand in between. What a pass
    // warns of is among its errors.
    let level = match &cli.command {
        Some(Command::Plan(_)) => Some("warn"),
        Some(Command::Gc(_)) => Some("error"),
        Some(Command::Serve | Command::Demo | Command::Config(_)) | None => None,
    };
    overrides.log_level = overrides.log_level.or(level.map(str::to_owned));
    let (config, reload) = match app::set_up(cli.global.config_file, overrides) {
        Ok(set_up) => set_up,
        Err(error) => {
            tell(&error.to_string());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let flag = cli.global.runtime_endpoint;
    let result = match cli.command {
        None | Some(Command::Serve) => serve(config, flag, reload).await.map(|()| true),
        Some(Command::Demo) => demo::run(config, flag).await.map(|()| true),
        Some(Command::Plan(args)) => command::plan(config, flag, args).await,
        Some(Command::Gc(args)) => command::gc(config, flag, args).await,
        Some(Command::Config(_)) => Ok(true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tell(&telemetry::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: Config, flag: Option<String>, reload: app::Reload) -> anyhow::Result<()> {
    let listeners = app::bind(&config.web.listen).map_err(|error| {
        // The usual reason.
        match config.state.dir.as_deref().and_then(state::held) {
            Some(held) => error.context(held),
            None => error,
        }
    })?;
    app::serve(config, listeners, flag, reload).await
}

fn check_config(loaded: Result<Config, config::Error>) -> ExitCode {
    match loaded {
        Ok(config) => {
            print!("{}", config.effective_yaml());
            ExitCode::SUCCESS
        }
        Err(error) => {
            tell(&telemetry::chain(&error));
            ExitCode::from(EXIT_USAGE)
        }
    }
}

/// Says on standard error what went wrong; the runtime's words may be in it.
fn tell(error: &str) {
    eprintln!("crisweep: {}", escape::lines(error));
}
