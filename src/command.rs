//! `crisweep plan` and `crisweep gc`: one look or one pass here and now, shown to a person or a
//! machine. The same code as the service's.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app;
use crate::cli::{GcArgs, Output, PlanArgs};
use crate::config::{Config, Mode};
use crate::gc::gate::Options;
use crate::gc::{self, Kept, Plan, Subject, Target};
use crate::model::Pods;
use crate::observe::Look;
use crate::pass::Runner;
use crate::record::Record;
use crate::report::{Cause, Outcome, Pass, PastFailure};
use crate::state::{self, Journal};
use crate::worker::{Answer, Request, Worker};

/// Rows of a table for people; the rest is counted. JSON has all.
const ROWS_MAX: usize = 200;

/// Runs `crisweep plan`; returns whether all went well.
///
/// # Errors
/// If the runtime is not found or does not answer.
pub async fn plan(config: Config, flag: Option<String>, args: PlanArgs) -> anyhow::Result<bool> {
    let mut rules = app::rules(&config);
    if let Some(after) = args.pass.assume_finished_after {
        rules.policy.assume_finished_after = (!after.is_zero()).then_some(after);
    }
    let runner = app::runner(&config, flag).await?;
    let look = settled_look(&runner).await?;
    runner.restore(past_failures(&config), &rules, look.taken_at);
    let snapshot = look.snapshot(runner.next_tries(look.taken_at))?;
    let mut plan = gc::plan(&snapshot, &rules.policy, &args.pass.targets());
    plan.tell_quarantine(|id| runner.quarantined(id));
    match args.pass.output {
        Output::Json => print(&serde_json::to_string_pretty(&plan)?),
        Output::Table => print(&plan_text(&plan, &look.pods, args.all)),
    }
    Ok(true)
}

/// Runs `crisweep gc`; returns whether all that was planned went.
///
/// # Errors
/// If the runtime is not found or does not answer, or another crisweep works on the node.
pub async fn gc(config: Config, flag: Option<String>, args: GcArgs) -> anyhow::Result<bool> {
    let mut runner = app::runner(&config, flag).await?;
    let failures = if !args.dry_run && config.mode == Mode::Enforce {
        take_over(&config, &mut runner).await?
    } else {
        past_failures(&config)
    };
    let journal = runner.journal.clone();
    let look = settled_look(&runner).await?;
    runner.restore(failures, &app::rules(&config), look.taken_at);
    let shutdown = CancellationToken::new();
    let brakes = gc::gate::Brakes {
        cooldown: Duration::ZERO,
        max_passes_per_hour: None,
        pause: config.brakes.pause,
    };
    let worker = Worker::new(runner, app::rules(&config), brakes, shutdown.clone());
    let request = Request {
        cause: Cause::Command,
        targets: args.pass.targets(),
        options: Options {
            dry_run: args.dry_run,
            max_removals: args.max_removals,
            assume_finished_after: args.pass.assume_finished_after,
            // Who types the command means it.
            force: true,
        },
        alert: None,
    };
    let Some(Answer::Queued(record)) = worker.submit(vec![request]).pop() else {
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
        .context("the worker died; this is a bug in crisweep")?;
    journal.settled(app::LAST_WRITES).await;
    let pass = record.pass();
    match args.pass.output {
        Output::Json => print(&serde_json::to_string_pretty(&pass)?),
        Output::Table => print(&pass_text(&pass)),
    }
    Ok(matches!(
        pass.outcome,
        Some(Outcome::Completed | Outcome::NothingToDo)
    ))
}

/// Takes the lock and opens the journal; returns which sandboxes failed before. The passes before are
/// told by the service at its next start.
async fn take_over(config: &Config, runner: &mut Runner) -> anyhow::Result<Vec<PastFailure>> {
    let opened = app::open_state(config, runner).await.map_err(|held| {
        anyhow::anyhow!("{held}; ask that one instead: curl -X POST localhost:20950/gc")
    })?;
    let Some(opened) = opened else {
        runner.journal = Journal::none();
        return Ok(Vec::new());
    };
    runner.journal = opened.journal;
    Ok(opened.history.failures)
}

/// Reads which sandboxes failed before, beside the service that holds the journal. Who may not read
/// it sees them as due.
fn past_failures(config: &Config) -> Vec<PastFailure> {
    let Some(dir) = &config.state.dir else {
        return Vec::new();
    };
    state::past_failures(dir).unwrap_or_else(|error| {
        let dir = dir.display();
        tracing::info!(%error, %dir, "sandboxes that failed before are not known here");
        Vec::new()
    })
}

async fn stop_asked(interrupts: &mut Signal, terminates: &mut Signal) {
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminates.recv() => {}
    }
}

/// Shows a pass's progress until it is done; Ctrl-C or SIGTERM cancels it.
async fn follow(record: &Record, output: Output) -> anyhow::Result<()> {
    let mut progress = Progress::new(output);
    let mut watch = record.watch();
    // Made once, so that no Ctrl-C between two waits gets lost.
    let mut interrupts = signal(SignalKind::interrupt()).context("listening for Ctrl-C")?;
    let mut terminates = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut sent = 0;
    loop {
        let pass = watch.borrow_and_update().clone();
        let lines = record.lines_from(sent);
        sent += lines.len();
        progress.show(&pass, &lines);
        if pass.is_done() {
            progress.end();
            return Ok(());
        }
        tokio::select! {
            changed = watch.changed() => changed.context("the pass vanished")?,
            () = stop_asked(&mut interrupts, &mut terminates) => {
                anyhow::ensure!(
                    !record.cancelled().is_cancelled(),
                    "interrupted again; nobody knows how what was under way ended"
                );
                progress.say(
                    "stopping: nothing more is tried, what is under way ends; Ctrl-C again does not \
                     wait for it",
                );
                record.cancel();
            }
        }
    }
}

/// Takes a look that the pod source has settled for.
async fn settled_look(runner: &Runner) -> anyhow::Result<Arc<Look>> {
    let look = runner.observer.fresh().await?;
    let wait = runner.observer.unsettled_for().await;
    let failed = matches!(
        look.pods,
        Pods::Unknown(crate::model::PodsUnknown::Failed(_))
    );
    if wait.is_zero() || failed {
        return Ok(look);
    }
    tracing::info!(
        seconds = wait.as_secs_f64(),
        "waiting for the pod source to settle (pods.settle)"
    );
    tokio::time::sleep(wait).await;
    Ok(runner.observer.fresh().await?)
}

/// Progress on standard error: a bar on a terminal, lines elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    fn new(output: Output) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            // The message last, cut at the terminal's width.
            let style = "[{bar:30}] {pos}/{len} {per_sec} {eta} left  {wide_msg}";
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Self {
            bar,
            quiet: output == Output::Json,
        }
    }

    fn show(&mut self, pass: &Pass, lines: &[String]) {
        let Some(bar) = &self.bar else {
            if !self.quiet {
                for line in lines {
                    eprintln!("{line}");
                }
            }
            return;
        };
        let planned: u64 = pass.targets.values().map(|report| report.planned).sum();
        let ended: u64 = pass
            .targets
            .values()
            .map(|report| report.removed + report.already_gone + report.failed + report.skipped)
            .sum();
        if planned == 0 {
            return;
        }
        bar.set_length(planned);
        bar.set_position(ended);
        if let Some(line) = lines.last() {
            bar.set_message(line.clone());
        }
    }

    /// Says something beside the progress.
    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed pipe (`| head`) is not worth a word.
    drop(writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush()));
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.to_vec());
    table
}

fn plan_text(plan: &Plan, pods: &Pods, all: bool) -> String {
    let mut text = String::new();
    let header = [
        "VERDICT",
        "REASON",
        "TARGET",
        "NAMESPACE/POD",
        "NAME",
        "#",
        "AGE",
        "POD IS",
        "ID",
    ];
    let mut rows = table(&header);
    let removed = plan
        .removals
        .iter()
        .map(|r| (&r.subject, "remove", r.reason.label().to_owned()));
    let kept = plan
        .kept
        .iter()
        .map(|k| (&k.subject, "keep", keep_reason(k, plan.taken_at)));
    let shown = removed.chain(kept.take(if all { usize::MAX } else { 0 }));
    let mut count = 0;
    for (subject, verdict, reason) in shown {
        count += 1;
        if count <= ROWS_MAX {
            rows.add_row(row(subject, verdict, reason));
        }
    }
    if count > 0 {
        text.push_str(&rows.trim_fmt());
        text.push('\n');
    }
    if count > ROWS_MAX {
        text.push_str(&format!(
            "... and {} more; --output json has all\n",
            count - ROWS_MAX
        ));
    }
    if let Pods::Unknown(why) = pods {
        text.push_str(&format!(
            "\nnothing is known of the pods: {why}; only surplus goes\n"
        ));
    }
    text.push('\n');
    for (target, summary) in &plan.summary {
        let remove: Vec<String> = summary
            .remove
            .iter()
            .map(|(why, n)| format!("{} {n}", why.label()))
            .collect();
        let keep: Vec<String> = summary
            .keep
            .iter()
            .map(|(why, n)| format!("{} {n}", why.label()))
            .collect();
        text.push_str(&line(
            *target,
            "remove",
            summary.remove.values().sum(),
            &remove,
        ));
        text.push_str(&line(*target, "keep", summary.keep.values().sum(), &keep));
    }
    text
}

fn line(target: Target, verdict: &str, count: usize, reasons: &[String]) -> String {
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", reasons.join(", "))
    };
    format!("{target}: {verdict} {count}{reasons}\n")
}

/// Returns the reason, and of what failed to go also how and when it is tried again.
fn keep_reason(kept: &Kept, now: Timestamp) -> String {
    let reason = kept.reason.label();
    let Some(known) = &kept.quarantine else {
        return reason.to_owned();
    };
    let left = Duration::try_from(known.next_try.duration_since(now)).unwrap_or_default();
    let left = Duration::from_secs(left.as_secs());
    let (class, left) = (known.class.label(), short_age(left));
    format!("{reason} ({class}, next try in {left})")
}

fn row(subject: &Subject, verdict: &str, reason: String) -> Vec<String> {
    let pod = subject.pod.as_ref();
    let short: String = subject.id.chars().take(13).collect();
    let age = Duration::from_secs(u64::try_from(subject.age_seconds).unwrap_or(0));
    let state = serde_json::to_string(&subject.pod_state).unwrap_or_default();
    vec![
        verdict.to_owned(),
        reason,
        subject.target.label().to_owned(),
        pod.map_or_else(
            || "-".to_owned(),
            |pod| format!("{}/{}", pod.namespace, pod.name),
        ),
        if subject.name.is_empty() {
            "-".to_owned()
        } else {
            subject.name.clone()
        },
        subject.attempt.to_string(),
        short_age(age),
        state.trim_matches('"').to_owned(),
        short,
    ]
}

/// The two largest units, as kubectl writes ages.
fn short_age(age: Duration) -> String {
    let text = humantime::format_duration(age).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join("")
}

fn pass_text(pass: &Pass) -> String {
    let header = [
        "TARGET",
        "PLANNED",
        "REMOVED",
        "ALREADY GONE",
        "FAILED",
        "SKIPPED",
        "REMAINING",
        "KEPT",
    ];
    let mut rows = table(&header);
    for (target, report) in &pass.targets {
        let kept: Vec<String> = report
            .kept
            .iter()
            .map(|(why, n)| format!("{} {n}", why.label()))
            .collect();
        rows.add_row(vec![
            target.label().to_owned(),
            report.planned.to_string(),
            report.removed.to_string(),
            report.already_gone.to_string(),
            report.failed.to_string(),
            report.skipped.to_string(),
            report.remaining.to_string(),
            kept.join(", "),
        ]);
    }
    let outcome = pass.outcome.map_or("unfinished", Outcome::label);
    let dry = if pass.dry_run {
        " (dry run: nothing was removed)"
    } else {
        ""
    };
    let mut text = format!("{}\n\n{outcome}{dry}\n", rows.trim_fmt());
    let distinct: BTreeSet<&String> = pass.errors.iter().collect();
    for error in distinct {
        text.push_str(&format!("  {error}\n"));
    }
    text
}
