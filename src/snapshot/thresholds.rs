//! The thresholds of `thresholds`, and which of them a look has reached.

use std::collections::BTreeMap;

use super::Look;
use crate::config::Thresholds;

/// A threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Threshold {
    /// Exited containers on the node.
    ExitedContainers,
    /// Not-ready sandboxes.
    NotReadySandboxes,
    /// A list's weight relative to its limit.
    ListLimitRatio,
    /// Used share of the image file system.
    ImageFsUsedPercent,
}

impl Threshold {
    /// Returns the threshold's key in the configuration.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

impl Thresholds {
    /// Returns for each threshold that is set, and whose figure is known, whether it is reached. Equal counts
    /// as reached.
    pub fn crossed(&self, look: &Look) -> BTreeMap<Threshold, bool> {
        let figures = look.figures();
        let lists = look.weights().each().into_iter();
        let list_ratio = lists
            .filter_map(|(_, weight)| weight.ratio())
            .reduce(f64::max);
        let count = |is: Option<u64>, mark: Option<u32>| Some(is? >= u64::from(mark?));
        let share = |is: Option<f64>, mark: Option<f64>| Some(is? >= mark?);
        // Inodes count as bytes do, as for the image policy.
        let bytes = figures.image_fs_used_ratio;
        let inodes = figures.image_fs_inodes_used_ratio();
        let used_percent = bytes.map(|bytes| 100.0 * bytes.max(inodes.unwrap_or(0.0)));
        [
            (
                Threshold::ExitedContainers,
                count(figures.exited_containers, self.exited_containers),
            ),
            (
                Threshold::NotReadySandboxes,
                count(figures.not_ready_sandboxes, self.not_ready_sandboxes),
            ),
            (
                Threshold::ListLimitRatio,
                share(list_ratio, self.list_limit_ratio),
            ),
            (
                Threshold::ImageFsUsedPercent,
                share(used_percent, self.image_fs_used_percent),
            ),
        ]
        .into_iter()
        .filter_map(|(threshold, crossed)| Some((threshold, crossed?)))
        .collect()
    }
}
