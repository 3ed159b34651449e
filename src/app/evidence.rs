//! Drops evidence after its age, whether or not more is kept, and shows how much room the rest takes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::while_set::while_set;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::pass::Runner;
use crate::state::Journal;

/// Evidence goes at most this part of its age late, within the two bounds below.
const LATE_PART: u32 = 8;
/// A clock that is wrong at the start of the node has this long to be set, at the default age.
const SELDOM: Duration = Duration::from_secs(600);
const OFTEN: Duration = Duration::from_secs(1);

/// Drops until the service shuts down.
pub(super) fn run(
    settings: watch::Receiver<Arc<Config>>,
    runner: &Runner,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + use<> {
    let (journal, metrics) = (runner.journal.clone(), runner.metrics.clone());
    let dropping = move |max_age: Option<Duration>, stop: CancellationToken| {
        let (journal, metrics) = (journal.clone(), metrics.clone());
        async move {
            let every = max_age.map_or(SELDOM, |age| (age / LATE_PART).clamp(OFTEN, SELDOM));
            let rested = || stop.run_until_cancelled(tokio::time::sleep(every));
            while rested().await.is_some() {
                drop_old(&journal, &metrics, max_age).await;
            }
        }
    };
    let of = |config: &Arc<Config>| Some(config.evidence.max_age);
    while_set(settings, shutdown, of, dropping)
}

async fn drop_old(journal: &Journal, metrics: &Metrics, max_age: Option<Duration>) {
    match journal.drop_old_evidence(max_age).await {
        Ok(room) => {
            metrics.evidence_takes(Some(room.bytes));
            metrics.evidence_dropped.inc_by(room.dropped);
        }
        Err(error) => tracing::debug!(%error, "the age of evidence could not be looked at"),
    }
}
