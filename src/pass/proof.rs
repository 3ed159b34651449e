//! Proves by ids that what is gone by the runtime's word is gone, and what remains. Never plans, never removes.
//!
//! By ids, not by counts: on a busy node as many containers exit during a pass as it removes.

use std::collections::BTreeSet;

use super::PassRun;
use super::tally::Tally;
use crate::model::{Coverage, HasId, Target, Text};
use crate::snapshot::{ListResult, Look};

impl PassRun<'_> {
    /// Compares what went and what failed with the look after the pass. An incomplete list proves nothing.
    pub(super) fn prove_gone(&mut self, look: &Look) {
        self.prove_target_gone(Target::Containers, &look.containers);
        self.prove_target_gone(Target::Sandboxes, &look.sandboxes);
    }

    fn prove_target_gone<T: HasId>(&mut self, target: Target, list: &ListResult<T>) {
        let list = list.as_ref().ok();
        let Some(list) = list.filter(|it| it.coverage == Coverage::Whole) else {
            return;
        };
        // A defective list may have a row twice.
        let listed: BTreeSet<&str> = list.rows.iter().map(HasId::id).collect();
        let Tally { gone, failed, .. } = &self.tally;
        let gone = of_target(gone, target);
        let still_listed: Vec<&str> = gone.intersection(&listed).copied().collect();
        let failed = of_target(failed, target);
        let went_later = failed
            .iter()
            .filter(|id| !gone.contains(*id) && !listed.contains(*id));
        let (went_later, count) = (went_later.count() as u64, still_listed.len() as u64);
        let problem = still_listed.first().map(|example| {
            format!(
                "{count} of {} removed or gone are still listed ({example}): the runtime says that they are gone, \
                 and lists them; its log may say why",
                gone.len()
            )
        });
        self.record.update(|pass| {
            if let Some(report) = pass.targets.get_mut(&target) {
                report.still_listed = count;
                report.count_remaining();
                report.remaining = report.remaining.saturating_sub(went_later);
            }
        });
        if went_later > 0 {
            self.incomplete = true;
            self.record.line(format!(
                "{target}: {went_later} whose removal failed are gone by now"
            ));
        }
        if let Some(problem) = problem {
            self.report_problem(target, &problem);
        }
    }
}

fn of_target(ids: &BTreeSet<(Target, Text)>, target: Target) -> BTreeSet<&str> {
    let of_target = ids.iter().filter(|(of, _)| *of == target);
    of_target.map(|(_, id)| id.as_str()).collect()
}
