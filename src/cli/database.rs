//! Reads the database in `state.dir` without the service, within a bound. Changes nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};

use crate::config::Config;
use crate::state::{self, Question};
use crate::system::blocking::BlockingPool;

/// How long reading may take: some questions read all of the database, and the disk may be slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the directory of the database.
///
/// # Errors
/// If there is none.
pub(super) fn dir(config: &Config) -> anyhow::Result<PathBuf> {
    let dir = config.state.dir.clone();
    dir.context("nothing is kept (state.dir: null)")
}

/// Asks the database a question.
///
/// # Errors
/// If there is no database, or it cannot be read in time.
pub(super) async fn ask<Q: Question>(config: &Config, question: Q) -> anyhow::Result<Q::Answer> {
    let dir = dir(config)?;
    read(move || state::ask(&dir, &question).map_err(|error| at(&dir, error))).await
}

/// Says which database cannot be read, and what helps if there is none.
pub(super) fn at(dir: &Path, error: state::Error) -> anyhow::Error {
    let dir = dir.display();
    if error.is_missing() {
        return anyhow!(
            "there is no database in {dir} (state.dir): no service has run with this directory yet, or it has another \
             one; name its configuration with --config.file, or the service with --service.url"
        );
    }
    anyhow::Error::new(error).context(format!("the database in {dir}"))
}

/// Runs `work` on a thread of its own: the command ends even if the disk hangs.
///
/// # Errors
/// If `work` fails, or the disk does not answer in time.
pub(super) async fn read<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let read = BlockingPool::new(1).run(PATIENCE, work).await;
    read.context("the disk of state.dir")?
}
