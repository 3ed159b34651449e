//! How long a look may take, and what it means when none ends.

use std::time::Duration;

use super::{FRESH_STATUS_BUDGET, Observer};

/// Deadlines of one question to the runtime that a look may wait for one after the other: two for who it is,
/// three for each list with what confirms it, two for the images, one each for the file systems, the
/// runtime's status and the pods; and two to spare.
const QUESTIONS_MAX: u32 = 14;
/// What a look waits for besides: disks, five times at most, and the containers of dead links.
const OWN_WAITS: Duration = Duration::from_secs(20);
/// How long no look may end, although looks were begun, before crisweep itself must hang.
const LOOKLESS_MAX: Duration = Duration::from_secs(300);

impl Observer {
    /// Returns how long a look may take: what its parts may take, one after the other.
    pub(super) fn look_takes_at_most(&self, status_budget: Duration) -> Duration {
        let questions = self.inner.client.timeout().saturating_mul(QUESTIONS_MAX);
        questions.saturating_add(OWN_WAITS + status_budget)
    }

    /// Says whether looks have been begun for minutes and none has ended. A runtime that hangs does not do
    /// that, since all that is asked of it has a deadline: something of our own hangs.
    pub fn hangs(&self) -> bool {
        let at_least = LOOKLESS_MAX.max(self.look_takes_at_most(FRESH_STATUS_BUDGET));
        let since = self.flight().lookless_since;
        since.is_some_and(|since| since.elapsed() > at_least)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::*;
    use crate::config::Config;
    use crate::pods::SourceName;
    use crate::runtime;

    #[tokio::test(start_paused = true)]
    async fn looks_that_do_not_end_are_given_up_and_told_after_minutes() {
        let timeout = Duration::from_secs(10);
        let client = runtime::Client::new(runtime::Settings {
            endpoint: "/nowhere/cri.sock".into(),
            image_endpoint: None,
            timeout,
            removal_timeout: timeout,
            max_message_bytes: 1 << 20,
            log_roots: runtime::LogRoots::default(),
        });
        let mut config = Config::default();
        config.pods.source = SourceName::None;
        config.policy.logs.enabled = false;
        let (_, config) = watch::channel(Arc::new(config));
        let observer = Observer::new(client, config);
        // Something of our own that never gives back what each look needs.
        let held = observer.inner.memory.lock().await;
        let began = Instant::now();
        while began.elapsed() < LOOKLESS_MAX {
            assert!(!observer.hangs());
            assert!(observer.shared(Duration::ZERO).await.is_err());
        }
        assert!(began.elapsed() < 2 * LOOKLESS_MAX);
        assert!(observer.hangs());
        drop(held);
        let look = observer.shared(Duration::ZERO).await.unwrap();
        assert!(look.runtime.is_err(), "a runtime that is down is looked at");
        assert!(!observer.hangs());
    }
}
