//! Signals: two stop the service or a command, one reloads the service's configuration.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::http::Service;

/// Lets writes above a limit on the size of files (`ulimit -f`, `LimitFSIZE=`) fail. By default the first one ends the
/// process, for a file that no pass needs.
pub(crate) fn outlive_file_size_limit() {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // tokio's handler stays.
    drop(signal(kind));
}

/// SIGTERM and Ctrl-C. Made once, so that none between two waits is lost.
#[derive(Debug)]
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of them, and returns its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// The signals that the service handles.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) stop: StopSignals,
    hangup: Signal,
}

impl Signals {
    /// Starts listening, so that no signal is missed.
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            stop: StopSignals::new()?,
            hangup: listen(SignalKind::hangup())?,
        })
    }
}

fn listen(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("listening for signals")
}

/// Waits for a stop signal; SIGHUP reloads the configuration.
pub(super) async fn stop_asked(signals: Signals, service: &Service) -> &'static str {
    let Signals {
        mut stop,
        mut hangup,
    } = signals;
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            name = stop.next() => return name,
        }
        tokio::select! {
            // Log and metrics report it.
            reloaded = service.reload() => drop(reloaded),
            name = stop.next() => return name,
        }
    }
}
