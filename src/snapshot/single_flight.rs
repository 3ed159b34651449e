//! The running look, shared by all who wait for it: its first answer, how long it may take, and when to conclude that
//! looks hang.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{FRESH_STATUS_BUDGET, Look, LookResult, LookVanished, Observer, ObserverInner};
use crate::pods::Freshness;
use crate::runtime;

/// Deadlines that a look may wait for in sequence: two for `Version`, four for each list with its
/// confirmation, three for the images, one each for file systems, runtime status and pods; and two to spare.
const QUESTIONS_MAX: u32 = 18;
/// Other waits of a look: disks, five times at most, and the containers of dead links.
const OWN_WAITS: Duration = Duration::from_secs(20);
/// If no look ends for this long although looks were begun, crisweep itself hangs.
const LOOKLESS_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) latest: Option<Arc<Look>>,
    pub(super) under_way: Option<UnderWay>,
    /// When the first look began of those since the last one that ended.
    pub(super) lookless_since: Option<Instant>,
    /// The runtime's answer to `Version` in the running look.
    pub(super) version: Option<LookResult<runtime::Version>>,
}

#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) freshness: Freshness,
    pub(super) arrival: watch::Receiver<Option<Arc<Look>>>,
    /// Whether it has read both lists; statuses come after them.
    pub(super) has_lists: watch::Receiver<bool>,
}

/// Ends the flight even if the look's task dies.
pub(super) struct FlightGuard<'a> {
    pub(super) inner: &'a ObserverInner,
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        self.inner.flight.lock().under_way = None;
    }
}

pub(super) async fn arrival(
    mut receiver: watch::Receiver<Option<Arc<Look>>>,
) -> Result<Arc<Look>, LookVanished> {
    match receiver.wait_for(Option::is_some).await {
        Ok(look) => look.clone().ok_or(LookVanished),
        Err(_closed) => Err(LookVanished),
    }
}

impl Observer {
    /// Returns the runtime's answer to `Version` in the running look; `None`: no answer yet.
    pub fn version_so_far(&self) -> Option<LookResult<runtime::Version>> {
        self.inner.flight.lock().version.clone()
    }

    /// Returns the longest duration of a look: the sum of its bounds.
    pub(super) fn look_takes_at_most(&self, status_budget: Duration) -> Duration {
        let questions = self.inner.client().timeout().saturating_mul(QUESTIONS_MAX);
        questions.saturating_add(OWN_WAITS + status_budget)
    }

    /// Says whether looks have begun for minutes and none has ended. A hung runtime cannot cause that, because
    /// all calls to it have deadlines; a part of crisweep hangs.
    pub fn hangs(&self) -> bool {
        let at_least = LOOKLESS_MAX.max(self.look_takes_at_most(FRESH_STATUS_BUDGET));
        let since = self.inner.flight.lock().lookless_since;
        since.is_some_and(|since| since.elapsed() > at_least)
    }
}

/// Asks for the version, and publishes it for callers that cannot wait for the look. Asks again if the first call only
/// finds that the old connection is dead: a runtime that was restarted long ago must not look down.
pub(super) async fn version(inner: &ObserverInner) -> LookResult<runtime::Version> {
    let client = inner.client();
    let answer = match client.version().await {
        Err(runtime::Error::Unreachable { .. }) => client.version().await,
        answer => answer,
    };
    inner.flight.lock().version = Some(answer.clone());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::pods::SourceName;

    #[tokio::test(start_paused = true)]
    async fn looks_that_do_not_end_are_given_up_and_logged_after_minutes() {
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
        // A part of crisweep that never releases what each look needs.
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
