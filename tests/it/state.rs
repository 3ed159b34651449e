//! What outlives the process, and the service's behaviour without usable state.

mod crash;
mod disk;
mod first_version;
mod lock;
mod quarantine;

use std::path::Path;

/// Counts the journal's records of a kind, which are text.
pub(crate) fn records(dir: &Path, entry: &str) -> usize {
    let bytes = std::fs::read(dir.join("journal")).unwrap_or_default();
    let needle = format!("{{\"entry\":\"{entry}\"");
    let windows = bytes.windows(needle.len());
    windows
        .filter(|window| *window == needle.as_bytes())
        .count()
}
