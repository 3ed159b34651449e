//! Gives the service manager a sign of life while every loop makes progress.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::system::manager::{
    Manager, SOCKET_VARIABLE, WATCHDOG_PID_VARIABLE, WATCHDOG_VARIABLE, watchdog,
};
use crate::system::pulse::Pulses;

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
            tracing::warn!(%error, "{SOCKET_VARIABLE} cannot be used: the service manager gets no messages");
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
    pub(super) async fn report(self, shutdown: CancellationToken) {
        let Some(limit) = self.watchdog else { return };
        let mut ticks = tokio::time::interval(limit / PARTS);
        let mut stuck = false;
        while let Some(_tick) = shutdown.run_until_cancelled(ticks.tick()).await {
            stuck = self.prove_life(limit, stuck).await;
        }
    }

    /// Says that the service is well, if it is; returns whether a loop is stuck. Then the manager hears nothing
    /// more, and restarts the service.
    async fn prove_life(&self, limit: Duration, was_stuck: bool) -> bool {
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
