//! What the last pass over each target left: the node before and after it. An alert that pages can then tell a sweep
//! that did not help from litter that is new.

use jiff::Timestamp;

use super::gauges::seconds;
use super::labels::{ListName, PassMoment};
use super::series::Series;
use crate::model::{NodeFigures, Pass, Target};

impl Series {
    /// Shows a pass that removed or tried to; only the targets that it began. Dry runs change none of these figures.
    pub(super) fn last_pass_ended(&self, pass: &Pass, at: Timestamp) {
        for target in pass.begun() {
            self.last_ended.set(target, Some(seconds(at)));
            let remaining = pass.targets.get(&target).map(|report| report.remaining);
            self.last_remaining.set(target, remaining.map(float));
            self.show(target, PassMoment::Before, pass.before.as_ref());
            self.show(target, PassMoment::After, pass.after.as_ref());
        }
    }

    fn show(&self, target: Target, moment: PassMoment, figures: Option<&NodeFigures>) {
        let unknown = NodeFigures::default();
        let figures = figures.unwrap_or(&unknown);
        let dead = |count: Option<u64>| self.last_dead.set((target, moment), count.map(float));
        let list = |list, bytes: Option<u64>| {
            self.last_list_bytes.set((list, moment), bytes.map(float));
        };
        match target {
            Target::Containers => {
                dead(figures.exited_containers);
                list(ListName::Containers, figures.containers_list_bytes);
            }
            Target::Sandboxes => {
                dead(figures.not_ready_sandboxes);
                list(ListName::Sandboxes, figures.sandboxes_list_bytes);
            }
            Target::Images => {
                let (bytes, inodes) = (figures.image_fs_used_bytes, figures.image_fs_inodes_used);
                self.last_fs_used_bytes.set(moment, bytes.map(float));
                self.last_fs_used_ratio
                    .set(moment, figures.image_fs_used_ratio);
                self.last_fs_inodes_used.set(moment, inodes.map(float));
            }
            Target::Logs => {}
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 8 PiB")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_without_a_look_after_it_shows_no_figure_of_an_earlier_one() {
        let series = Series::default();
        let shown = |moment| {
            let dead = series.last_dead.get((Target::Containers, moment)).unwrap();
            dead.value()
        };
        let some = NodeFigures {
            exited_containers: Some(7),
            ..NodeFigures::default()
        };
        series.show(Target::Containers, PassMoment::After, Some(&some));
        assert_eq!(shown(PassMoment::After), Some(7.0));
        series.show(Target::Containers, PassMoment::After, None);
        assert_eq!(shown(PassMoment::After), None);
    }
}
