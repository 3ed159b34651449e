//! `crisweep gc`: one pass. The running service runs it; without one this command does, under the service's lock.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::args::GcArgs;
use super::progress::Progress;
use super::service;
use super::text::{pass_ink, pass_text};
use super::{remembered, settled_look, take_over};
use crate::app::StopSignals;
use crate::cli::output::{note, print_json, print_on};
use crate::cli::screen::{Screen, Wide};
use crate::cli::service::{ServiceFailureKind, ServiceQuery, Site};
use crate::cli::{EXIT_INTERRUPTED, Output, exit_code};
use crate::config::{Brakes, Config, Mode};
use crate::fleet::Fleet;
use crate::gc::PassOptions;
use crate::model::{Cause, Outcome, Pass, Target, escape};
use crate::pass::record::{PassRecord, RemovalInFlight};
use crate::system::pulse::Pulses;
use crate::trigger::{Trigger, Worker};
use crate::{app, state};

/// How long the service may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(8);
/// Removals in flight that are named; the others are counted.
const NAMED: usize = 5;
/// How often a terminal's line is drawn while nothing happens.
const DRAW_EVERY: Duration = Duration::from_secs(1);

/// Runs `crisweep gc`.
///
/// # Errors
/// If the runtime is not found or does not answer, another crisweep works on the node, or `brakes.pause` holds.
pub async fn run(site: Site, args: GcArgs) -> anyhow::Result<ExitCode> {
    let question = ServiceQuery::within(&site, PATIENCE).await;
    let failure = match question.reach().await {
        Ok(found) => {
            let ended = service::gc(found, &args).await?;
            return match ended {
                Some(pass) => show(&pass, args.pass.output),
                None => Ok(EXIT_INTERRUPTED.into()),
            };
        }
        Err(failure) => failure,
    };
    let is_needed = site.remote.is_some() || args.plan.is_some();
    if is_needed || failure.kind == ServiceFailureKind::Refuses {
        let why = args
            .plan
            .as_ref()
            .map_or("", |_| "; the service keeps the saved plans");
        anyhow::bail!("{}{why}", failure.words);
    }
    note(&format!(
        "{}: this command runs the pass itself",
        failure.words
    ));
    own(site, args).await
}

/// Runs the pass in this process.
async fn own(mut site: Site, args: GcArgs) -> anyhow::Result<ExitCode> {
    let is_free = args.force || args.dry_run;
    anyhow::ensure!(
        is_free || !site.config.brakes.pause,
        "garbage collection is paused (brakes.pause); --force overrides it"
    );
    // Cool-down, hourly limit and jitter never bind a person.
    site.config.brakes = Brakes {
        cooldown: Duration::ZERO,
        max_passes_per_hour: None,
        jitter: None,
        pause: false,
    };
    let config = site.config;
    let (_, settings) = watch::channel(Arc::new(config.clone()));
    let mut runner = app::runner(settings.clone(), site.endpoint).await?;
    let failures = if !args.dry_run && config.mode == Mode::Enforce {
        take_over(&config, &mut runner).await.map_err(held)?
    } else {
        remembered(&config, &runner).await
    };
    let (journal, observer) = (runner.journal.clone(), runner.observer.clone());
    let look = settled_look(&runner).await?;
    runner.restore(failures, config.quarantine, look.taken_at);
    let shutdown = CancellationToken::new();
    // The fleet's brakes do not hold a person who types the command either.
    let fleet = Fleet::default();
    let worker = Worker::new(runner, settings, fleet, shutdown.clone(), Pulses::default());
    let admission = worker.submit(vec![trigger(&args)]).pop();
    let pass = admission.and_then(|admission| admission.pass);
    let Some(record) = pass.and_then(|id| worker.find(&id)) else {
        anyhow::bail!("the pass was not admitted; this is a bug in crisweep");
    };
    let working = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await }
    });
    let progress = Progress::new(at_most(&config, &args));
    if !follow(&record, progress).await? {
        journal.settled(app::LAST_WRITES).await;
        return Ok(EXIT_INTERRUPTED.into());
    }
    shutdown.cancel();
    working
        .await
        .context("the worker panicked; this is a bug in crisweep")?;
    observer.save_ages();
    journal.settled(app::LAST_WRITES).await;
    show(&record.pass(), args.pass.output)
}

fn trigger(args: &GcArgs) -> Trigger {
    Trigger {
        info: Cause::Command.into(),
        targets: args.pass.targets(),
        options: PassOptions {
            dry_run: args.dry_run,
            max_removals: args.max_removals,
            force: args.force,
            ..args.pass.options()
        },
    }
}

fn at_most(config: &Config, args: &GcArgs) -> Option<u64> {
    let bounds = [config.gc.max_removals, args.max_removals];
    bounds.into_iter().flatten().min()
}

/// Says what to do where another crisweep holds the lock.
fn held(error: anyhow::Error) -> anyhow::Error {
    if !error.is::<state::LockHeld>() {
        return error;
    }
    error.context(
        "this command cannot run a pass now: wait for the end of the other command, or name the service's address \
         with --service.url (web.listen of its own configuration)",
    )
}

/// Prints a pass; says whether everything planned was removed.
fn show(pass: &Pass, output: Output) -> anyhow::Result<ExitCode> {
    match output {
        Output::Json => print_json(pass)?,
        Output::Table => {
            let screen = Screen::of_stdout(Wide::default());
            print_on(&screen, &pass_text(pass, &screen), pass_ink)?;
        }
    }
    let is_good = matches!(
        pass.outcome,
        Some(Outcome::Completed | Outcome::Planned | Outcome::NothingToDo)
    );
    Ok(exit_code(is_good))
}

/// Shows a pass's progress until it is done; says whether it is. Ctrl-C or SIGTERM cancels it; a second one leaves at
/// once.
async fn follow(record: &PassRecord, mut progress: Progress) -> anyhow::Result<bool> {
    let mut watch = record.watch();
    let mut interrupts = StopSignals::new()?;
    let mut sent = 0;
    loop {
        let pass = watch.borrow_and_update().clone();
        let lines = record.lines_from(sent);
        sent += lines.len();
        progress.said(lines.iter().map(String::as_str));
        if pass.is_done() {
            progress.clear();
            return Ok(true);
        }
        progress.shows(&pass, Instant::now());
        tokio::select! {
            changed = watch.changed() => changed.context("the pass vanished")?,
            () = tokio::time::sleep(DRAW_EVERY) => {}
            _ = interrupts.next() => {
                let flying = named(&record.in_flight.list());
                if record.cancelled.is_cancelled() {
                    progress.interrupts(&format!("left at once. {}", unknown(&flying)));
                    return Ok(false);
                }
                record.cancel();
                progress.interrupts(&format!("stopping: no new removal starts. {}", waited_for(&flying)));
            }
        }
    }
}

fn waited_for(flying: &str) -> String {
    if flying.is_empty() {
        return "No removal is in flight".to_owned();
    }
    format!("In flight: {flying}; waiting up to 10 s for them. Ctrl-C again leaves at once")
}

fn unknown(flying: &str) -> String {
    if flying.is_empty() {
        return "No removal was in flight".to_owned();
    }
    format!(
        "Unknown whether the runtime still removes: {flying}. crisweep passes shows what was recorded"
    )
}

/// Names the removals in flight: a log by its path, the others by their names and the beginning of their ids.
fn named(flying: &[RemovalInFlight]) -> String {
    let one = |it: &RemovalInFlight| {
        let kind = it.target.noun();
        if it.target == Target::Logs {
            return format!("{kind} {}", escape::line(&it.id));
        }
        let id: String = it
            .id
            .trim_start_matches("sha256:")
            .chars()
            .take(12)
            .collect();
        format!("{kind} {} ({})", escape::line(&it.name), escape::line(&id))
    };
    let mut words: Vec<String> = flying.iter().take(NAMED).map(one).collect();
    if flying.len() > NAMED {
        words.push(format!("{} more", flying.len() - NAMED));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_in_flight_is_named_by_what_tells_it_from_others() {
        let removal = |target, id: &str, name: &str| RemovalInFlight {
            target,
            id: id.into(),
            name: name.to_owned(),
        };
        let path = "/var/log/pods/shop_web-0_7d4f/app/9.log";
        let flying = [
            removal(Target::Logs, path, "9.log"),
            removal(Target::Images, "sha256:0123456789abcdef", "web:1"),
        ];
        assert_eq!(
            named(&flying),
            format!("log {path}, image web:1 (0123456789ab)")
        );
    }
}
