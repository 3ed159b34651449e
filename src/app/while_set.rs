//! Runs what depends on settings while they are in force, and anew when a reload changes them.

use std::sync::Arc;

use futures_util::future::OptionFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// Runs `work` with what `of` takes from the configuration, until the service shuts down; stops it and begins it anew
/// whenever a reload changes that. Runs nothing while `of` returns `None`. Work that has nothing to do may end early.
pub(super) async fn while_set<T: Clone + PartialEq, W: Future<Output = ()>>(
    mut settings: watch::Receiver<Arc<Config>>,
    shutdown: CancellationToken,
    of: impl Fn(&Arc<Config>) -> Option<T>,
    work: impl Fn(T, CancellationToken) -> W,
) {
    while !shutdown.is_cancelled() {
        let now = of(&settings.borrow_and_update());
        let stop = shutdown.child_token();
        let working = now.clone().map(|now| work(now, stop.clone()));
        let changing = async {
            let changed = settings.wait_for(|new| of(new) != now).await;
            // The sender of reloads is gone: the service shuts down.
            if changed.map(drop).is_err() {
                shutdown.cancelled().await;
            }
        };
        tokio::join!(OptionFuture::from(working), async {
            shutdown.run_until_cancelled(changing).await;
            stop.cancel();
        });
    }
}
