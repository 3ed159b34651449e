//! Pods from a file, and the small files that other sources need.

use std::path::Path;

use tokio::io::AsyncReadExt;

use super::{ANSWER_MAX_BYTES, Error, parse};
use crate::model::PodList;

/// Reads the pods that a file holds.
pub(super) async fn list(path: &Path) -> Result<PodList, Error> {
    let text = read(path, ANSWER_MAX_BYTES).await?;
    parse(&text).map_err(|source| Error::NotPods {
        what: path.display().to_string(),
        source,
    })
}

/// Reads a whole file of at most so many bytes.
pub(super) async fn read(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut text = Vec::new();
    let mut bounded = file.take(max + 1);
    bounded.read_to_end(&mut text).await.map_err(failed)?;
    if text.len() as u64 > max {
        return Err(Error::TooBig {
            what: path.display().to_string(),
            max,
        });
    }
    Ok(text)
}
