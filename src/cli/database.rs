//! Reads the database in `state.dir` without the service, within a bound. Changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

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
    read(move || Ok(state::ask(&dir, &question)?)).await
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
