//! `crisweep plan`, `gc`, `snapshot` and `simulate`: one look, one pass, or one plan on an earlier look, for a person
//! or a program. Uses the same code as the service.

mod difference;
pub mod evidence;
mod figures;
mod service;
pub mod simulate;
pub mod snapshot;
pub(super) mod text;

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::access::Listen;
use crate::cli::local_service::Way;
use crate::cli::{GcArgs, Output, PassArgs, PlanArgs};
use crate::config::{Brakes, Config, Mode};
use crate::fleet::Fleet;
use crate::gc::PassOptions;
use crate::model::escape::{self, JsonWriter};
use crate::model::{Cause, Outcome, Pass, PastFailure, Pods};
use crate::pass::Runner;
use crate::pass::record::Record;
use crate::pods::Freshness;
use crate::snapshot::Look;
use crate::state::{self, Journal};
use crate::system::blocking::BlockingPool;
use crate::system::pulse::Pulses;
use crate::trigger::{Trigger, Worker};
use crate::{app, gc};
use text::{pass_text, plan_text};

/// How long the command waits for the state directory.
const STATE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs `crisweep plan`; returns whether everything succeeded.
///
/// # Errors
/// If the runtime is not found or does not answer.
pub async fn plan(config: Config, flag: Option<String>, args: PlanArgs) -> anyhow::Result<bool> {
    if args.save {
        return save(&config, &args.pass).await;
    }
    let mut policy = config.policy.clone();
    args.pass.options().apply_to(&mut policy);
    let (runner, look) = looked(&config, flag).await?;
    let snapshot = look.snapshot(runner.next_attempts(look.taken_at))?;
    if !snapshot.seen.is_all() {
        eprintln!(
            "the runtime's lists could not be read completely; only what is certain is removed"
        );
    }
    if let Some(wait) = gc::kept_for_quiet(&snapshot, &policy, &args.pass.targets()) {
        let seconds = wait.as_secs_f64();
        eprintln!(
            "more would go in {seconds:.0} s: finished pods must have been seen finished for pods.quiet; \
             crisweep gc waits for that"
        );
    }
    let mut plan = gc::plan(&snapshot, &policy, &args.pass.targets());
    plan.add_details(&snapshot, &policy);
    plan.add_quarantine(|id| runner.quarantined(id));
    match args.pass.output {
        Output::Json => print_json(&plan)?,
        Output::Table => print(&plan_text(&plan, &snapshot, args.all)),
    }
    Ok(true)
}

/// Has the service save its plan, and says how to have it carried out.
async fn save(config: &Config, args: &PassArgs) -> anyhow::Result<bool> {
    let way = service::running(config).await?;
    let text = service::save(&way, args).await?;
    let saved: service::Saved =
        serde_json::from_str(&text).context("the service's answer is not a plan")?;
    let apply = format!(
        "saved until {} as {}; what it lacks stays. To carry it out:\n  crisweep gc --plan {}",
        saved.expires_at, saved.id, saved.id
    );
    match args.output {
        Output::Json => {
            print(&escape::json(&text));
            eprintln!("{}", escape::lines(&apply));
        }
        Output::Table => print(&format!("{}\n{apply}", text::counts(&saved.summary))),
    }
    Ok(true)
}

/// Looks at the node, with what the service's state says of images and failures.
pub(super) async fn looked(
    config: &Config,
    flag: Option<String>,
) -> anyhow::Result<(Runner, Arc<Look>)> {
    let (_, settings) = watch::channel(Arc::new(config.clone()));
    let runner = app::runner(settings, flag).await?;
    read_ages(config, &runner).await;
    let look = settled_look(&runner).await?;
    let failures = past_failures(config).await;
    runner.restore(failures, config.quarantine, look.taken_at);
    Ok((runner, look))
}

/// Runs `crisweep gc`; returns whether everything planned was removed.
///
/// # Errors
/// If the runtime is not found or does not answer, or another crisweep works on the node.
pub async fn gc(mut config: Config, flag: Option<String>, args: GcArgs) -> anyhow::Result<bool> {
    if args.plan.is_some() {
        let way = service::running(&config).await?;
        return show(&service::gc(&way, &args).await?, args.pass.output);
    }
    config.brakes = Brakes {
        cooldown: Duration::ZERO,
        max_passes_per_hour: None,
        jitter: None,
        // A person who types the command wants the pass despite a pause.
        pause: false,
    };
    let (_, settings) = watch::channel(Arc::new(config.clone()));
    let mut runner = app::runner(settings.clone(), flag).await?;
    let failures = if !args.dry_run && config.mode == Mode::Enforce {
        match take_over(&config, &mut runner).await {
            Ok(failures) => failures,
            Err(error) => return asked_instead(&config, &args, error).await,
        }
    } else {
        read_ages(&config, &runner).await;
        past_failures(&config).await
    };
    let (journal, observer) = (runner.journal.clone(), runner.observer.clone());
    let look = settled_look(&runner).await?;
    runner.restore(failures, config.quarantine, look.taken_at);
    let shutdown = CancellationToken::new();
    // Nor do the fleet's brakes hold a person who types the command.
    let fleet = Fleet::default();
    let worker = Worker::new(runner, settings, fleet, shutdown.clone(), Pulses::default());
    let trigger = Trigger {
        cause: Cause::Command,
        targets: args.pass.targets(),
        options: PassOptions {
            dry_run: args.dry_run,
            max_removals: args.max_removals,
            ..args.pass.options()
        },
        by: None,
        alert: None,
    };
    let admission = worker.submit(vec![trigger]).pop();
    let pass = admission.and_then(|admission| admission.pass);
    let Some(record) = pass.and_then(|id| worker.find(&id)) else {
        anyhow::bail!("the pass was not admitted; this is a bug in crisweep");
    };
    let working = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await }
    });
    follow(&record, args.pass.output).await?;
    shutdown.cancel();
    working
        .await
        .context("the worker panicked; this is a bug in crisweep")?;
    observer.save_ages();
    journal.settled(app::LAST_WRITES).await;
    show(&record.pass(), args.pass.output)
}

/// Asks the service that holds the lock, if it listens on a unix socket of this configuration.
///
/// # Errors
/// The reason why the lock was not taken, if no service can be asked.
async fn asked_instead(
    config: &Config,
    args: &GcArgs,
    error: anyhow::Error,
) -> anyhow::Result<bool> {
    let socket = config.web.listen.iter().find_map(|listen| match listen {
        Listen::Unix(path) => Some(path.as_path()),
        Listen::Tcp(_) => None,
    });
    let Some(socket) = socket.filter(|_| error.is::<state::Held>()) else {
        return Err(error.context(
            "ask the service that runs instead: curl -X POST localhost:20950/gc; with a unix socket in \
             web.listen this command asks it",
        ));
    };
    let way = Way::Unix(socket.to_owned());
    let pass = service::gc(&way, args).await?;
    show(&pass, args.pass.output)
}

/// Prints a pass; says whether everything planned was removed.
fn show(pass: &Pass, output: Output) -> anyhow::Result<bool> {
    match output {
        Output::Json => print(&escape::json(&serde_json::to_string_pretty(pass)?)),
        Output::Table => print(&pass_text(pass)),
    }
    Ok(matches!(
        pass.outcome,
        Some(Outcome::Completed | Outcome::Planned | Outcome::NothingToDo)
    ))
}

/// Takes the lock and opens the journal; returns which sandboxes failed before. The service reports the
/// earlier passes at its next start.
async fn take_over(config: &Config, runner: &mut Runner) -> anyhow::Result<Vec<PastFailure>> {
    let opened = app::open_state(config, runner).await?;
    runner
        .observer
        .remember(opened.ages, opened.journal.clone());
    runner.journal = opened.journal;
    Ok(opened.history.failures)
}

/// Reads which sandboxes failed before, while a service may hold the journal. Without read access they are
/// planned as if they had never failed.
async fn past_failures(config: &Config) -> Vec<PastFailure> {
    let Some(dir) = config.state.dir.clone() else {
        return Vec::new();
    };
    let read =
        move || state::past_failures(&dir).map_err(|error| format!("{}: {error}", dir.display()));
    let failures = BlockingPool::new(1).run(STATE_PATIENCE, read).await;
    let failures = failures.map_err(|error| error.to_string());
    failures.and_then(|read| read).unwrap_or_else(|error| {
        tracing::info!(error, "cannot read which sandboxes failed before");
        Vec::new()
    })
}

/// Reads the image ages of a service without its lock, because it may be running. Ages it has not saved yet,
/// at most five minutes, are missing.
async fn read_ages(config: &Config, runner: &Runner) {
    let Some(dir) = config.state.dir.clone() else {
        return;
    };
    match BlockingPool::new(1)
        .run(STATE_PATIENCE, move || state::read_ages(&dir))
        .await
    {
        Ok(ages) => runner.observer.remember(ages, Journal::none()),
        Err(error) => {
            eprintln!("the image ages could not be read ({error}); every image is young");
        }
    }
}

async fn stop_asked(interrupts: &mut Signal, terminates: &mut Signal) {
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminates.recv() => {}
    }
}

/// Prints a pass's progress until it is done; Ctrl-C or SIGTERM cancels it.
async fn follow(record: &Record, output: Output) -> anyhow::Result<()> {
    let mut watch = record.watch();
    // Made once, so that no Ctrl-C between two waits is lost.
    let mut interrupts = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let mut terminates = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut sent = 0;
    loop {
        let pass = watch.borrow_and_update().clone();
        let lines = record.lines_from(sent);
        sent += lines.len();
        // Lines instead of a bar: they work beside warnings, in files and in narrow terminals. Waits are
        // reported in every output format.
        let is_shown = |line: &&String| output == Output::Table || line.contains("waiting ");
        for line in lines.iter().filter(is_shown) {
            eprintln!("{line}");
        }
        if pass.is_done() {
            return Ok(());
        }
        tokio::select! {
            changed = watch.changed() => changed.context("the pass vanished")?,
            () = stop_asked(&mut interrupts, &mut terminates) => {
                anyhow::ensure!(
                    !record.cancelled().is_cancelled(),
                    "interrupted again; removals in flight may still end, and are not reported"
                );
                eprintln!(
                    "stopping: no new removal starts, removals in flight may finish; Ctrl-C again does not \
                     wait for it"
                );
                record.cancel();
            }
        }
    }
}

/// Takes a look with a settled pod source.
async fn settled_look(runner: &Runner) -> anyhow::Result<Arc<Look>> {
    let look = runner.observer.fresh(Freshness::Cached).await?;
    let wait = runner.observer.unsettled_for().await;
    let failed = matches!(
        look.pods,
        Pods::Unknown(crate::model::PodsUnknown::Failed(_))
    );
    if wait.is_zero() || failed {
        return Ok(look);
    }
    eprintln!(
        "waiting {:.0} s for the pod list to settle (pods.settle); until then no pod counts as deleted",
        wait.as_secs_f64().ceil()
    );
    tokio::time::sleep(wait).await;
    Ok(runner.observer.fresh(Freshness::Cached).await?)
}

/// Prints a value as JSON, without a second copy as text.
fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = JsonWriter(BufWriter::new(io::stdout().lock()));
    let written = serde_json::to_writer_pretty(&mut out, value)
        .map_err(io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush());
    match written {
        // A closed pipe (`| head`) is no error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) fn print(text: &str) {
    let mut out = io::stdout().lock();
    // A closed pipe (`| head`) is no error.
    let text = escape::lines(text.trim_end());
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}
