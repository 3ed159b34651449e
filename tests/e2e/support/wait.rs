//! Waits for a condition, with a limit, and names the condition.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Long enough for any single step on a busy two-core machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

const BETWEEN_PROBES: Duration = Duration::from_millis(100);

/// Probes until the answer is `Ok`; the last `Err` is in the message when `limit` is over.
///
/// # Panics
///
/// If the condition did not become true in time.
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
