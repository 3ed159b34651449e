//! What slow removals leave to do. The pass goes on beside them, so that they hold nothing back.

use std::sync::Arc;

use tokio::time::Instant;

use super::PassRun;
use super::end::EarlyEnd;
use crate::model::Target;
use crate::snapshot::Look;

impl PassRun<'_> {
    /// Cleans sandboxes once more if containers have gone since sandboxes were planned, so that a pod's
    /// containers and its sandbox go in one pass. Not after the circuit breaker, which ends a target for the
    /// whole pass.
    pub(super) async fn clean_after_slow_containers(
        &mut self,
        look: &mut Arc<Look>,
    ) -> Result<(), EarlyEnd> {
        if let Some(gone) = self.gone_at_sandboxes
            && self.all_end().await
            && self.gone_of(Target::Containers) > gone
            && self.mostly_fails(Target::Sandboxes).is_none()
        {
            *look = self.look_again().await?;
            self.clean(1, Target::Sandboxes, look).await?;
        }
        Ok(())
    }

    /// Waits for removals in flight, as long as one may take; says whether all have ended, and the pass goes on.
    pub(super) async fn all_end(&mut self) -> bool {
        let until = Instant::now() + self.config.runtime.removal_timeout;
        while !self.executor.is_idle() && Instant::now() < until {
            if self.wait().await.is_err() {
                return false;
            }
        }
        self.executor.is_idle()
    }
}
