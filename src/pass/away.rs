//! A runtime that goes away in mid-pass: the pass waits until it is back, and looks anew.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::PassRun;
use super::end::EarlyEnd;
use crate::snapshot::Look;

/// How often a pass waits for a lost runtime before it gives up.
const RUNTIME_LOSSES_MAX: u32 = 5;
/// Interval at which a lost runtime is asked whether it is back.
const RUNTIME_BACK_EVERY: Duration = Duration::from_millis(250);

impl PassRun<'_> {
    /// Waits for a lost runtime, and takes a new look.
    pub(super) async fn runtime_back(&mut self) -> Result<Arc<Look>, EarlyEnd> {
        self.losses += 1;
        self.runtime_is_away = true;
        if self.losses > RUNTIME_LOSSES_MAX {
            let times = format!("{} times", self.losses);
            return Err(EarlyEnd::RuntimeGone(times));
        }
        self.record
            .line("the runtime went away; waiting for it".to_owned());
        tracing::warn!(pass.id = %self.record.id, "the runtime went away in mid-pass");
        let client = self.runner.observer.client();
        let until = Instant::now() + self.config.runtime.removal_timeout;
        loop {
            self.bounds()?;
            let answer = tokio::select! {
                answer = client.version() => answer,
                stop = self.stops.wait() => return Err(EarlyEnd::Stopped(stop)),
            };
            if answer.is_ok() {
                match self.look().await {
                    Ok(look) if look.snapshot(BTreeMap::new()).is_ok() => {
                        self.runtime_is_away = false;
                        return Ok(look);
                    }
                    Ok(_) => {}
                    Err(end) => return Err(end),
                }
            }
            if Instant::now() >= until {
                let for_too_long = "and did not come back in time".to_owned();
                return Err(EarlyEnd::RuntimeGone(for_too_long));
            }
            self.rest(RUNTIME_BACK_EVERY).await;
        }
    }
}
