//! What the last pass over each target left: the node before and after it. An alert that pages can then tell a sweep
//! that did not help from litter that is new.

use jiff::Timestamp;
use prometheus_client::registry::{Registry, Unit};

use super::labels::{List, Moment};
use super::optional_gauge::{OptionalGauge, seconds};
use super::table::Table;
use crate::model::{NodeFigures, Pass, Target};

/// The figures of the last pass over each target. Dry runs do not change them.
#[derive(Clone, Debug, Default)]
pub(super) struct LastPass {
    ended: Table<Target, OptionalGauge>,
    remaining: Table<Target, OptionalGauge>,
    dead: Table<(Target, Moment), OptionalGauge>,
    list_bytes: Table<(List, Moment), OptionalGauge>,
    fs_used_bytes: Table<Moment, OptionalGauge>,
    fs_used_ratio: Table<Moment, OptionalGauge>,
    fs_inodes_used: Table<Moment, OptionalGauge>,
}

impl LastPass {
    /// Shows a pass that removed or tried to; only the targets that it began.
    pub(super) fn ended(&self, pass: &Pass, at: Timestamp) {
        for target in pass.begun() {
            self.ended.set(target, Some(seconds(at)));
            let remaining = pass.targets.get(&target).map(|report| report.remaining);
            self.remaining.set(target, remaining.map(float));
            self.show(target, Moment::Before, pass.before.as_ref());
            self.show(target, Moment::After, pass.after.as_ref());
        }
    }

    fn show(&self, target: Target, moment: Moment, figures: Option<&NodeFigures>) {
        let unknown = NodeFigures::default();
        let figures = figures.unwrap_or(&unknown);
        let dead = |count: Option<u64>| self.dead.set((target, moment), count.map(float));
        let list = |list, bytes: Option<u64>| {
            self.list_bytes.set((list, moment), bytes.map(float));
        };
        match target {
            Target::Containers => {
                dead(figures.exited_containers);
                list(List::Containers, figures.containers_list_bytes);
            }
            Target::Sandboxes => {
                dead(figures.not_ready_sandboxes);
                list(List::Sandboxes, figures.sandboxes_list_bytes);
            }
            Target::Images => {
                let (bytes, inodes) = (figures.image_fs_used_bytes, figures.image_fs_inodes_used);
                self.fs_used_bytes.set(moment, bytes.map(float));
                self.fs_used_ratio.set(moment, figures.image_fs_used_ratio);
                self.fs_inodes_used.set(moment, inodes.map(float));
            }
            Target::Logs => {}
        }
    }

    pub(super) fn register(self, registry: &mut Registry) {
        let ended = "When a pass over this target last ended; absent until one has";
        let name = "last_pass_target_timestamp";
        registry.register_with_unit(name, ended, Unit::Seconds, self.ended);
        let remaining = "Planned objects that still existed after the last pass over this target";
        registry.register("last_pass_remaining", remaining, self.remaining);
        let dead = "Exited containers, or sandboxes that are not ready, around the last pass over this target";
        registry.register("last_pass_dead", dead, self.dead);
        let list = "Size of an unfiltered list around the last pass over what it lists";
        registry.register_with_unit("last_pass_list", list, Unit::Bytes, self.list_bytes);
        let used = "The image file system's bytes in use around the last pass over images";
        let name = "last_pass_image_fs_used";
        registry.register_with_unit(name, used, Unit::Bytes, self.fs_used_bytes);
        let ratio = "The image file system's used share, 0 to 1, around the last pass over images";
        registry.register("last_pass_image_fs_used_ratio", ratio, self.fs_used_ratio);
        let inodes = "The image file system's inodes in use around the last pass over images";
        registry.register(
            "last_pass_image_fs_inodes_used",
            inodes,
            self.fs_inodes_used,
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 8 PiB")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_without_a_look_after_it_shows_no_figure_of_an_earlier_one() {
        let figures = LastPass::default();
        let shown = |moment| {
            let dead = figures.dead.get((Target::Containers, moment)).unwrap();
            dead.value()
        };
        let some = NodeFigures {
            exited_containers: Some(7),
            ..NodeFigures::default()
        };
        figures.show(Target::Containers, Moment::After, Some(&some));
        assert_eq!(shown(Moment::After), Some(7.0));
        figures.show(Target::Containers, Moment::After, None);
        assert_eq!(shown(Moment::After), None);
    }
}
