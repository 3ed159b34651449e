//! Ctrl-C and SIGTERM during a pass.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Ctrl-C and SIGTERM. Made once, so that none between two waits is lost.
pub(super) struct Interrupts {
    interrupts: Signal,
    terminates: Signal,
}

impl Interrupts {
    pub(super) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupts: signal(SignalKind::interrupt()).context("listening for Ctrl-C")?,
            terminates: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
        })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupts.recv() => {}
            _ = self.terminates.recv() => {}
        }
    }
}
