//! Signals: two end the service, one reloads its configuration.

use anyhow::Context;
use tokio::signal::unix::{self, SignalKind, signal};

use crate::http::Service;

/// The signals that the service handles.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hangup: unix::Signal,
}

impl Signals {
    /// Waits for a stop signal, and returns its name.
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

/// Starts listening, so that no signal is missed.
pub(super) fn signals() -> anyhow::Result<Signals> {
    let listen = |kind| signal(kind).context("listening for signals");
    Ok(Signals {
        terminate: listen(SignalKind::terminate())?,
        interrupt: listen(SignalKind::interrupt())?,
        hangup: listen(SignalKind::hangup())?,
    })
}

/// Waits for a stop signal; SIGHUP reloads the configuration.
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
            // Log and metrics report it.
            reloaded = service.reload() => drop(reloaded),
            name = stop(terminate, interrupt) => return name,
        }
    }
}
