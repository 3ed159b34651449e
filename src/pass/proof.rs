//! Proves by ids that what the runtime removed is gone. Never plans, never removes.
//!
//! By ids, not by counts: on a busy node as many containers exit during a pass as it removes.

use std::collections::BTreeSet;

use super::Run;
use crate::model::{Coverage, Target, Text};
use crate::snapshot::Look;

/// Objects of one target that were removed and are listed nevertheless.
#[derive(Debug, PartialEq, Eq)]
struct StillListed {
    removed: usize,
    count: u64,
    /// One of them.
    example: Text,
}

impl Run<'_> {
    /// Compares the removed containers and sandboxes with the look after the pass. An incomplete list proves nothing.
    pub(super) fn prove_gone(&mut self, look: &Look) {
        let whole = |coverage: &Coverage| *coverage == Coverage::Whole;
        if let Some(list) = look
            .containers
            .as_ref()
            .ok()
            .filter(|it| whole(&it.coverage))
        {
            let listed = list.rows.iter().map(|row| row.id.text());
            self.prove_target_gone(Target::Containers, listed);
        }
        if let Some(list) = look
            .sandboxes
            .as_ref()
            .ok()
            .filter(|it| whole(&it.coverage))
        {
            let listed = list.rows.iter().map(|row| row.id.text());
            self.prove_target_gone(Target::Sandboxes, listed);
        }
    }

    fn prove_target_gone<'a>(&mut self, target: Target, listed: impl Iterator<Item = &'a Text>) {
        let removed: BTreeSet<&Text> = self
            .tally
            .removed
            .iter()
            .filter(|(of, _)| *of == target)
            .map(|(_, id)| id)
            .collect();
        let Some(found) = still_listed(&removed, listed) else {
            return;
        };
        let StillListed {
            removed,
            count,
            example,
        } = found;
        self.record.update(|pass| {
            if let Some(report) = pass.targets.get_mut(&target) {
                report.still_listed = count;
                report.count_remaining();
            }
        });
        self.report_problem(
            target,
            &format!(
                "{count} of {removed} removed are still listed ({example}): the runtime says that it removes them \
                 and does not; its log may say why"
            ),
        );
    }
}

/// Returns which removed objects are listed; `None` if none is.
fn still_listed<'a>(
    removed: &BTreeSet<&Text>,
    listed: impl Iterator<Item = &'a Text>,
) -> Option<StillListed> {
    // A defective list may have a row twice.
    let both: BTreeSet<&Text> = listed.filter(|id| removed.contains(id)).collect();
    let example = (*both.first()?).clone();
    Some(StillListed {
        removed: removed.len(),
        count: u64::try_from(both.len()).unwrap_or(u64::MAX),
        example,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(removed: &[&str], listed: &[&str]) -> Option<(usize, u64, String)> {
        let texts = |ids: &[&str]| ids.iter().map(|id| Text::from(*id)).collect::<Vec<Text>>();
        let (removed, listed) = (texts(removed), texts(listed));
        let found = still_listed(&removed.iter().collect(), listed.iter())?;
        Some((found.removed, found.count, found.example.to_string()))
    }

    #[test]
    fn a_removed_id_that_is_listed_did_not_go() {
        let some = found(&["a", "b", "c"], &["b", "x", "c", "c"]);
        assert_eq!(some, Some((3, 2, "b".to_owned())));
    }

    #[test]
    fn new_objects_explain_any_count() {
        assert_eq!(found(&["a", "b"], &["c", "d", "e"]), None);
        assert_eq!(found(&[], &["a"]), None);
        assert_eq!(found(&["a"], &[]), None);
    }
}
