//! The signals: two that end the service, and one that reloads its configuration.

use anyhow::Context;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::http::Service;

/// What is listened for.
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
}

impl Signals {
    /// Waits for a signal to stop, and returns its name.
    pub(super) async fn stop(&mut self) -> &'static str {
        stop(&mut self.terminate, &mut self.interrupt).await
    }
}

async fn stop(terminate: &mut unix::Signal, interrupt: &mut unix::Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

/// Listens from now on, so that no signal is missed.
pub(super) fn signals() -> anyhow::Result<Signals> {
    let listen = |kind| signal(kind).context("listening for signals");
    Ok(Signals {
        terminate: listen(SignalKind::terminate())?,
        interrupt: listen(SignalKind::interrupt())?,
        hangup: listen(SignalKind::hangup())?,
    })
}

/// Waits for the signal to stop; SIGHUP reloads, as everywhere.
pub(super) async fn stop_asked(mut signals: Signals, service: &Service) -> &'static str {
    let Signals {
        terminate,
        interrupt,
        hangup,
    } = &mut signals;
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            name = stop(terminate, interrupt) => return name,
        }
        tokio::select! {
            // Told in log and metrics.
            reloaded = service.reload() => drop(reloaded),
            name = stop(terminate, interrupt) => return name,
        }
    }
}
