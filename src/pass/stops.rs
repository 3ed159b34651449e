//! What ends a pass early: a cancel, a brake, the end of the service, the deadline. Removals in flight then get a grace
//! period.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::system::wait_until;

/// Grace for removals in flight when the service shuts down or the pass is cancelled. The process must exit
/// within 15 s of SIGTERM: systemd and the kubelet kill it after 30 s.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Grace for removals in flight at the deadline.
const DEADLINE_GRACE: Duration = Duration::from_millis(1_200);
/// How long after a stop logs of removed containers still go.
const STOP_LOGS: Duration = Duration::from_secs(2);
/// How long after the deadline they do, beside the removals in flight.
const DEADLINE_LOGS: Duration = Duration::from_secs(1);
/// How long a cancelled pass waits for its last look.
const CANCELLED_LOOK: Duration = Duration::from_secs(2);
/// How long after its deadline a pass waits for its last look. Together with the journal's wait, the pass ends
/// within 2 s of its deadline.
const DEADLINE_LOOK: Duration = Duration::from_millis(1_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StopCause {
    #[error("cancelled")]
    Cancelled,
    #[error("a brake of the fleet holds")]
    Held,
    #[error("the service is going down")]
    Shutdown,
    #[error("the deadline (gc.deadline) is reached")]
    Deadline,
}

/// Watches for the causes that end a pass. Cloning shares.
#[derive(Clone, Debug)]
pub(super) struct Stops {
    pub(super) cancelled: CancellationToken,
    pub(super) held: CancellationToken,
    pub(super) shutdown: CancellationToken,
    pub(super) deadline: Option<Instant>,
}

impl Stops {
    pub(super) fn reached(&self) -> Option<StopCause> {
        // Checked first: on shutdown the worker also cancels the pass.
        if self.shutdown.is_cancelled() {
            Some(StopCause::Shutdown)
        } else if self.cancelled.is_cancelled() {
            Some(StopCause::Cancelled)
        } else if self.held.is_cancelled() {
            Some(StopCause::Held)
        } else if self.deadline.is_some_and(|at| Instant::now() >= at) {
            Some(StopCause::Deadline)
        } else {
            None
        }
    }

    /// Says whether the deadline leaves no time after a wait.
    pub(super) fn cut_off(&self, wait: Duration) -> bool {
        let left = self
            .deadline
            .map(|at| at.saturating_duration_since(Instant::now()));
        left.is_some_and(|left| left <= wait)
    }

    /// Waits until something ends the pass, and returns the cause.
    pub(super) async fn wait(&self) -> StopCause {
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            () = self.cancelled.cancelled() => {}
            () = self.held.cancelled() => {}
            () = wait_until(self.deadline) => {}
        }
        self.reached().unwrap_or(StopCause::Deadline)
    }

    /// Waits until something ends the pass and the grace of removals in flight is over.
    pub(super) async fn grace_over(&self) {
        let cause = self.wait().await;
        sleep_until(self.after(cause, STOP_GRACE, DEADLINE_GRACE)).await;
    }

    /// Waits until something ends the pass and the time of its last look is over.
    pub(super) async fn last_look_over(&self) {
        let cause = self.wait().await;
        if cause != StopCause::Shutdown {
            sleep_until(self.after(cause, CANCELLED_LOOK, DEADLINE_LOOK)).await;
        }
    }

    /// Returns until when logs of removed containers may go, if the pass must end.
    pub(super) fn logs_may_go_until(&self) -> Option<Instant> {
        Some(self.after(self.reached()?, STOP_LOGS, DEADLINE_LOGS))
    }

    /// Returns until when something goes on that has so long after a stop, and so long after the deadline.
    fn after(&self, cause: StopCause, stop: Duration, deadline: Duration) -> Instant {
        match cause {
            StopCause::Cancelled | StopCause::Held | StopCause::Shutdown => Instant::now() + stop,
            StopCause::Deadline => self.deadline.unwrap_or_else(Instant::now) + deadline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    fn stops() -> (Stops, CancellationToken, CancellationToken) {
        let (cancelled, shutdown) = (CancellationToken::new(), CancellationToken::new());
        let stops = Stops {
            cancelled: cancelled.clone(),
            held: CancellationToken::new(),
            shutdown: shutdown.clone(),
            deadline: Some(Instant::now() + DEADLINE),
        };
        (stops, cancelled, shutdown)
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_ends_a_pass_and_all_that_it_waits_for_within_two_seconds() {
        let (stops, ..) = stops();
        let began = Instant::now();
        assert_eq!(stops.reached(), None);
        assert_eq!(stops.wait().await, StopCause::Deadline);
        assert_eq!(stops.reached(), Some(StopCause::Deadline));
        stops.grace_over().await;
        stops.last_look_over().await;
        let took = began.elapsed() + crate::pass::JOURNAL_PATIENCE;
        assert!(took < DEADLINE + Duration::from_secs(2), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_has_its_grace_and_a_shutdown_takes_no_last_look() {
        let (stops, cancelled, shutdown) = stops();
        cancelled.cancel();
        assert_eq!(stops.wait().await, StopCause::Cancelled);
        let began = Instant::now();
        stops.grace_over().await;
        assert!(began.elapsed() >= STOP_GRACE && began.elapsed() < STOP_GRACE * 2);
        shutdown.cancel();
        assert_eq!(stops.reached(), Some(StopCause::Shutdown));
        let began = Instant::now();
        stops.last_look_over().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
