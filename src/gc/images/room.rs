//! How much space to free: the kubelet's arithmetic in integers.

use crate::gc::ImagePolicy;
use crate::model::FilesystemUsage;

/// Returns how many bytes the space rule must free beyond `freed`, which other rules free anyway. 0 if the
/// rule is off or the file system is unknown.
///
/// `freed` counts as free already, because the kubelet reads the disk again after its age rule. It is a sum
/// of listed sizes; the pass measures what the disk gained. `listed` is the sum of all images' sizes.
pub(super) fn wanted(
    policy: &ImagePolicy,
    filesystem: Option<FilesystemUsage>,
    freed: u128,
    listed: u128,
) -> u128 {
    let Some(usage) = filesystem else { return 0 };
    if !policy.makes_room() {
        return 0;
    }
    let (high, low) = (policy.high_threshold_percent, policy.low_threshold_percent);
    let bytes = DiskResource::new(usage.capacity_bytes, usage.available_bytes);
    let inodes = DiskResource::new(usage.inodes, usage.inodes_free);
    // The inodes of an image are unknown: assume that images hold them all, each in proportion to its size. Runtimes list
    // the compressed size, so that the disk's own ratio would take several times the images that are needed.
    let used_bytes = u128::from(usage.used_bytes).min(listed);
    let freed_inodes = if used_bytes > 0 {
        freed.saturating_mul(inodes.used()).div_ceil(used_bytes)
    } else {
        0
    };
    let for_inodes = used_bytes
        .saturating_mul(inodes.plus(freed_inodes).wanted(high, low))
        .checked_div(inodes.used())
        .unwrap_or(0);
    bytes.plus(freed).wanted(high, low).max(for_inodes)
}

/// Returns the used share in percent as the rule counts it: rounded up, of bytes or inodes, whichever is more.
pub fn used_percent(usage: FilesystemUsage) -> u128 {
    let bytes = DiskResource::new(usage.capacity_bytes, usage.available_bytes);
    let inodes = DiskResource::new(usage.inodes, usage.inodes_free);
    bytes.used_percent().max(inodes.used_percent()).unwrap_or(0)
}

/// How much of something there is, and how much of it is available.
#[derive(Clone, Copy)]
struct DiskResource {
    capacity: u128,
    available: u128,
}

impl DiskResource {
    fn new(capacity: u64, available: u64) -> Self {
        Self {
            capacity: capacity.into(),
            available: available.min(capacity).into(),
        }
    }

    fn plus(self, freed: u128) -> Self {
        let available = self.available.saturating_add(freed).min(self.capacity);
        Self { available, ..self }
    }

    fn used(self) -> u128 {
        self.capacity.saturating_sub(self.available)
    }

    /// Rounded up; `None` of nothing.
    fn used_percent(self) -> Option<u128> {
        let free_percent = (self.available * 100).checked_div(self.capacity)?;
        Some(100_u128.saturating_sub(free_percent))
    }

    /// The used share is rounded up, and equal to the high threshold counts as above it. A share of nothing
    /// (a file system without inodes) needs nothing.
    fn wanted(self, high: u8, low: u8) -> u128 {
        let Some(used_percent) = self.used_percent() else {
            return 0;
        };
        let above = used_percent >= u128::from(high);
        let free_at_low = self.capacity * u128::from(100_u8.saturating_sub(low)) / 100;
        if above {
            free_at_low.saturating_sub(self.available)
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gc::Policy;
    use std::time::Duration;

    /// All bytes in use are images'.
    const ALL: u128 = u128::MAX;

    fn marks(high: u8, low: u8) -> ImagePolicy {
        ImagePolicy {
            high_threshold_percent: high,
            low_threshold_percent: low,
            ..Policy::default().images
        }
    }

    fn usage(capacity: u64, available: u64, inodes: u64, inodes_free: u64) -> FilesystemUsage {
        FilesystemUsage {
            capacity_bytes: capacity,
            available_bytes: available,
            used_bytes: capacity.saturating_sub(available),
            inodes,
            inodes_free,
        }
    }

    fn of_bytes(capacity: u64, available: u64) -> u128 {
        wanted(
            &marks(85, 80),
            Some(usage(capacity, available, 0, 0)),
            0,
            ALL,
        )
    }

    #[test]
    fn the_used_share_is_rounded_up_and_the_mark_counts_as_above() {
        assert_eq!(of_bytes(1000, 160), 0);
        assert_eq!(of_bytes(1000, 159), 41);
        assert_eq!(of_bytes(1000, 150), 50);
        assert_eq!(of_bytes(1000, 0), 200);
        // floor(999 * 20 / 100) = 199
        assert_eq!(of_bytes(999, 100), 99);
    }

    #[test]
    fn without_disk_usage_no_space_is_asked_for() {
        assert_eq!(wanted(&marks(0, 0), None, 0, ALL), 0);
        assert_eq!(of_bytes(0, 0), 0);
        assert_eq!(of_bytes(0, 50), 0);
        // More available than there is: all of it.
        assert_eq!(of_bytes(1000, 2000), 0);
    }

    #[test]
    fn at_equal_marks_the_space_asked_for_may_be_zero() {
        let at = |available| wanted(&marks(80, 80), Some(usage(1000, available, 0, 0)), 0, ALL);
        assert_eq!(at(201), 0);
        assert_eq!(at(200), 0);
        assert_eq!(at(199), 1);
    }

    #[test]
    fn a_high_mark_of_100_switches_it_off_unless_there_is_a_maximum_age() {
        let full = Some(usage(1000, 0, 0, 0));
        assert_eq!(wanted(&marks(100, 80), full, 0, ALL), 0);
        let with_age = ImagePolicy {
            max_age: Some(Duration::from_secs(1)),
            ..marks(100, 80)
        };
        assert_eq!(wanted(&with_age, full, 0, ALL), 200);
        assert_eq!(wanted(&with_age, Some(usage(1000, 10, 0, 0)), 0, ALL), 0);
    }

    #[test]
    fn space_of_images_removed_anyway_counts_as_free() {
        let at = |freed| wanted(&marks(85, 80), Some(usage(1000, 100, 0, 0)), freed, ALL);
        assert_eq!(at(0), 100);
        assert_eq!(at(40), 60);
        // 84 % in use then: below the high mark.
        assert_eq!(at(60), 0);
        assert_eq!(at(u128::MAX), 0);
    }

    #[test]
    fn inodes_ask_for_their_mean_in_bytes() {
        let policy = marks(85, 80);
        // 900 of 1000 inodes used, 100 too many; 500 bytes used: 500 * 100 / 900.
        let scarce = usage(1000, 500, 1000, 100);
        assert_eq!(wanted(&policy, Some(scarce), 0, ALL), 55);
        assert_eq!(
            wanted(&policy, Some(usage(1000, 500, 1000, 160)), 0, ALL),
            0
        );
        // The larger of both.
        assert_eq!(
            wanted(&policy, Some(usage(1000, 100, 1000, 150)), 0, ALL),
            100
        );
        assert_eq!(
            wanted(&policy, Some(usage(1000, 150, 1000, 0)), 0, ALL),
            170
        );
        // 30 bytes that go anyway bring 54 inodes.
        assert_eq!(wanted(&policy, Some(scarce), 30, ALL), 25);
        // The images list 180 of the 500 bytes.
        assert_eq!(wanted(&policy, Some(scarce), 0, 180), 20);
        let nothing_used = FilesystemUsage {
            used_bytes: 0,
            ..scarce
        };
        assert_eq!(wanted(&policy, Some(nothing_used), 30, ALL), 0);
    }

    #[test]
    fn the_used_percentage_is_that_of_the_rule() {
        assert_eq!(used_percent(usage(1000, 160, 0, 0)), 84);
        assert_eq!(used_percent(usage(1000, 159, 0, 0)), 85);
        assert_eq!(used_percent(usage(1000, 500, 1000, 95)), 91);
        assert_eq!(used_percent(usage(0, 0, 0, 0)), 0);
        assert_eq!(used_percent(usage(u64::MAX, 0, 0, 0)), 100);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let max = u64::MAX;
        let full = usage(max, 0, max, 0);
        assert_eq!(wanted(&marks(0, 0), Some(full), 0, ALL), max.into());
        assert_eq!(wanted(&marks(0, 0), Some(full), u128::MAX, ALL), 0);
    }
}
