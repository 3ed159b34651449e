//! Checks that the measured file system can be the one that holds images: the runtime must not claim more bytes
//! than are in use there.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Filesystem, OtherMount};

/// How old the runtime's figure may be: containerd refreshes it every 10 s, later on a slow disk.
const FIGURE_AGE: Duration = Duration::from_secs(30);

/// How many times what btrfs has in use the runtime may claim there: zstd makes the files of images two to three times
/// smaller.
const COMPRESSED: u64 = 4;

/// Recent usage. The runtime's figure still counts recently removed images.
#[derive(Debug, Default)]
pub(super) struct Claims {
    recent: Mutex<VecDeque<(Instant, u64)>>,
}

impl Claims {
    /// Returns the contradiction, if there is one. The images take at least the claimed bytes, on btrfs their
    /// [`COMPRESSED`] part.
    pub(super) fn contradict(&self, filesystem: &Filesystem, claimed: u64) -> Option<OtherMount> {
        let usage = filesystem.usage?;
        let mut recent = self.recent.lock();
        recent.retain(|(at, _)| at.elapsed() < FIGURE_AGE);
        recent.push_back((Instant::now(), usage.used_bytes));
        let in_use = recent.iter().map(|(_, used)| *used).max()?;
        let least = if filesystem.is_btrfs {
            claimed / COMPRESSED
        } else {
            claimed
        };
        (least > in_use).then(|| OtherMount {
            usage,
            why: format!(
                "the runtime says that images take at least {claimed} bytes at {}, but only {in_use} bytes of that \
                 mount are in use: it is another file system",
                filesystem.mountpoint
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FilesystemUsage;

    fn filesystem(used: u64) -> Filesystem {
        Filesystem {
            mountpoint: "/images".to_owned(),
            runtime_used_bytes: 0,
            usage: Some(FilesystemUsage {
                capacity_bytes: 100,
                available_bytes: 100 - used,
                used_bytes: used,
                inodes: 0,
                inodes_free: 0,
            }),
            is_btrfs: false,
        }
    }

    #[test]
    fn what_btrfs_compresses_is_no_contradiction() {
        let claims = Claims::default();
        let btrfs = Filesystem {
            is_btrfs: true,
            ..filesystem(20)
        };
        assert_eq!(claims.contradict(&btrfs, 83), None);
        let other = claims.contradict(&btrfs, 84).unwrap();
        assert!(other.why.contains("at least 84 bytes"), "{}", other.why);
        assert!(claims.contradict(&filesystem(20), 21).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_lags_behind_is_no_contradiction() {
        let claims = Claims::default();
        assert_eq!(claims.contradict(&filesystem(80), 80), None);
        let other = claims.contradict(&filesystem(80), 81).unwrap();
        assert!(other.why.contains("81 bytes at /images"), "{}", other.why);
        // Images were removed a moment ago, and the runtime still counts them.
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(claims.contradict(&filesystem(40), 80), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(claims.contradict(&filesystem(40), 80).is_some());
    }
}
