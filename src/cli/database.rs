//! Reads the database in `state.dir` without the service, within a bound; says so if that takes long. Changes nothing.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use tokio::time::sleep;

use super::output::note;
use crate::config::Config;
use crate::system::blocking::BlockingPool;

/// How long reading may take: some questions read all of the database, and the disk may be slow.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long reading takes before the command says so.
const SILENCE: Duration = Duration::from_secs(2);

/// Returns the directory of the database.
///
/// # Errors
/// If there is none.
pub(super) fn dir(config: &Config) -> anyhow::Result<PathBuf> {
    let dir = config.state.dir.clone();
    dir.context("nothing is kept (state.dir: null)")
}

/// Runs `work` on a thread of its own: the command ends even if the disk hangs.
///
/// # Errors
/// Those of `work`, or that the disk did not answer in time.
pub(super) async fn read<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let disk = BlockingPool::new(1);
    let telling = async {
        sleep(SILENCE).await;
        let limit = humantime::format_duration(PATIENCE);
        note(&format!(
            "reading state.dir takes long; this command ends after {limit}, Ctrl-C ends it now"
        ));
        std::future::pending::<Infallible>().await
    };
    let read = tokio::select! {
        read = disk.run(PATIENCE, work) => read,
        never = telling => match never {},
    };
    read.context("the disk of state.dir")?
}
