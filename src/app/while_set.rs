//! Runs what depends on settings while they are in force, and anew when a reload changes them.

use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// Runs `work` until the service shuts down; stops it and begins it anew whenever the new configuration and the one it
/// runs with `differ`. Work that has nothing to do may end early.
pub(super) async fn while_set<W: Future<Output = ()>>(
    mut settings: watch::Receiver<Arc<Config>>,
    shutdown: CancellationToken,
    differ: impl Fn(&Arc<Config>, &Arc<Config>) -> bool,
    work: impl Fn(Arc<Config>, CancellationToken) -> W,
) {
    while !shutdown.is_cancelled() {
        let config = Arc::clone(&settings.borrow_and_update());
        let stop = shutdown.child_token();
        let changing = async {
            let changed = settings.wait_for(|new| differ(&config, new)).await;
            // The sender of reloads is gone: the service shuts down.
            if changed.map(drop).is_err() {
                shutdown.cancelled().await;
            }
        };
        tokio::join!(work(Arc::clone(&config), stop.clone()), async {
            shutdown.run_until_cancelled(changing).await;
            stop.cancel();
        });
    }
}
