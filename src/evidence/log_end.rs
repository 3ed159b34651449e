//! The end of a log as it is kept: with secrets masked, and compressed.

use std::path::Path;

use super::mask::{CONTEXT_BYTES, mask_log};
use crate::logs::{Error, Roots, tail};
use crate::model::{EvidenceLog, TEXT_BYTES_MAX, cut};

/// Compression level: quick. Logs shrink to a tenth.
const LEVEL: i32 = 1;

/// The end of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Facts about it.
    pub facts: EvidenceLog,
    /// Its bytes, compressed (zstd).
    pub packed: Vec<u8>,
}

impl LogEnd {
    /// Says that nothing of the log at `path` is kept, and why.
    pub fn none(path: &str, problem: impl Into<String>) -> Self {
        let facts = EvidenceLog {
            path: cut(path, TEXT_BYTES_MAX).to_owned(),
            problem: problem.into(),
            ..EvidenceLog::default()
        };
        Self {
            facts,
            packed: Vec::new(),
        }
    }

    /// Reads, masks and compresses the last `bytes_max` bytes of a log. `path` is as the runtime names it, `below` its
    /// part below the pods' log root. A log that does not exist is empty. Blocks.
    ///
    /// # Errors
    /// If the log exists and cannot be read.
    pub fn read(roots: &Roots, path: &str, below: &Path, bytes_max: usize) -> Result<Self, Error> {
        // A secret may begin before the kept bytes.
        let Some(mut tail) = tail(roots, below, bytes_max + CONTEXT_BYTES)? else {
            return Ok(Self::none(path, "there is no log file"));
        };
        let before = tail.bytes.clone();
        mask_log(&mut tail.bytes);
        let context = tail.bytes.len().saturating_sub(bytes_max);
        let kept = tail.bytes.get(context..).unwrap_or_default();
        let was = before.get(context..).unwrap_or_default();
        let masked = kept.iter().zip(was).filter(|(a, b)| a != b).count();
        let facts = EvidenceLog {
            path: cut(path, TEXT_BYTES_MAX).to_owned(),
            bytes: kept.len() as u64,
            is_whole: tail.is_whole && context == 0,
            masked_bytes: masked as u64,
            files: tail.files,
            problem: tail.stopped.unwrap_or_default(),
        };
        // Compressing into memory cannot fail.
        let packed = zstd::bulk::compress(kept, LEVEL).unwrap_or_default();
        Ok(Self { facts, packed })
    }
}

/// Returns the bytes of a kept log; `None` if they are damaged or more than were ever kept.
pub fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let max = usize::try_from(super::LOG_TAIL_MAX).unwrap_or(usize::MAX);
    if packed.is_empty() {
        return Some(Vec::new());
    }
    zstd::bulk::decompress(packed, max).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: &str = "default_web_0d5f6a2c-1111-4222-8333-0123456789ab";

    fn read(log: &[u8], bytes_max: usize) -> (LogEnd, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            host_root: "/".into(),
            pods: dir.path().into(),
            containers: dir.path().into(),
        };
        std::fs::create_dir_all(dir.path().join(DIR).join("app")).unwrap();
        let below = Path::new(DIR).join("app/0.log");
        std::fs::write(dir.path().join(&below), log).unwrap();
        let end = LogEnd::read(&roots, "/p/0.log", &below, bytes_max).unwrap();
        let bytes = unpack(&end.packed).unwrap();
        (end, bytes)
    }

    #[test]
    fn what_is_kept_is_byte_for_byte_the_end_of_the_log() {
        let line = "2026-01-01T00:00:00Z stdout F a line\n";
        let log = line.repeat(5000);
        for bytes_max in [0, 1, 100, 64 << 10, log.len() - 1, log.len(), log.len() + 1] {
            let (end, bytes) = read(log.as_bytes(), bytes_max);
            let from = log.len().saturating_sub(bytes_max);
            assert_eq!(bytes, &log.as_bytes()[from..]);
            assert_eq!(end.facts.bytes, bytes.len() as u64);
            assert_eq!(end.facts.is_whole, from == 0);
            assert_eq!(end.facts.masked_bytes, 0);
        }
    }

    #[test]
    fn a_secret_that_begins_before_the_kept_bytes_is_masked() {
        let log = b"2026-01-01T00:00:00Z stdout F password=hunter2 and more\n";
        let (end, bytes) = read(log, 12);
        assert_eq!(bytes, b"** and more\n");
        assert_eq!((end.facts.masked_bytes, end.facts.is_whole), (2, false));
    }

    #[test]
    fn damaged_bytes_are_none() {
        assert_eq!(unpack(b"nonsense"), None);
        assert_eq!(unpack(b""), Some(Vec::new()));
    }
}
