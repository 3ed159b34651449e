//! `crisweep plan`, `gc`, `snapshot` and `simulate`: one look, one pass, or one plan on an earlier look, for a person
//! or a program. Uses the same code as the service.

pub mod args;
mod difference;
pub mod evidence;
mod figures;
pub mod gc;
pub mod plan;
mod progress;
mod service;
mod shown;
pub mod simulate;
pub mod snapshot;
pub(super) mod text;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::app;
use crate::cli::output::note;
use crate::cli::service::Site;
use crate::config::Config;
use crate::model::{PastFailure, Pods, PodsUnknown};
use crate::pass::Runner;
use crate::pods::Freshness;
use crate::snapshot::Look;
use crate::state::{self, Journal};
use crate::system::blocking::BlockingPool;

/// How long the command waits for the state directory.
const STATE_PATIENCE: Duration = Duration::from_secs(2);

/// Looks at the node, with what the service's state says of images and failures.
pub(super) async fn looked(site: &Site) -> anyhow::Result<(Runner, Arc<Look>)> {
    let config = &site.config;
    let (_, settings) = watch::channel(Arc::new(config.clone()));
    let runner = app::runner(settings, site.endpoint.clone()).await?;
    let failures = remembered(config, &runner).await;
    let look = settled_look(&runner).await?;
    runner.restore(failures, config.quarantine, look.taken_at);
    Ok((runner, look))
}

/// Takes the lock and opens the journal; returns which sandboxes failed before. The service reports the
/// earlier passes at its next start.
async fn take_over(config: &Config, runner: &mut Runner) -> anyhow::Result<Vec<PastFailure>> {
    let opened = app::open_state(config, runner).await?;
    let (stored, journal) = (opened.stored, opened.journal);
    let observer = &runner.observer;
    observer.remember(stored.ages, stored.outage_since, journal.clone());
    runner.journal = journal;
    Ok(stored.history.failures)
}

/// Reads what a service would find at its start, without the lock, because one may be running; returns which sandboxes
/// failed before. Image ages that it has not saved yet, at most five minutes, are missing. Without read access every
/// image is young, and sandboxes are planned as if they had never failed.
async fn remembered(config: &Config, runner: &Runner) -> Vec<PastFailure> {
    let Some(dir) = config.state.dir.clone() else {
        return Vec::new();
    };
    let read = move || {
        let stored = state::read_stored(&dir);
        stored.map_err(|error| format!("{}: {error}", dir.display()))
    };
    let read = BlockingPool::new(1).run(STATE_PATIENCE, read).await;
    match read.map_err(|error| error.to_string()) {
        Ok(Ok(stored)) => {
            let observer = &runner.observer;
            observer.remember(stored.ages, stored.outage_since, Journal::none());
            stored.history.failures
        }
        Ok(Err(error)) | Err(error) => {
            note(&format!(
                "the state could not be read ({error}); every image is young, and no sandbox counts as failed"
            ));
            Vec::new()
        }
    }
}

/// Takes a look with a settled pod source.
async fn settled_look(runner: &Runner) -> anyhow::Result<Arc<Look>> {
    let look = runner.observer.fresh(Freshness::Cached).await?;
    // Without the runtime nothing can be planned, whatever is known of the pods.
    if look.runtime.is_err() || look.pods != Pods::Unknown(PodsUnknown::Settling) {
        return Ok(look);
    }
    // Zero if the look took longer: it settles nothing, the next one does.
    let wait = runner.observer.unsettled_for().await;
    if !wait.is_zero() {
        note(&format!(
            "waiting {:.0} s for the pod list to settle (pods.settle); until then no pod counts as deleted",
            wait.as_secs_f64().ceil()
        ));
        tokio::time::sleep(wait).await;
    }
    Ok(runner.observer.fresh(Freshness::Cached).await?)
}
