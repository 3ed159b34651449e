//! Keeps the service manager informed: a status line, and a sign of life while every loop makes progress.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::config::Mode;
use crate::http::Service;
use crate::model::{Outcome, Pass, escape};
use crate::system::manager::{
    Manager, SOCKET_VARIABLE, WATCHDOG_PID_VARIABLE, WATCHDOG_VARIABLE, watchdog,
};
use crate::system::pulse::Pulses;

/// How often the status line may change.
const STATUS_EVERY: Duration = Duration::from_secs(5);
/// The parts of the watchdog's time: a loop beats, and the manager hears, once in each.
const PARTS: u32 = 4;
/// The parts after which a loop without a beat counts as stuck.
const PARTS_MISSING: u32 = 2;

/// The service manager, and what it wants to know.
#[derive(Clone, Debug)]
pub(super) struct Managed {
    pub(super) manager: Manager,
    pub(super) pulses: Pulses,
    watchdog: Option<Duration>,
}

impl Managed {
    /// Reads what the manager has put into the environment.
    pub(super) fn of_environment() -> Self {
        let socket = std::env::var_os(SOCKET_VARIABLE).unwrap_or_default();
        let manager = Manager::at(&socket).unwrap_or_else(|error| {
            tracing::warn!(%error, "{SOCKET_VARIABLE} is not understood: no service manager is told");
            Manager::default()
        });
        let var = |name| std::env::var(name).ok();
        let (micros, pid) = (var(WATCHDOG_VARIABLE), var(WATCHDOG_PID_VARIABLE));
        let watchdog = watchdog(micros.as_deref(), pid.as_deref(), std::process::id());
        let watchdog = watchdog.filter(|_| manager.is_there());
        let pulses = watchdog.map_or_else(Pulses::default, |limit| Pulses::every(limit / PARTS));
        Self {
            manager,
            pulses,
            watchdog,
        }
    }

    /// Reports until the service shuts down.
    pub(super) async fn report(self, service: Service, shutdown: CancellationToken) {
        if !self.manager.is_there() {
            return;
        }
        let every = self.watchdog.map(|limit| limit / PARTS);
        let every = every.map_or(STATUS_EVERY, |every| every.min(STATUS_EVERY));
        let mut ticks = tokio::time::interval(every);
        let (mut shown, mut stuck) = (String::new(), false);
        while let Some(_tick) = shutdown.run_until_cancelled(ticks.tick()).await {
            stuck = self.prove_life(stuck).await;
            let line = status(&service);
            if line != shown {
                self.manager.status(&line).await;
                shown = line;
            }
        }
    }

    /// Says that the service is well, if it is; returns whether a loop is stuck. Then the manager hears nothing
    /// more, and restarts the service.
    async fn prove_life(&self, was_stuck: bool) -> bool {
        let Some(limit) = self.watchdog else {
            return false;
        };
        match self.pulses.missing(limit / PARTS * PARTS_MISSING) {
            None => self.manager.alive().await,
            Some(name) if !was_stuck => {
                tracing::error!(
                    "{name} makes no progress; this is a bug in crisweep, and the service manager will restart it"
                );
                return true;
            }
            Some(_) => return true,
        }
        false
    }
}

/// Returns what the service does, in a line.
fn status(service: &Service) -> String {
    let config = service.config();
    let mode = match (config.mode, config.brakes.pause) {
        (Mode::Observe, _) => "observes, removes nothing",
        (Mode::Enforce, true) => "paused (brakes.pause)",
        (Mode::Enforce, false) => "enforces",
    };
    let runtime = match service.observer.latest().map(|look| look.runtime.clone()) {
        None => "the runtime has not answered yet".to_owned(),
        Some(Ok(version)) => format!("{} {} answers", version.runtime, version.version),
        Some(Err(_)) => "the runtime does not answer".to_owned(),
    };
    let passes = service.worker.passes();
    let pass = passes.iter().find_map(pass_status);
    let pass = pass.unwrap_or_else(|| "no pass yet".to_owned());
    let refused = service.last_reload.lock().refused.is_some();
    let refused = if refused {
        "; the last reload was refused"
    } else {
        ""
    };
    escape::owned_line(format!("{mode}; {runtime}; {pass}{refused}"))
}

/// Returns the state of a pass that has begun.
fn pass_status(pass: &Pass) -> Option<String> {
    pass.started_at?;
    let removed: u64 = pass.targets.values().map(|target| target.removed).sum();
    let state = pass.outcome.map_or("runs", Outcome::label);
    Some(format!("pass {} {state}, {removed} removed", pass.id))
}
