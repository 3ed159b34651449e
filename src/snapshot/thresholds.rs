//! Marks of `thresholds`, and which of them a look is above.

use crate::model::every;
use std::collections::BTreeMap;

use super::{Look, Weight};
use crate::config::Thresholds;

/// A mark.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum Threshold {
    /// Exited containers on the node.
    ExitedContainers,
    /// Sandboxes that are not ready.
    NotReadySandboxes,
    /// A list's weight against what it may weigh.
    ListLimitRatio,
    /// The image file system's used share.
    ImageFsUsedPercent,
}

impl Threshold {
    /// Every mark.
    pub const ALL: [Self; 4] = every();

    /// Returns the mark's name: its key in the configuration.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

impl Thresholds {
    /// Says of each mark that is set and whose figure the look has, whether it is reached. Exactly at
    /// the mark counts.
    pub fn crossed(&self, look: &Look) -> BTreeMap<Threshold, bool> {
        let figures = look.figures();
        let weights = look.weights();
        let list_ratio = [weights.containers, weights.sandboxes, weights.images]
            .into_iter()
            .filter_map(Weight::ratio)
            .reduce(f64::max);
        let count = |is: Option<u64>, mark: Option<u32>| Some(is? >= u64::from(mark?));
        let share = |is: Option<f64>, mark: Option<f64>| Some(is? >= mark?);
        let used_percent = figures.image_fs_used_ratio.map(|ratio| 100.0 * ratio);
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
