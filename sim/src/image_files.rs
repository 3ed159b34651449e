//! A file for each image, so that images really use space.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crisweep_proto::cri;

/// Suffix of the files; other files in the directory are not touched.
const SUFFIX: &str = ".image";
/// Size of one write.
const CHUNK_BYTES: usize = 64 << 10;

/// Makes the directory contain exactly the files of these images.
pub(super) fn keep<'a>(
    directory: &Path,
    images: impl Iterator<Item = &'a cri::Image>,
    weight: u64,
) -> io::Result<()> {
    let mut names = BTreeSet::new();
    for image in images {
        let name = format!("{}{SUFFIX}", image.id.replace(':', "-"));
        let path = directory.join(&name);
        if !path.exists() {
            write(&path, image.size.saturating_mul(weight))?;
        }
        names.insert(name);
    }
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(SUFFIX) && !names.contains(&name) {
            fs::remove_file(directory.join(name))?;
        }
    }
    Ok(())
}

/// Writes every byte, because reserved space is not used space.
fn write(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let chunk = vec![1; CHUNK_BYTES];
    let mut left = usize::try_from(bytes).map_err(io::Error::other)?;
    while left > 0 {
        let now = left.min(CHUNK_BYTES);
        file.write_all(chunk.get(..now).unwrap_or(&chunk))?;
        left -= now;
    }
    Ok(())
}
