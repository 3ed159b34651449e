//! Waits for a condition, with a limit.

use std::future::Future;
use std::time::{Duration, Instant};

/// Long enough for any single step on a busy machine; a test that needs it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until the condition returns a value.
///
/// # Panics
///
/// If it returned none in time.
pub(crate) async fn until<T, F>(what: &str, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked_at = Instant::now();
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        // A probe that is much work must not keep what it waits for from the processor.
        let rest = asked_at
            .elapsed()
            .clamp(Duration::from_millis(10), Duration::from_secs(1));
        tokio::time::sleep(rest).await;
    }
}

/// Polls until the condition holds.
pub(crate) async fn until_true(what: &str, mut holds: impl FnMut() -> bool) {
    until(what, || {
        let held = holds().then_some(());
        async move { held }
    })
    .await;
}
