//! Waiting for a condition, bounded, and saying what was waited for.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Long enough for any single step on a busy two-core machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const BETWEEN_PROBES: Duration = Duration::from_millis(100);

/// Probes until the answer is `Ok`; the `Err` is the last value seen, for the message when `limit`
/// is over.
///
/// # Panics
///
/// When the condition did not come true in time.
pub(crate) async fn wait_for<T, F>(what: &str, limit: Duration, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let deadline = Instant::now() + limit;
    let mut last = String::from("nothing: the first probe did not return");
    loop {
        if let Ok(answer) = timeout_at(deadline, probe()).await {
            match answer {
                Ok(value) => return value,
                Err(seen) => last = seen,
            }
        }
        assert!(
            Instant::now() < deadline,
            "waited {limit:?} for {what}; last seen: {last}"
        );
        sleep(BETWEEN_PROBES).await;
    }
}
